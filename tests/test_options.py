"""jax's options: none changes bits silently, whether by a variable or by `jax.config.update`."""

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest

import fred
from fred.base import cached, environment
from fred.base.errors import FredError
from fred.components import own_code, registry
from fred.running import execution
from fred.running.execution import execute
from fred.running.units import SelectedRuns
from tests.conftest import ROOT
from tests.worlds import mostly_slow

pytestmark = pytest.mark.usefixtures("undrawn")

OTHERWISE: dict[str, Any] = {"jax_default_device": "gpu", "jax_platforms": "cuda"}
OTHERWISE |= {"jax_exec_time_optimization_effort": 0.5, "jax_pjrt_client_create_options": "key:value"}
FIXED = ("jax_num_cpu_devices",)  # jax takes no other value once it computes
LISTED = environment.refused_options | environment.recorded_options
UPDATABLE = sorted((LISTED.keys() & jax.config.values.keys()) - {*FIXED})
WITHOUT_EFFECT = {  # on what a CPU computes with one device
    *("jax_hlo_source_file_canonicalization_regex", "jax_ragged_dot_use_gpu_pallas_triton_lowering"),
    *("jax_remove_size_one_mesh_axis_from_type", "jax_threefry_gpu_kernel_lowering"),
}


def other_value(option: str) -> Any:
    """Return an unusual value, of the option's type where that is enough."""
    kind, positional, named = jax.config.meta[option]
    usual = LISTED[option]
    if option in OTHERWISE:
        return OTHERWISE[option]
    if kind == "enum":
        return next(value for value in named.get("enum_values", positional) if value not in usual)
    if kind == "enum_class":
        return next(value for value in named["enum_class"] if value not in usual)
    return {bool: not usual[0], int: 7, float: 0.5, str: "other"}[kind]


@contextmanager
def set_option(option: str, value: Any) -> Iterator[None]:
    names = [name for name in jax.config.values if name.startswith("jax_transfer_guard")] if "guard" in option else []
    before = {name: jax.config.values[name] for name in [option, *names]}
    jax.config.update(option, value)
    try:
        yield
    finally:
        for name, old in before.items():
            jax.config.update(name, old)


def run_program(program: str, **variables: str) -> str:
    """Return the output of a fresh process with these variables of jax only."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX", "XLA", "PJRT"))}
    return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, env=env | variables, text=True)


def read_jax_options() -> set[str]:
    """Return the options in jax's sources that tell compiled programs apart, whatever part of jax defines them."""
    names = set[str]()
    for path in Path(jax.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in filter(lambda node: isinstance(node, ast.Call), ast.walk(ast.parse(text)) if "include_in_" in text else ()):
            values = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}  # type: ignore[attr-defined]
            if "True" in (values.get("include_in_jit_key"), values.get("include_in_trace_context")):
                names.add(ast.literal_eval(values.get("name") or ast.unparse(call.args[0])))  # type: ignore[attr-defined]
    return names


def test_options_that_tell_jaxs_programs_apart_are_listed_once_and_usual_values_are_those_of_jax_itself():
    """Also in an environment before and after jax is loaded."""
    distinguishing = {
        name for name in read_jax_options() if name in jax.config.values or name.startswith("jax_")
    }  # others are no options
    assert len(distinguishing) > 30 and distinguishing <= LISTED.keys() | WITHOUT_EFFECT
    assert not environment.refused_options.keys() & environment.recorded_options.keys()
    program = """
import json, sys
import fred
from fred.base import environment
before = environment.describe()
assert "jax" not in sys.modules
environment.check()
assert environment.describe() == before
import jax
usual, values = environment.refused_options | environment.recorded_options, jax.config.values
print(json.dumps([option for option, expected in usual.items() if values.get(option, expected[0]) not in expected]))
"""
    assert json.loads(run_program(program)) == []


def test_a_value_with_which_fred_does_not_compute_is_refused_in_a_line():
    for option in {*UPDATABLE} - environment.recorded_options.keys():
        value = other_value(option)
        with set_option(option, value), pytest.raises(FredError) as raised:
            environment.describe()
        assert re.fullmatch(
            rf"{option} is {re.escape(repr(value))}: .*, and the variable {option.upper()} unset", str(raised.value)
        )
        environment.check()


