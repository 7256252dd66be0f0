"""In which parts YNNPACK adds up a long sum of products, so that all its kernels do it alike.

Where the right side's rows do not fit what it takes for a cache, its kernels for x86-64 add up a part of them at a time, and
then the parts. How long a part is follows from the shape, and from how many rows and columns the kernel takes at once, of which
those for AVX2 and for AVX-512 differ. The kernel for arm64 adds up all in one row. What AVX-512's does is what the others are
led to do. (XNNPACK: ynnpack/subgraph/dot.cc, kernels/dot/schedule.cc; tests/test_portable.py compares with what it computes.)
"""

import platform
from collections.abc import Iterator

_CACHE = 1 << 15  # numbers
_STRIP = 64  # columns at a time
_MANY = 61  # rows of the left side, from which AVX2's kernel copies strips of the right side

AS_ON_X86 = platform.machine() in ("x86_64", "AMD64")


def agreeable(m: int, k: int, n: int, transposed: bool) -> tuple[int, int]:
    """For [m, k] x [k, n]: how many rows and columns it must have for the kernels for AVX2 and AVX-512 to split it alike."""
    if not _copied(m, n, transposed) or k * max(_strip(n), _width(m, k, n)) <= _CACHE:
        return m, n
    return m if transposed else max(m, _MANY), max(n, _strip(n))


def parts(m: int, k: int, n: int, transposed: bool) -> list[tuple[slice, list[slice]]]:
    """For [m, k] x [k, n]: strips of columns, and the sums that are added up for each; none if it is all in one row."""
    if _copied(m, n, transposed):
        strips = [(slice(0, n), list(_cut(k, _CACHE // _strip(n))))]
    else:
        strips = [(strip, list(_cut(k, _CACHE // (strip.stop - strip.start)))) for strip in _cut(n, _width(m, k, n))]
    return strips if any(len(sums) > 1 for _, sums in strips) else []


def _copied(m: int, n: int, transposed: bool) -> bool:
    """Whether AVX-512's kernel reads copies of strips of the right side: if that does not lie in rows, or is read ten times."""
    return transposed or m > 10 * (5 if n > 8 else 8)


def _strip(n: int) -> int:
    """How wide AVX-512's kernel makes such a strip."""
    return 8 if n <= 8 else min(_STRIP, -(-n // 16) * 16)


def _width(m: int, k: int, n: int) -> int:
    """How many columns are computed in one task: it is made larger until it costs enough."""
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


def _cut(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
