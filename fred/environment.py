"""The numeric environment: what, besides the scenario, decides the bits. Set before jax loads; recorded with every result.

Measured reasons for each setting stand in docs/numerics.md.
"""

import itertools
import os
import platform
import sys
import warnings
from pathlib import Path

from fred.errors import FredError

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy", "simpy")
_X86 = {  # flags of XLA's; a user's own values for them are replaced
    "--xla_cpu_max_isa": "AVX",  # the last without fused multiply-add
    "--xla_cpu_enable_platform_dependent_math": "false",  # YNNPACK's kernels add up in an order that no CPU changes
    "--xla_cpu_enable_fast_math": "false",
}
_ARM64 = {
    "--xla_backend_extra_options": "-aarch64-enable-mcr=false",
    "--xla_cpu_enable_platform_dependent_math": "false",
    "--xla_cpu_enable_fast_math": "false",
}
_NO_YNNPACK = {"--xla_cpu_experimental_ynn_fusion_type": ""}  # it has no such kernels for CPUs without fused multiply-add
_LAPACK = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}  # for orthogonal first weights
_DRAWS = {"JAX_DEFAULT_PRNG_IMPL": "threefry2x32", "JAX_RANDOM_SEED_OFFSET": "0", "JAX_THREEFRY_PARTITIONABLE": "1"}
_USUAL = {  # what jax does unless it is told otherwise, and what FRED is written for
    "JAX_NUMPY_RANK_PROMOTION": "allow",
    "JAX_TRANSFER_GUARD": "allow",
}
_CPU_INFORMATION = Path("/proc/cpuinfo")


def prepare() -> None:
    """Fix threads, instruction set, kernels, random numbers and platform before jax loads; warn if it is already there."""
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


def check() -> str:
    """The platform on which jax computes. Imports jax. Raises FredError for variables that leave it none."""
    import jax

    threads = os.environ.get("FRED_THREADS", "1")
    if not (threads.isascii() and threads.isdecimal() and int(threads[:9])):
        raise FredError(f"FRED_THREADS={threads}: expected a number of threads, or leave it unset")
    try:
        return str(jax.default_backend())
    except RuntimeError as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        raise FredError(f"JAX_PLATFORMS={platforms}: jax cannot start: {error}; leave the variable unset") from None


def describe() -> dict[str, str]:
    """Everything that identifies the numeric environment, as recorded in a manifest. Imports jax. Raises FredError."""
    import importlib.metadata

    import jax

    backend = check()
    facts = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": cpu_class(),
    }
    facts |= {package: importlib.metadata.version(package) for package in _PACKAGES}
    facts |= {name: os.environ.get(name, "") for name in ("PJRT_NPROC", "XLA_FLAGS", *_LAPACK)}
    facts["backend"] = backend
    for option in (
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_enable_x64",
        "jax_exec_time_optimization_effort",
        "jax_optimization_level",
        "jax_random_seed_offset",
        "jax_threefry_partitionable",
    ):
        facts[option] = str(getattr(jax.config, option))
    return facts


def cpu_class() -> str:
    """Which CPUs are promised the same bits: all with AVX2 and fused multiply-add, or else only those of this model."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return platform.machine()
    facts = _cpu_facts()
    if {"avx2", "fma"} <= set(facts.get("flags", "avx2 fma").split()):  # where nothing can be read, any recent one
        return "x86-64-v3"
    return f"only {facts.get('model name', 'this one')}"


def _cpu_facts() -> dict[str, str]:
    """What Linux says of the first CPU."""
    try:
        with _CPU_INFORMATION.open(encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))  # the others would take time on a machine with many
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _wanted() -> dict[str, str]:
    own, lapack = {}, {}
    if cpu_class() == "x86-64-v3":
        own, lapack = _X86, _LAPACK
    elif platform.machine() in ("x86_64", "AMD64"):
        own = _X86 | _NO_YNNPACK
    elif platform.machine() in ("aarch64", "arm64"):
        own, lapack = _ARM64, _LAPACK
    replaced = _X86.keys() | _ARM64.keys() | _NO_YNNPACK.keys()
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.partition("=")[0] not in replaced]
    return {
        **lapack,
        "PJRT_NPROC": os.environ.get("FRED_THREADS", "1"),
        "XLA_FLAGS": " ".join([*flags, *(f"{name}={value}" for name, value in own.items())]),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        **_DRAWS,
        **{name: value for name, value in _USUAL.items() if name in os.environ},
    }