def test_another_value_is_recorded():
    for option in (option for option in UPDATABLE if option in environment.recorded_options):
        value, before = other_value(option), environment.describe()
        with set_option(option, value):
            assert environment.describe() == before | {option: str(value)}
            assert option in own_code.objection(before | {"FRED": own_code.local_facts()["FRED"]}, {})
        assert environment.describe() == before


def test_a_context_managers_value_counts():
    assert "jax_enable_x64" not in environment.describe()
    (unit,) = next(SelectedRuns(fred.scenario(SETTINGS)).stages()).units
    with jax.enable_x64(True):
        assert environment.describe()["jax_enable_x64"] == "True"
        (other,) = next(SelectedRuns(fred.scenario(SETTINGS)).stages()).units
    assert unit.identity != other.identity


VARIABLES = [
    ({"JAX_DISABLE_JIT": "1"}, "jax_disable_jit is True: FRED runs compiled programs"),
    ({"JAX_NUM_CPU_DEVICES": "2", "JAX_LOG_COMPILES": "1", "JAX_PLATFORMS": ""}, "jax_num_cpu_devices: 2\n"),
    ({"JAX_NUMPY_RANK_PROMOTION": "raise"}, "jax_numpy_rank_promotion is 'raise': jax then refuses operations of FRED; leave"),
    ({"JAX_PLATFORMS": "cuda,cpu"}, "jax_platforms is 'cuda,cpu': FRED computes only on the CPU, because other devices"),
    ({"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi"}, ""),
]


@pytest.mark.parametrize(("variables", "start"), mostly_slow(VARIABLES, VARIABLES[:2]))
def test_variables_are_refused_recorded_or_without_effect(variables, start):
    usual = environment.describe().keys()
    program = f"""
import fred
from fred.base import environment
try:
    print(*(f"{{name}}: {{value}}" for name, value in environment.describe().items() if name not in {[*usual]}), sep="\\n")
except fred.FredError as error:
    print(error)
"""
    assert run_program(program, **variables).startswith(start)


DATA = {"name": "synthetic-regression", "examples": 60, "evaluation": 12}
SETTINGS: dict[str, Any] = {"cluster": {"workers": 2}, "task": {"data": DATA, "model": "softmax"}, "stop": {"updates": 10}}
SETTINGS["algorithm"] = {"name": "asgd", "learning_rate": 0.1, "optimizer": "adamw"}


@pytest.mark.slow
def test_a_value_that_changes_between_two_runs_of_a_process_takes_effect_as_if_nothing_had_been_computed():
    def digest() -> str | None:
        return fred.run(fred.scenario(SETTINGS)).outcomes[0].params_digest

    usual = digest()
    with jax.enable_x64(True):
        changed = digest()
        cached.forget(compiled=True)
        assert digest() == changed != usual
    assert digest() == usual


def test_compiled_programs_are_forgotten_after_a_change_of_an_option_that_only_the_compiler_reads():
    numbers = itertools.count()
    function = jax.jit(lambda x: x + next(numbers))  # the number of its trace

    def trace() -> int:
        cached.forget(compiled=False)
        return int(function(0))

    assert (trace(), trace()) == (0, 0)
    with set_option("jax_compiler_enable_remat_pass", False):
        assert (trace(), trace()) == (1, 1)
    assert trace() == 2


def test_a_value_that_changes_while_a_unit_is_computed_is_refused(monkeypatch, tmp_path):
    def changing(*args: Any) -> Any:
        outcome = execute(*args)
        jax.config.update("jax_enable_x64", True)
        return outcome

    monkeypatch.setattr(execution, "execute", changing)
    try:
        with pytest.raises(FredError, match=r"^asgd/seed-0: jax_enable_x64 changed while it ran; set options of JAX "):
            fred.run(fred.scenario(SETTINGS), out=tmp_path / "out")
    finally:
        jax.config.update("jax_enable_x64", False)
    assert not (tmp_path / "out").exists()


def test_modules_are_not_imported_for_another_platform(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(FredError, match=r"^jax_platforms is 'cuda': FRED computes only on the CPU"):
        registry.allow_import(["nowhere"])
