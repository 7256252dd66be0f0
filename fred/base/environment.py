"""The numeric environment: the settings that, with the scenario, determine the bits of a result; jax's options among them.

FRED sets it before jax loads, and records it with every result. docs/numerics.md explains each setting with measurements.

Environment variables set options before jax loads; `jax.config.update` and jax's context managers set them later. The value
during the computation of a run counts. jax does not keep its defaults, so they are listed here. Options that are not listed are
harmless: of logs, checks, caches, other devices, several processes. A test compares the list with the options by which jax
itself tells compiled programs apart.
"""

import itertools
import os
import platform
import resource
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from fred.base.errors import FredError

_X86_NAMES, _ARM64_NAMES = ("x86_64", "AMD64"), ("aarch64", "arm64")
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy", "simpy")
_KERNELS = {  # XLA flags; FRED replaces a user's values
    "--xla_cpu_enable_platform_dependent_math": "false",  # YNNPACK's kernels add in the same order on all CPUs
    "--xla_cpu_enable_fast_math": "false",
}
_X86 = {"--xla_cpu_max_isa": "AVX"} | _KERNELS  # the newest instruction set without fused multiply-add
_ARM64 = {  # disable LLVM's pass that fuses multiplications and additions, and SVE vectors, which fuse earlier
    "--xla_backend_extra_options": "-aarch64-enable-mcr=false,-scalable-vectorization=off"
} | _KERNELS
_NO_YNNPACK = {"--xla_cpu_experimental_ynn_fusion_type": ""}  # YNNPACK lacks kernels for CPUs without fused multiply-add
_LAPACK = {"OPENBLAS_NUM_THREADS": "1"}  # and kernels of one CPU type, for orthogonal initial weights
_CPU_INFORMATION = Path("/proc/cpuinfo")
_CPU_MODEL = (  # constant fields of Linux's CPU information, of x86-64 and of arm64
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
_LEAST_MEMORY = 2_150_400_000  # bytes of address space of a process
_WRONG = {  # versions of jax, which `setup.cfg` excludes
    "0.10.2": "miscompiles products of matrices and vectors on the CPU (https://github.com/jax-ml/jax/issues/39103)",
}
_PORTABLE = "x86-64-v3 or arm64"  # both give the same bits


def prepare() -> None:
    """Fix threads, instruction set, kernels, random numbers and platform before jax loads; warn if jax is already loaded.

    All settings are environment variables, which processes inherit that start later. `FRED_THREADS` is the number of threads of
    jax (default 1), which is recorded, too.
    """
    settings = _settings()
    if "jax" in sys.modules:
        differing = [f"{name}={value}" for name, value in settings.items() if os.environ.get(name) != value]
        if differing:
            warnings.warn(
                f"jax was imported before fred, without {', '.join(differing)}: digests may differ from those of other runs. "
                "Import fred first, or set these variables before starting Python.",
                stacklevel=3,
            )
        return
    os.environ.update(settings)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # on some CPUs XLA warns of differences with each program that it reads


def check() -> None:
    """Raise FredError if a limit, an environment variable or an option of jax does not allow FRED to compute. Imports jax."""
    _check_memory()
    import jax

    if reason := _WRONG.get(jax.__version__):
        raise FredError(f"jax {jax.__version__} {reason}; install another version: pip install 'jax!={jax.__version__}'")
    _check_threads()
    check_options()
    try:
        backend = str(jax.default_backend())
    except Exception as error:  # other libraries may raise any exception
        message = next(iter(str(error).splitlines()), type(error).__name__)
        raise FredError(f"jax cannot start on the CPU: {message}; leave variables that begin with JAX_ unset") from None
    if backend != "cpu":
        raise FredError(f"jax computes on {backend}: {ON_CPU}; import fred before jax, or set JAX_PLATFORMS=cpu")
    if os.environ.get("PJRT_NPROC") == "1":  # programs of several threads may give other bits when read from a cache
        _cache_programs()


def _check_memory() -> None:
    """Raise FredError if a process may have less address space than jax needs: its C++ would end the process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY:
        raise FredError(
            f"`ulimit -v` allows each process {limit / 1e9:.1f} GB; expected {_LEAST_MEMORY / 1e9:g} GB or more: "
            f"ulimit -v {_LEAST_MEMORY // 1024}, or ulimit -v unlimited"
        )


def _check_threads() -> None:
    threads = os.environ.get("FRED_THREADS", "1")
    if not (threads.isascii() and threads.isdecimal() and int(threads[:9])):  # Python refuses to read thousands of digits
        raise FredError(f"FRED_THREADS={threads}: expected a number of threads, or leave it unset")


def describe() -> dict[str, str]:
    """Return everything that identifies the numeric environment, for a manifest. Raises FredError.

    Imports jax only if it could have other options than usual, so that a run of timing alone does not load it.
    """
    if has_default_options():
        _check_threads()
    else:
        check()
    facts = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "system": platform.system(),
        "cpu": cpu_class(),
    }
    facts |= _versions()
    settings = _settings()
    facts |= {"PJRT_NPROC": os.environ.get("PJRT_NPROC", ""), "XLA_FLAGS": " ".join(_user_flags(_flags()))}
    # Settings that jax was loaded without, or that were changed later.
    facts["unprepared"] = " ".join(name for name in settings if os.environ.get(name) != settings[name])
    facts["backend"] = "cpu"
    return facts | changed_options()


@cache
def _versions() -> dict[str, str]:
    """Return the versions of the packages that affect results. They are constant while a process lives."""
    import importlib.metadata

    return {package: importlib.metadata.version(package) for package in _PACKAGES}


def cpu_class() -> str:
    """Return the class of CPUs that give the same bits: arm64 and those with AVX2 and fused multiply-add, or one model.

    A manifest records this name, and `fred verify` compares it.
    """
    if platform.machine() in _ARM64_NAMES:
        return _PORTABLE
    if platform.machine() not in _X86_NAMES:
        return platform.machine()
    facts = _cpu_facts()
    if {"avx2", "fma"} <= set(facts.get("flags", "avx2 fma").split()):  # without CPU information, assume a recent one
        return _PORTABLE
    return f"only {facts.get('model name', 'this one')}"


def _cpu_facts() -> dict[str, str]:
    """Return Linux's information on the first CPU; empty on other systems."""
    try:
        with _CPU_INFORMATION.open(encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))  # reading all CPUs takes time on large machines
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@cache
def _cache_programs() -> None:
    """Let jax reuse compiled programs on the same kind of machine with the same software."""
    from fred.base import compiled

    compiled.keep(_machine() | _software())


