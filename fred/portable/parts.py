"""The parts in which YNNPACK sums up long products, so that all its kernels do it alike.

If the rows of the right side exceed an assumed cache size, YNNPACK's x86-64 kernels sum up one part at a time. Then they
add the parts. The length of a part follows from the shape, and from the number of rows and columns that the kernel takes at
once. That number differs between the AVX2 and AVX-512 kernels. The arm64 kernel sums up everything in one row. This module
makes the other kernels do what the AVX-512 kernel does. (XNNPACK: ynnpack/subgraph/dot.cc, kernels/dot/schedule.cc;
tests/test_portable.py compares with YNNPACK's results.)
"""

import platform
from collections.abc import Iterator

_CACHE = 1 << 15  # numbers
_STRIP = 64  # most columns in a strip
_MANY = 61  # rows of the left side from which AVX2's kernel copies strips of the right side

AS_ON_X86 = platform.machine() in ("x86_64", "AMD64")


def agreeable(m: int, k: int, n: int, transposed: bool) -> tuple[int, int]:
    """Return the least rows and columns of [m, k] x [k, n] with which the AVX2 and AVX-512 kernels split it alike."""
    if not _copied(m, n, transposed) or k * max(_strip(n), _width(m, k, n)) <= _CACHE:
        return m, n
    return m if transposed else max(m, _MANY), max(n, _strip(n))


def parts(m: int, k: int, n: int, transposed: bool) -> list[tuple[slice, list[slice]]]:
    """Return strips of columns of [m, k] x [k, n], and the partial sums of each; empty if everything is in one row."""
    if _copied(m, n, transposed):
        strips = [(slice(0, n), list(_slices(k, _CACHE // _strip(n))))]
    else:
        strips = [(strip, list(_slices(k, _CACHE // (strip.stop - strip.start)))) for strip in _slices(n, _width(m, k, n))]
    return strips if any(len(sums) > 1 for _, sums in strips) else []


def _copied(m: int, n: int, transposed: bool) -> bool:
    """Return True if AVX-512's kernel copies strips of the right side: it is transposed, or read more than ten times."""
    return transposed or m > 10 * (5 if n > 8 else 8)


def _strip(n: int) -> int:
    """Return the width of the strips that AVX-512's kernel copies."""
    return 8 if n <= 8 else min(_STRIP, -(-n // 16) * 16)


def _width(m: int, k: int, n: int) -> int:
    """Return the number of columns computed in one task, which grows until the task costs enough."""
    rows, columns = min(m, 16), min(n, _STRIP)
    least, depth = min(m, 64) * min(n, 64), min(k, 1024)
    while rows * columns < least or ((rows + columns) * depth < 1 << 16 and rows * columns < 1 << 16):
        if columns < n and (4 * columns < rows or rows >= m):
            columns *= 2
        elif rows < m and (rows < 4 * columns or columns >= n):
            rows *= 2
        else:
            break
    return min(columns, n)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
