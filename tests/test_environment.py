"""The same bits under other hash seeds, core counts and instruction sets; and the compiler fault that must not come back."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred.base import environment
from tests.cases import TABLES
from tests.conftest import ROOT
from tests.golden import GOLDEN, SHORTENED, compare_environment, digest_training, digests, names

PROGRAM = """
import json, fred
settings = ["seeds=[2]", "stop.seconds=3"]
result = fred.run(fred.load("scenarios/quickstart.yaml", settings), ["backup-workers", "fasgd"])
print(json.dumps(result.summary[["name", "digests_schedule", "digests_params"]].values.tolist()))
"""


def run(prefix: tuple[str, ...] = (), program: str = PROGRAM, **variables: str) -> Any:
    env = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC", "JAX_PLATFORMS")}
    command = [*prefix, sys.executable, "-c", program]
    process = subprocess.run(command, cwd=ROOT, env={**env, **variables}, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def reference() -> list:
    return run()


MACHINES = [
    {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2 --xla_cpu_enable_platform_dependent_math=true"},
    {
        **{"PYTHONHASHSEED": "77", "XLA_FLAGS": "--xla_cpu_max_isa=AVX512", "OMP_NUM_THREADS": "1"},
        **{"JAX_THREEFRY_PARTITIONABLE": "0", "JAX_DEFAULT_PRNG_IMPL": "rbg", "JAX_RANDOM_SEED_OFFSET": "7"},
        **{"ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "X86_V4"},
    },
]
ON_ONE_CORE = ("taskset", "-c", str(min(os.sched_getaffinity(0)))) if shutil.which("taskset") else ()


@pytest.mark.slow
@pytest.mark.parametrize("variables", MACHINES)
def test_digests_depend_on_no_setting_of_the_machine_and_not_on_the_number_of_cores(reference, variables):
    assert run(ON_ONE_CORE, **variables) == reference


def test_jax_loaded_first_is_warned_about():
    program = "import warnings, jax\nwarnings.simplefilter('error')\nimport fred"
    env = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PJRT_NPROC")}
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "jax was imported before fred, without PJRT_NPROC=1" in process.stderr


def wanted_flags(user_flags: str) -> list[str]:
    """Return the XLA flags that FRED would set next to these flags of a user, from its warning once jax is loaded."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XLA_FLAGS", user_flags)
        with pytest.warns(UserWarning, match="jax was imported before fred") as warned:
            environment.prepare()
    (flags,) = re.findall(r"XLA_FLAGS=(.*?)(?:, [A-Z_]+=|: digests may differ)", str(warned[0].message))
    return flags.split()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 CPU")
def test_cpus_without_the_portable_kernels_are_a_class_each(monkeypatch, tmp_path):
    portable = "x86-64-v3 or arm64"
    for flags, expected in ((None, portable), ("fpu avx avx2 fma", portable), ("fpu avx avx2", "only Old CPU")):
        monkeypatch.setattr(environment, "_CPU_INFORMATION", facts := tmp_path / f"{flags}")
        if flags:
            facts.write_text(f"processor\t: 0\nmodel name\t: Old CPU\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
        assert environment.cpu_class() == expected
        assert ("--xla_cpu_experimental_ynn_fusion_type=" in wanted_flags("")) == (expected != portable)


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_arm64_is_of_one_class_with_x86_64_never_fuses_and_a_users_other_flags_stay(monkeypatch, machine):
    """Neither after instructions are selected (the pass that is switched off) nor before (scalable vectors)."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    user_flags = "--xla_backend_extra_options=-x --xla_cpu_max_isa=AVX512 --xla_embed_ir_in_executable=false"
    assert environment.cpu_class() == "x86-64-v3 or arm64"
    assert wanted_flags(user_flags) == [
        "--xla_embed_ir_in_executable=false",
        "--xla_backend_extra_options=-aarch64-enable-mcr=false,-scalable-vectorization=off",
        "--xla_cpu_enable_platform_dependent_math=false",
        "--xla_cpu_enable_fast_math=false",
    ]


def test_a_manifest_names_others_flags_and_unprepared_variables(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_embed_ir_in_executable=false {os.environ['XLA_FLAGS']}")
    assert environment.describe()["XLA_FLAGS"] == "--xla_embed_ir_in_executable=false"
    assert environment.describe()["unprepared"] == ""
    monkeypatch.setenv("XLA_FLAGS", "")
    assert environment.describe()["unprepared"] == "XLA_FLAGS"


@pytest.mark.parametrize(("dtype", "rows"), [(jnp.float32, 32_769), (jnp.float64, 16_385)])
def test_jax_compiles_a_vmapped_matrix_vector_product_rightly(dtype, rows):
    """The fault of jax 0.10.2 (jax issue 39103), which silently gave wrong numbers."""
    with jax.enable_x64(dtype == jnp.float64):
        i = jnp.arange(rows, dtype=dtype)
        x, matrix = jnp.stack((i, jnp.zeros_like(i), jnp.zeros_like(i)), axis=1), jnp.eye(3, dtype=dtype)
        computed = jax.jit(lambda x: jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(x))(x)
        np.testing.assert_array_equal(np.asarray(computed), np.arange(rows, dtype=dtype) ** 2)


ELSEWHERE = (*TABLES, *SHORTENED)  # compared in tests/test_every_case.py, and in tests/pinned


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if not name.startswith(ELSEWHERE)])
def test_digests_are_the_pinned_ones(name):
    pinned = json.loads(GOLDEN.read_text())
    if differences := compare_environment(pinned["environment"]):
        assert digests(name) == digests(name)
        pytest.skip(f"not the locked environment ({'; '.join(differences)}): two runs agree, the pinned digests do not apply")
    assert digests(name) == pinned["digests"][name]


def test_every_pinned_run_is_compared():
    assert set(names()) == json.loads(GOLDEN.read_text())["digests"].keys()


@pytest.mark.slow
def test_training_and_decisions_are_the_pinned_ones():
    pinned, first = json.loads(GOLDEN.read_text()), digest_training()
    if (differences := compare_environment(pinned["environment"])) or pinned["numpyro"] != version("numpyro"):
        assert digest_training() == first
        pytest.skip(f"not the locked environment ({'; '.join(differences)}): two runs agree, the pinned ones do not apply")
    assert first == pinned["training"]


@pytest.mark.nightly
def test_training_and_decisions_do_not_depend_on_a_machines_settings():
    program = "import json, fred; from tests.golden import digest_training; print(json.dumps(digest_training()))"
    assert run(ON_ONE_CORE, program, **MACHINES[-1]) == digest_training()


@pytest.mark.slow
def test_a_program_of_freds_collects_rarely_and_a_library_leaves_it_as_it_is():
    state = "gc.isenabled(), gc.get_threshold()"
    library = f"import gc; usual = {state}; import fred; fred.run; assert ({state}) == usual"
    program = f"import atexit, gc, runpy, sys; atexit.register(lambda: print({state}))"
    program += "\nsys.argv[1:] = ['list', 'systems']\nrunpy.run_module('fred', run_name='__main__')"
    subprocess.run([sys.executable, "-c", library], check=True)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False (5000, 10, 10)"
