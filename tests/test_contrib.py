"""Optimizers of `optax.contrib`, by name."""

import inspect
from typing import Any

import numpy as np
import optax
import pytest

import fred
from fred.base.errors import FredError
from fred.commands.documentation import optimizer_names, optimizers_page
from fred.learning.optimizer import Transformation
from fred.running.execution import check, execute
from fred.specification.loading import Scenario
from tests.worlds import LAYERS, TASK

NEEDS_VALUES, ELSEWHERE = "it needs the loss, or a function of the parameters", "its state holds the parameters to evaluate"
REFUSED: dict[str, str] = {
    **dict.fromkeys(("momo", "momo_adam", "reduce_on_plateau", "sophia"), NEEDS_VALUES),
    **dict.fromkeys(("hutchinson_estimator_diag_hessian", "sam"), NEEDS_VALUES),
    **dict.fromkeys(("schedule_free", "schedule_free_adamw", "schedule_free_sgd"), ELSEWHERE),
    **dict.fromkeys(("mechanize", "split_real_and_imaginary"), ".*missing 1 required"),  # another one, which has no name here
    **dict.fromkeys(
        ("dpsgd", "differentially_private_aggregate"), "it needs each example's gradient, and servers get the mean"
    ),
    **dict.fromkeys(("madgrad", "scale_by_madgrad"), "compiled in a loop it gives other last bits"),
    "scale_by_muon": "(Expected dict|pytree structure error)",  # as jax 0.10 and 0.12 say it
}
OPTIONS: dict[str, dict[str, Any]] = {
    "galore": {"rank": 2},
    "scale_by_galore": {"rank": 2},
    "dpsgd": {"seed": 0, "l2_norm_clip": 1.0, "noise_multiplier": 0.1},
    "differentially_private_aggregate": {"key": 0, "l2_norm_clip": 1.0, "noise_multiplier": 0.1},
}
FUNCTIONS = {name for name, _ in inspect.getmembers(optax.contrib, inspect.isfunction)}
ACCEPTED = sorted(FUNCTIONS - {*REFUSED, "schedule_free_eval_params"})


def scenario(*optimizer: dict[str, Any], task: Any = TASK, **options: Any) -> Scenario:
    algorithm = {"name": "asgd", "learning_rate": 0.01, "optimizer": list(optimizer)}
    cluster = {"workers": 3, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}, "servers": 2}
    return fred.scenario(
        task=task, cluster=cluster, algorithm=algorithm, stop={"updates": 7}, evaluate={"points": 1}, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ACCEPTED if name[:9] != "scale_by_" or name[9:] not in ACCEPTED])
def test_inline_equals_replay(name):
    part = {"name": name, **OPTIONS.get(name, {})}
    run = scenario(*([part] if Transformation(**part).takes_rate else [part, {"name": "sgd"}])).runs["asgd"]
    replayed, inline_run = (execute("asgd", run, 0, inline) for inline in (False, True))
    assert replayed.params_digest == inline_run.params_digest
    assert all(np.isfinite(array).all() for array in replayed.final.values())
    assert any((replayed.final[path] != array).any() for path, array in replayed.initial.items()), "it makes steps"


def step(gradient: np.ndarray, **options: Any) -> np.ndarray:
    transformation = Transformation(name="muon", **options).build(0.1)
    updates, _ = transformation.update({"w": gradient}, transformation.init({"w": gradient}), {"w": gradient})
    return np.asarray(updates["w"])


def test_one_step_of_muon_is_about_an_orthogonal_matrix_times_the_rate():
    """Newton-Schulz turns a gradient U S V' into about U V', with singular values of 0.68 to 1.2 [Jordan et al. 2024]."""
    gradient = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    u, _, v = np.linalg.svd(gradient, full_matrices=False)
    assert np.allclose(step(gradient), -0.1 * u @ v, atol=0.04)
    assert (step(gradient) != step(gradient, ns_steps=2)).any()
    assert Transformation(name="contrib.muon").factory is Transformation(name="muon").factory
    gradient = np.diag(np.geomspace(0.006, 1, 64)).astype(np.float32)
    assert 0.002 < 0.006 / np.linalg.norm(gradient) < 0.003, "the least, as a share of the matrix's length"
    values = np.diag(step(gradient)) / -0.1
    assert 0.68 < values.min() < 0.72
    assert 1.15 < values.max() < 1.21


def test_what_cannot_be_used_is_refused_in_one_line():
    for name, reason in REFUSED.items():
        with pytest.raises(FredError, match=rf"optax.{name} cannot be used.*: {reason}") as refusal:
            scenario({"name": name, **OPTIONS.get(name, {})})
        assert "\n" not in str(refusal.value)


def test_names_and_options_are_checked():
    for options, message in (
        ({"name": "muonn"}, "did you mean `muon`"),
        ({"name": "muon", "betta": 0.5}, "`muon` has no option `betta` here; did you mean `beta`"),
        ({"name": "contrib.prodigy", "learning_rate": 0.5}, "the learning rate is the algorithm's own"),
        ({"name": "contrib.adam"}, r"no gradient transformation `contrib\.adam`"),
    ):
        with pytest.raises(FredError, match=message):
            Transformation(**options)


def test_matrices_are_not_cut_into_blocks():
    def check_on_servers(**options: Any) -> None:
        check("asgd", scenario({"name": "muon"}, task=LAYERS, protocol={"name": "asynchronous", **options}).runs["asgd"], 0)

    check_on_servers(clocks="each", cut="layers")
    check_on_servers(clocks="one")
    with pytest.raises(FredError, match="`muon` treats arrays of two dimensions as matrices"):
        check_on_servers(clocks="each")


def test_the_reference_has_all_that_can_be_named_with_their_options():
    assert sorted(optimizer_names(optax.contrib)) == ACCEPTED
    rows = {line.split("`")[1]: line for line in optimizers_page().splitlines() if line.startswith("| `")}
    for name, option in (("muon` *", "`beta = 0.95`"), ("clip` ", "`max_delta`, required"), ("trace` ", "")):
        assert rows[name.split("`")[0]].startswith(f"| `{name}") and option in rows[name.split("`")[0]]
    assert not REFUSED.keys() & rows.keys()
