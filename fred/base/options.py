"""jax's options with which FRED cannot compute, and those that can change the bits of a result.

Environment variables set options before jax loads; `jax.config.update` and jax's context managers set them later. The value
during the computation of a run counts. jax does not keep its defaults, so they are listed here. Options that are not listed are
harmless: of logs, checks, caches, other devices, several processes. A test compares the list with the options by which jax
itself tells compiled programs apart.
"""

import os
import sys
from typing import Any

from fred.base.errors import FredError

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
recorded: dict[str, tuple[Any, ...]] = {  # values other than these are recorded with the numeric environment
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
refused = {option: values for options in _REFUSED.values() for option, values in options.items()}
_REASONS = {option: reason for reason, options in _REFUSED.items() for option in options}


def of_initial_parameters() -> dict[str, str]:
    """Return the environment variables that change initial parameters, with the values that FRED sets instead of a user's."""
    names = ("jax_default_prng_impl", "jax_random_seed_offset", "jax_threefry_partitionable")
    return {name.upper(): str(recorded[name][0]) for name in names}


def check() -> None:
    """Raise FredError if an option has a value that FRED refuses. Imports jax."""
    import jax

    for option, accepted in refused.items():
        _check(option, jax.config.values.get(option, accepted[0]))


def check_platforms() -> None:
    """Raise FredError if JAX_PLATFORMS selects a device other than the CPU. Does not import jax."""
    _check("jax_platforms", os.environ.get("JAX_PLATFORMS"))


def _check(option: str, value: Any) -> None:
    accepted = refused[option]
    if value not in accepted:
        cure = f"leave it {accepted[0]!r}, and the variable {option.upper()} unset"
        raise FredError(f"{option} is {value!r}: {_REASONS[option]}; {cure}")


def non_defaults() -> dict[str, str]:
    """Return the options that are not at their defaults and can change bits.

    Defaults are left out: a version of jax that lacks an option computes as one that has it at its default.
    """
    if are_defaults():
        return {}
    import jax

    values = jax.config.values
    changed = (option for option, defaults in recorded.items() if values.get(option, defaults[0]) not in defaults)
    return {option: str(values[option]) for option in changed}


def are_defaults() -> bool:
    """Return True if all options have their defaults, without importing jax: it is not loaded, and no variable sets one."""
    variables = {option.upper() for option in recorded}
    changed = {name for name in os.environ if name in variables or name.startswith("JAX_")}
    return "jax" not in sys.modules and changed <= {"JAX_PLATFORMS"} and os.environ.get("JAX_PLATFORMS") == "cpu"
