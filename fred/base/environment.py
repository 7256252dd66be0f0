"""The numeric environment: what, besides the scenario, decides the bits. Set before jax loads; recorded with every result.

Measured reasons for each setting stand in docs/numerics.md.
"""

import itertools
import os
import platform
import sys
import warnings
from functools import cache
from pathlib import Path

from fred.base import options
from fred.base.errors import FredError
from fred.base.version import __version__

_X86_NAMES, _ARM64_NAMES = ("x86_64", "AMD64"), ("aarch64", "arm64")
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy", "simpy")
_KERNELS = {  # flags of XLA's; a user's own values for them are replaced
    "--xla_cpu_enable_platform_dependent_math": "false",  # YNNPACK's kernels add up in an order that no CPU changes
    "--xla_cpu_enable_fast_math": "false",
}
_X86 = {"--xla_cpu_max_isa": "AVX"} | _KERNELS  # the last without fused multiply-add
_ARM64 = {  # LLVM's pass that fuses multiplications and additions; vectors of SVE's, which are fused before
    "--xla_backend_extra_options": "-aarch64-enable-mcr=false,-scalable-vectorization=off"
} | _KERNELS
_NO_YNNPACK = {"--xla_cpu_experimental_ynn_fusion_type": ""}  # it has no such kernels for CPUs without fused multiply-add
_LAPACK = {"OPENBLAS_NUM_THREADS": "1"}  # and kernels for one CPU: for orthogonal first weights
_CPU_INFORMATION = Path("/proc/cpuinfo")
_CPU_MODEL = (  # of x86-64's and of arm64's, what does not change from minute to minute
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
_PORTABLE = "x86-64-v3 or arm64"  # they give each other's bits


def prepare() -> None:
    """Fix threads, instruction set, kernels, random numbers and platform before jax loads; warn if it is already there.

    All of it are variables of the environment, which processes that are started later inherit. `FRED_THREADS` says how many
    threads jax has (1 unless told otherwise), which is recorded with the rest.
    """
    wanted = _wanted()
    if "jax" in sys.modules:
        differing = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
        if differing:
            warnings.warn(
                f"jax was imported before fred, without {', '.join(differing)}: digests may differ from FRED's elsewhere. "
                "Import fred first, or set these variables before starting Python.",
                stacklevel=3,
            )
        return
    os.environ.update(wanted)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # of some CPUs XLA says, with each program it reads, that they differ


def check() -> None:
    """Raise FredError where a variable or an option of jax's leaves FRED nothing to compute with. Imports jax."""
    import jax

    threads = os.environ.get("FRED_THREADS", "1")
    if not (threads.isascii() and threads.isdecimal() and int(threads[:9])):
        raise FredError(f"FRED_THREADS={threads}: expected a number of threads, or leave it unset")
    options.check()
    try:
        backend = str(jax.default_backend())
    except Exception as error:  # of whatever kind: other libraries raise it
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise FredError(f"jax cannot start on the CPU: {said}; leave variables that begin with JAX_ unset") from None
    if backend != "cpu":
        raise FredError(f"jax computes on {backend}: {options.ON_CPU}; import fred before jax, or set JAX_PLATFORMS=cpu")
    if os.environ.get("PJRT_NPROC") == "1":
        _keep_programs()


def describe() -> dict[str, str]:
    """Everything that identifies the numeric environment, as recorded in a manifest. Imports jax. Raises FredError."""
    check()
    facts = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "system": platform.system(),
        "cpu": cpu_class(),
    }
    facts |= _versions()
    wanted = _wanted()
    facts |= {"PJRT_NPROC": os.environ.get("PJRT_NPROC", ""), "XLA_FLAGS": " ".join(_others_flags(_own()))}
    facts["unprepared"] = " ".join(name for name in wanted if os.environ.get(name) != wanted[name])
    facts["backend"] = "cpu"
    return facts | options.telling()


@cache
def _versions() -> dict[str, str]:
    """Of packages, which do not change while a process lives."""
    import importlib.metadata

    return {package: importlib.metadata.version(package) for package in _PACKAGES}


def cpu_class() -> str:
    """Which CPUs are promised the same bits: arm64's, those with AVX2 and fused multiply-add, or only this model.

    Returns: a word that a manifest records, and `fred verify` compares.
    """
    if platform.machine() in _ARM64_NAMES:
        return _PORTABLE
    if platform.machine() not in _X86_NAMES:
        return platform.machine()
    facts = _cpu_facts()
    if {"avx2", "fma"} <= set(facts.get("flags", "avx2 fma").split()):  # where nothing can be read, any recent one
        return _PORTABLE
    return f"only {facts.get('model name', 'this one')}"


def _cpu_facts() -> dict[str, str]:
    """What Linux says of the first CPU."""
    try:
        with _CPU_INFORMATION.open(encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))  # the others would take time on a machine with many
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@cache
def _keep_programs() -> None:
    """What is compiled need not be compiled again, where nothing differs that could reach it."""
    from fred.base import compiled

    compiled.keep(_machine() | _software())


def _machine() -> dict[str, str]:
    """The kind of machine: by its CPU, or, where nothing can be read of that, by its name; an emulator's by what it can do."""
    import importlib

    seen = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__  # by asking the CPU itself
    facts = _cpu_facts()
    model = {name: facts[name] for name in _CPU_MODEL if name in facts} or {"node": platform.node()}
    able = " ".join(sorted(name for name, there in seen.items() if there))
    return {"system": platform.system(), "machine": platform.machine(), "class": cpu_class(), **model, "able": able}


def _software() -> dict[str, str]:
    """Everything installed, and set, that compiles; and FRED's sources that replace parts of it."""
    import hashlib

    root = Path(__file__).parent.parent
    sources = [Path(__file__), *sorted((root / "portable").glob("*.py"))]
    numeric = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    settings = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "PJRT_NPROC")}
    return {"python": sys.version, "fred": __version__, "numeric": numeric, **_versions(), **settings}


def _wanted() -> dict[str, str]:
    own, lapack = _own(), {}
    if cpu_class() == _PORTABLE:
        lapack = _LAPACK | {"OPENBLAS_CORETYPE": "ARMV8" if platform.machine() in _ARM64_NAMES else "Haswell"}
    return {
        **lapack,
        "PJRT_NPROC": os.environ.get("FRED_THREADS", "1"),
        "XLA_FLAGS": " ".join([*_others_flags(own), *(f"{name}={value}" for name, value in own.items())]),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu",
        **{name: value for name, value in options.variables().items() if name in os.environ},
    }


def _own() -> dict[str, str]:
    """FRED's flags for XLA on this CPU."""
    if platform.machine() in _ARM64_NAMES:
        return _ARM64
    if platform.machine() in _X86_NAMES:
        return _X86 if cpu_class() == _PORTABLE else _X86 | _NO_YNNPACK
    return {}


def _others_flags(own: dict[str, str]) -> list[str]:
    """The user's, without any that FRED sets itself."""
    replaced = own.keys() | _X86.keys() | _NO_YNNPACK.keys()
    return [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.partition("=")[0] not in replaced]
