"""Optimizers of `optax.contrib`, by name."""

import inspect
from typing import Any

import numpy as np
import optax
import pytest
from pydantic import ValidationError

import fred
from fred.base.errors import FredError
from fred.commands.optimizers import named, page
from fred.learning.optimizer import Transformation
from fred.outcomes.computed import Computed
from fred.running.execution import check, execute
from fred.specification.loading import Scenario

OPTIONS: dict[str, dict[str, Any]] = {"galore": {"rank": 2}, "scale_by_galore": {"rank": 2}, "scale_by_madgrad": {}}
NEED_MORE = ("mechanize", "schedule_free", "sam", "split_real_and_imaginary")  # another transformation, which has no name here
REFUSED: tuple[str, ...] = (
    "momo",
    "momo_adam",
    "reduce_on_plateau",
    "sophia",
    "hutchinson_estimator_diag_hessian",
    "dpsgd",
    *NEED_MORE,
)
REFUSED += ("schedule_free_adamw", "schedule_free_sgd", "differentially_private_aggregate", "scale_by_muon")


def transformations() -> list[str]:
    """All that optax.contrib has."""
    functions = inspect.getmembers(optax.contrib, inspect.isfunction)
    return [name for name, _ in functions if name != "schedule_free_eval_params"]


ACCEPTED = [name for name in transformations() if name not in REFUSED]


def scenario(*optimizer: dict[str, Any], **more: Any) -> Scenario:
    task = {
        "data": {"name": "synthetic-classification", "examples": 60, "evaluation": 20, "features": 5, "classes": 3},
        "model": "mlp",
    }
    algorithm = {"name": "asgd", "learning_rate": 0.01, "optimizer": list(optimizer)}
    cluster = {"workers": 3, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.5}, "servers": 2}
    return fred.scenario(task=task, cluster=cluster, algorithm=algorithm, stop={"updates": 7}, evaluate={"points": 1}, **more)


def chain(name: str) -> list[dict[str, Any]]:
    part = {"name": name, **OPTIONS.get(name, {})}
    return [part] if Transformation(**part).takes_rate else [part, {"name": "sgd"}]


def ran(optimizer: list[dict[str, Any]], inline: bool = False) -> Computed:
    return execute("asgd", scenario(*optimizer).runs["asgd"], 0, inline=inline)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("muon", "dog") else pytest.mark.slow) for name in ACCEPTED]
)
def test_inline_equals_replay(name):
    one, other = ran(chain(name)), ran(chain(name), inline=True)
    assert one.params_digest == other.params_digest
    assert all(np.isfinite(array).all() for array in one.final.values())
    assert any((one.final[path] != array).any() for path, array in one.initial.items()), "it makes steps"


@pytest.mark.slow
def test_the_name_may_say_where_it_is():
    long, short = (ran([{"name": name, "beta": 0.9}]) for name in ("contrib.muon", "muon"))
    assert long.params_digest == short.params_digest != ran([{"name": "muon", "beta": 0.5}]).params_digest


def test_one_step_of_muon_is_about_an_orthogonal_matrix_times_the_rate():
    """Of a gradient U S V' Newton and Schulz make about U V', with singular values of 0.68 to 1.2 [Jordan et al. 2024]."""
    gradient = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    transformation = Transformation(name="muon").build(0.1)
    updates, _ = transformation.update({"w": gradient}, transformation.init({"w": gradient}), {"w": gradient})
    u, _, v = np.linalg.svd(gradient, full_matrices=False)
    assert np.allclose(updates["w"], -0.1 * u @ v, atol=0.04)
    gradient = np.diag(np.geomspace(0.006, 1, 64)).astype(np.float32)
    assert 0.002 < 0.006 / np.linalg.norm(gradient) < 0.003, "the least, as a share of the matrix's length"
    updates, _ = transformation.update({"w": gradient}, transformation.init({"w": gradient}), {"w": gradient})
    values = np.diag(updates["w"]) / -0.1
    assert 0.68 < values.min() < 0.72
    assert 1.15 < values.max() < 1.21


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(name):
    options: dict[str, Any] = {"seed": 0} if name == "dpsgd" else {}
    options |= {"key": 0} if name == "differentially_private_aggregate" else {}
    if "dpsgd" in name or "private" in name:
        options |= {"l2_norm_clip": 1.0, "noise_multiplier": 0.1}
    with pytest.raises(FredError, match=rf"optax.{name} cannot be used") as refusal:
        scenario({"name": name, **options})
    assert "\n" not in str(refusal.value)


def test_names_and_options_are_checked():
    with pytest.raises(ValidationError, match="did you mean `muon`"):
        Transformation(name="muonn")
    with pytest.raises(ValidationError, match="`muon` has no option `betta` here; did you mean `beta`"):
        Transformation(name="muon", betta=0.5)
    with pytest.raises(ValidationError, match="the learning rate is the algorithm's own"):
        Transformation(name="contrib.prodigy", learning_rate=0.5)
    with pytest.raises(ValidationError, match=r"no gradient transformation `contrib\.adam`"):
        Transformation(name="contrib.adam")


def test_matrices_are_not_cut_into_blocks():
    def among_servers(**options: Any) -> None:
        check("asgd", scenario({"name": "muon"}, protocol={"name": "asynchronous", **options}).runs["asgd"], 0)

    among_servers(clocks="each", cut="layers")
    among_servers(clocks="one")
    with pytest.raises(FredError, match="`muon` treats arrays of two dimensions as matrices"):
        among_servers(clocks="each")


def test_the_reference_has_all_that_can_be_named_with_their_options():
    assert sorted(named(optax.contrib)) == sorted(ACCEPTED)
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    assert "`beta = 0.95`" in rows["muon"]
    assert "`max_delta`, required" in rows["clip"]
    starred = {name for name, row in rows.items() if row.startswith(f"| `{name}` *")}
    assert {"adam", "sgd", "muon"} <= starred
    assert "`power = 0.5`" in rows["inverse_power_ema"]
    assert not starred & {"clip", "trace", "normalize"}
    assert not set(REFUSED) & set(rows)
