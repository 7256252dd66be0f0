"""jax's options, by whether FRED accepts values other than the default and whether they can change the bits of a result.

Environment variables set options before jax loads; `jax.config.update` and jax's context managers set them later. The value
during the computation of a run counts. FRED fixes some variables, refuses some values, and records others with the numeric
environment. This file lists the options of all versions of jax that `setup.cfg` allows.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from fred.base.errors import FredError

ON_CPU = "FRED computes only on the CPU, because other devices give other bits"
_HARMLESS = {  # any value
    "of GPUs, TPUs and kernels for them": """
        jax_bcoo_cusparse_lowering jax_cuda_visible_devices jax_mock_gpu_topology jax_mosaic_allow_hlo
        jax_mosaic_unzip_debug_locations jax_oneapi_visible_devices jax_pallas_auto_assign_collective_ids
        jax_pallas_auto_assign_collective_ids_limit jax_pallas_enable_debug_checks jax_pallas_poison_buffers
        jax_pallas_use_mosaic_gpu jax_use_emit_pipeline_primitive jax_use_hlo_logistic_lowering
        jax_pallas_verbose_errors jax_ragged_dot_use_gpu_pallas_triton_lowering
        jax_ragged_dot_use_ragged_dot_instruction jax_rocm_visible_devices jax_threefry_gpu_kernel_lowering
        jax_use_magma mock_num_gpu_processes""",
    "of several processes, or of meshes of devices: FRED computes on one device of one process": """
        jax_check_proxy_envs jax_cpu_collectives_implementation jax_cpu_get_global_topology_timeout_minutes
        jax_cpu_get_local_topology_timeout_minutes jax_cross_host_transfer_socket_address
        jax_cross_host_transfer_timeout_seconds jax_cross_host_transfer_transfer_size
        jax_cross_host_transport_addresses jax_disable_vmap_shmap_error jax_disallow_mesh_context_manager
        jax_distributed_debug jax_distributed_verify_secure_credentials jax_enable_preemption_service
        jax_enable_recoverability jax_force_dcn_cross_host_transfers jax_mtls_ca_file jax_mtls_cert_file
        jax_mtls_key_file jax_mtls_peer_uri_prefix jax_raise_on_ppermute_sort_diff jax_use_cpp_shard_args jax_use_rgv3
        jax_remove_size_one_mesh_axis_from_type jax_share_binary_between_hosts
        jax_share_binary_between_hosts_timeout_ms jax_sort_devices_by_process_index jax_thread_guard""",
    "of logs, dumps, messages and tracebacks": """
        jax_captured_constants_report_frames jax_captured_constants_warn_bytes jax_compiler_detailed_logging_min_ops
        jax_debug_leaked_clients_on_clear_backends jax_debug_log_modules jax_dump_ir_modes jax_dump_ir_to
        jax_explain_cache_misses jax_hlo_source_file_canonicalization_regex jax_include_debug_info_in_dumps
        jax_include_full_tracebacks_in_locations jax_log_checkpoint_residuals jax_log_compiles jax_logging_level
        jax_pprint_use_color jax_send_traceback_to_runtime jax_source_url_schema jax_traceback_filtering
        jax_traceback_in_locations_limit jax_tracer_error_num_traceback_frames""",
    "of where compiled programs are kept: their keys hold all that decides their bits": """
        jax_compilation_cache_check_contents jax_compilation_cache_dir jax_compilation_cache_expect_pgle
        jax_compilation_cache_include_metadata_in_key jax_compilation_cache_max_size jax_enable_compilation_cache
        jax_persistent_cache_enable_xla_caches jax_persistent_cache_min_compile_time_secs
        jax_persistent_cache_min_entry_size_bytes jax_remove_custom_partitioning_ptr_from_cache_key""",
    "of export, or of jax's own tests": """
        exclude_test_targets jax_num_generated_cases jax_skip_slow_tests jax_test_dut jax_test_num_threads
        jax_test_with_persistent_compilation_cache max_cases_sampling_retries test_targets
        jax2tf_associative_scan_reductions jax2tf_default_native_serialization jax_export_calling_convention_version
        jax_export_deserialize_expired_versions jax_export_ignore_forward_compatibility jax_serialization_version""",
    "of when something is computed, not of what": "jax_cpu_enable_async_dispatch",
}
_FIXED: dict[str, dict[str, tuple[Any, ...]]] = {  # FRED sets the first value; values other than these are refused
    "it determines initial parameters": {
        "jax_default_prng_impl": ("threefry2x32",),
        "jax_random_seed_offset": (0,),
        "jax_threefry_partitionable": (True,),
    },
    "jax would refuse operations of FRED": {
        "jax_numpy_rank_promotion": ("allow",),
        "jax_transfer_guard": ("allow", None),
    },
}
_REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {  # values other than these are refused
    ON_CPU: {
        "jax_platforms": ("cpu", None, ""),
        "jax_platform_name": ("", "cpu"),
        "jax_xla_backend": ("", "cpu"),
        "jax_backend_target": ("", "local"),
        "jax_default_device": (None, "cpu"),
    },
    "FRED runs compiled programs, and single operations round differently": {
        "jax_disable_jit": (False,),
        "jax_no_execution": (False,),
        "jax_no_tracing": (False,),
    },
    "jax's checks would stop runs, or change compiled programs": {
        "jax_allow_f16_reductions": (True,),
        "jax_array_garbage_collection_guard": (None, "allow"),
        "jax_check_static_indices": (False,),
        "jax_check_tracer_leaks": (False,),
        "jax_debug_infs": (False,),
        "jax_debug_key_reuse": (False,),
        "jax_debug_nans": (False,),
        "jax_disable_bwd_checks": (False,),
        "jax_enable_checks": (False,),
        "jax_error_checking_behavior_divide": ("ignore",),
        "jax_error_checking_behavior_nan": ("ignore",),
        "jax_error_checking_behavior_oob": ("ignore",),
        "jax_experimental_unsafe_xla_runtime_errors": (False,),
        "jax_legacy_prng_key": ("allow",),
        "jax_mutable_array_checks": (True,),
        "jax_numpy_dtype_promotion": ("standard",),
        "jax_raise_persistent_cache_errors": (False,),
        "jax_transfer_guard_device_to_device": (None, "allow"),
        "jax_transfer_guard_device_to_host": (None, "allow"),
        "jax_transfer_guard_host_to_device": (None, "allow"),
    },
}
# all values are accepted; those not listed are recorded with the numeric environment
_RECORDED: dict[str, dict[str, tuple[Any, ...]]] = {
    "numbers' types and precision": {
        "jax_default_matmul_precision": (None,),
        "jax_enable_x64": (False,),
        "jax_explicit_x64_dtypes": (1,),
    },
    "other formulas": {
        "jax_accurate_erf_inv": (False,),
        "jax_enable_custom_prng": (False,),
        "jax_high_dynamic_range_gumbel": (False,),
        "jax_softmax_custom_jvp": (False,),
        "jax_use_direct_linearize": (True,),
    },
    "other programs of the same formulas": {
        "check_vma": (False,),
        "eager_constant_folding": (False,),
        "jax_auto_pcast": (True,),
        "jax_custom_jvp3": (False,),
        "jax_custom_vjp3": (False,),
        "jax_embedded_constants_max_bytes": (32,),
        "jax_refs_to_pins": (False,),
        "jax_remat3": (False,),
        "jax_remat_barrier_no_cotangents": (False,),
        "jax_scan3": (False,),
        "jax_use_shardy_partitioner": (True,),
        "jax_use_simplified_jaxpr_constants": (False,),
    },
    "other compilers, or told otherwise": {
        "jax_compiler_enable_remat_pass": (True,),
        "jax_disable_most_optimizations": (False,),
        "jax_enable_pgle": (False,),
        "jax_exec_time_optimization_effort": (0.0,),
        "jax_memory_fitting_effort": (0.0,),
        "jax_memory_fitting_level": ("O2",),
        "jax_num_cpu_devices": (-1,),
        "jax_optimization_level": ("UNKNOWN",),
        "jax_pgle_aggregation_percentile": (90,),
        "jax_pgle_profiling_runs": (3,),
        "jax_pjrt_client_create_options": (None,),
        "jax_xla_profile_version": (0,),
    },
}
harmless = frozenset(option for options in _HARMLESS.values() for option in options.split())
fixed, refused, recorded = (
    {option: values for options in group.values() for option, values in options.items()}
    for group in (_FIXED, _REFUSED, _RECORDED)
)
_REASONS = {option: reason for reason, options in (_FIXED | _REFUSED).items() for option in options}


def variables() -> dict[str, str]:
    """Return the environment variables that set the fixed options, with the values that FRED needs."""
    return {option.upper(): str(values[0]) for option, values in fixed.items()}


def check() -> None:
    """Raise FredError if an option has a value that FRED refuses."""
    found = _values()
    for option, usual in (fixed | refused).items():
        _check(option, found.get(option, usual[0]))


def check_platforms() -> None:
    """Raise FredError if JAX_PLATFORMS selects a device other than the CPU. Does not import jax."""
    _check("jax_platforms", os.environ.get("JAX_PLATFORMS"))


def _check(option: str, value: Any) -> None:
    usual = (fixed | refused)[option]
    if value not in usual:
        left = f"leave it {usual[0]!r}, and the variable {option.upper()} unset"
        raise FredError(f"{option} is {value!r}: {_REASONS[option]}; {left}")


def telling() -> dict[str, str]:
    """Return the options that are not at their defaults and can change bits, and those of a newer jax, which may do so.

    Defaults are left out: a version of jax that lacks an option computes as one that has it at its default.
    """
    if are_usual():
        return {}
    found = _values()
    usual = {option for option, values in recorded.items() if found.get(option) in values}
    silent = harmless | usual | fixed.keys() | refused.keys()
    return {option: str(found[option]) for option in sorted(_at_first() - silent) if option in found}


def are_usual() -> bool:
    """Return True if all options have their defaults, without importing jax: it is not loaded, and no variable sets one."""
    names = {option.upper() for option in (*harmless, *fixed, *refused, *recorded)}
    told = {name for name in os.environ if name in names or name.startswith("JAX_")}
    return "jax" not in sys.modules and told <= {"JAX_PLATFORMS"} and os.environ.get("JAX_PLATFORMS") == "cpu"


@cache
def _at_first() -> frozenset[str]:
    """Return the names of jax's options when they are first needed. Parts of jax that are imported later may add others."""
    return frozenset(_values())


def _values() -> Mapping[str, Any]:
    import jax

    values: Mapping[str, Any] = jax.config.values
    return values