def _machine() -> dict[str, str]:
    """Return the properties of the machine: its CPU's model, or the machine's name if that is unknown, and CPU features.

    Features distinguish emulators.
    """
    import importlib

    features = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__  # read from the CPU itself
    facts = _cpu_facts()
    model = {name: facts[name] for name in _CPU_MODEL if name in facts} or {"node": platform.node()}
    feature_names = " ".join(sorted(name for name, supported in features.items() if supported))
    return {"system": platform.system(), "machine": platform.machine(), "class": cpu_class(), **model, "able": feature_names}


def _software() -> dict[str, str]:
    """Return the software and settings that affect compiled programs, with a digest of FRED's numeric sources."""
    import hashlib

    root = Path(__file__).parent.parent
    sources = [Path(__file__), *sorted((root / "portable").glob("*.py"))]
    numeric = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    settings = {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "PJRT_NPROC")}
    return {"python": sys.version, "fred": __version__, "numeric": numeric, **_versions(), **settings}


def _settings() -> dict[str, str]:
    """Return the environment variables that FRED sets, with their values."""
    flags, lapack = _flags(), {}
    if cpu_class() == _PORTABLE:
        lapack = _LAPACK | {"OPENBLAS_CORETYPE": "ARMV8" if platform.machine() in _ARM64_NAMES else "Haswell"}
    return {
        **lapack,
        "PJRT_NPROC": os.environ.get("FRED_THREADS", "1"),
        "XLA_FLAGS": " ".join([*_user_flags(flags), *(f"{name}={value}" for name, value in flags.items())]),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu",
        **{name: value for name, value in initial_parameter_variables().items() if name in os.environ},  # a user's values
    }


def _flags() -> dict[str, str]:
    """Return FRED's XLA flags for this CPU."""
    if platform.machine() in _ARM64_NAMES:
        return _ARM64
    if platform.machine() in _X86_NAMES:
        return _X86 if cpu_class() == _PORTABLE else _X86 | _NO_YNNPACK
    return {}


def _user_flags(fred_flags: dict[str, str]) -> list[str]:
    """Return the user's XLA flags without those that FRED sets."""
    replaced = fred_flags.keys() | _X86.keys() | _NO_YNNPACK.keys()
    return [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.partition("=")[0] not in replaced]


ON_CPU = "FRED computes only on the CPU, because other devices give other bits"
_FAILS = "jax then refuses operations of FRED"
_REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {  # values other than these are refused
    ON_CPU: {"jax_platforms": ("cpu", None, ""), "jax_default_device": (None, "cpu")},
    "FRED runs compiled programs, and single operations round differently": {"jax_disable_jit": (False,)},
    _FAILS: {
        "jax_error_checking_behavior_nan": ("ignore",),
        "jax_no_execution": (False,),
        "jax_no_tracing": (False,),
        "jax_numpy_dtype_promotion": ("standard",),
        "jax_numpy_rank_promotion": ("allow",),
        "jax_transfer_guard": ("allow", None),
    },
}
recorded_options: dict[str, tuple[Any, ...]] = {  # values other than these are recorded with the numeric environment
    "check_vma": (False,),
    "eager_constant_folding": (False,),
    "jax_accurate_erf_inv": (False,),
    "jax_allow_f16_reductions": (True,),
    "jax_auto_pcast": (True,),
    "jax_check_static_indices": (False,),
    "jax_compiler_enable_remat_pass": (True,),
    "jax_custom_jvp3": (False,),
    "jax_custom_vjp3": (False,),
    "jax_debug_key_reuse": (False,),
    "jax_default_matmul_precision": (None,),
    "jax_default_prng_impl": ("threefry2x32",),
    "jax_disable_most_optimizations": (False,),
    "jax_embedded_constants_max_bytes": (32,),
    "jax_enable_custom_prng": (False,),
    "jax_enable_pgle": (False,),
    "jax_enable_x64": (False,),
    "jax_error_checking_behavior_divide": ("ignore",),
    "jax_error_checking_behavior_oob": ("ignore",),
    "jax_exec_time_optimization_effort": (0.0,),
    "jax_explicit_x64_dtypes": (1,),
    "jax_high_dynamic_range_gumbel": (False,),
    "jax_memory_fitting_effort": (0.0,),
    "jax_memory_fitting_level": ("O2",),
    "jax_mutable_array_checks": (True,),
    "jax_num_cpu_devices": (-1,),
    "jax_optimization_level": ("UNKNOWN",),
    "jax_pgle_aggregation_percentile": (90,),
    "jax_pgle_profiling_runs": (3,),
    "jax_pjrt_client_create_options": (None,),
    "jax_random_seed_offset": (0,),
    "jax_refs_to_pins": (False,),
    "jax_remat3": (False,),
    "jax_remat_barrier_no_cotangents": (False,),
    "jax_scan3": (False,),
    "jax_softmax_custom_jvp": (False,),
    "jax_threefry_partitionable": (True,),
    "jax_use_direct_linearize": (True,),
    "jax_use_shardy_partitioner": (True,),
    "jax_use_simplified_jaxpr_constants": (False,),
    "jax_xla_profile_version": (0,),
}
refused_options = {option: values for options in _REFUSED.values() for option, values in options.items()}
_REASONS = {option: reason for reason, options in _REFUSED.items() for option in options}


def initial_parameter_variables() -> dict[str, str]:
    """Return the environment variables that change initial parameters, with the values that FRED sets instead of a user's."""
    names = ("jax_default_prng_impl", "jax_random_seed_offset", "jax_threefry_partitionable")
    return {name.upper(): str(recorded_options[name][0]) for name in names}


def check_options() -> None:
    """Raise FredError if an option has a value that FRED refuses. Imports jax."""
    import jax

    for option, accepted in refused_options.items():
        _check_option(option, jax.config.values.get(option, accepted[0]))


def check_platforms() -> None:
    """Raise FredError if JAX_PLATFORMS selects a device other than the CPU. Does not import jax."""
    _check_option("jax_platforms", os.environ.get("JAX_PLATFORMS"))


def _check_option(option: str, value: Any) -> None:
    accepted = refused_options[option]
    if value not in accepted:
        cure = f"leave it {accepted[0]!r}, and the variable {option.upper()} unset"
        raise FredError(f"{option} is {value!r}: {_REASONS[option]}; {cure}")


def changed_options() -> dict[str, str]:
    """Return the options that are not at their defaults and can change bits.

    Defaults are left out: a version of jax that lacks an option computes as one that has it at its default.
    """
    if has_default_options():
        return {}
    import jax

    values = jax.config.values
    changed = (option for option, defaults in recorded_options.items() if values.get(option, defaults[0]) not in defaults)
    return {option: str(values[option]) for option in changed}


def has_default_options() -> bool:
    """Return True if all options have their defaults, without importing jax: it is not loaded, and no variable sets one."""
    variables = {option.upper() for option in recorded_options}
    changed = {name for name in os.environ if name in variables or name.startswith("JAX_")}
    return "jax" not in sys.modules and changed <= {"JAX_PLATFORMS"} and os.environ.get("JAX_PLATFORMS") == "cpu"


__version__ = "0.2.0"
