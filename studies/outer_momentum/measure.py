"""Run the cases: tune plain averages, measure the correlation there, then tune and match each momentum; and run the rounds."""

from dataclasses import asdict
from typing import Any, ClassVar, Literal

import fred  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fred.learning.server import Scalar, State
from fred.outcomes.tables import at_the_ends
from fred.protocols.local_steps import OuterSteps
from fred.systems.diloco import DiLoCo
from fred.timing.simulation import Process, Simulation
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.kit.tuning import REPORTED, TUNING
from studies.outer_momentum.cases import CASES, MOMENTA, PUBLISHED, RATES, ROUNDS, SECONDS, Case, Grid

STUDY = Study("outer_momentum", "Is outer momentum more than a larger step?", ("", "published"), core_hours=2)
_RATE = "algorithm.learning_rate"
_CORRELATIONS: list[float] = []  # noted by the protocol in this process


def measure() -> None:
    """Measure all parts that have no file, and write the tables."""
    STUDY.write("", pd.concat(parts(STUDY, measure_case, [(name,) for name in CASES])))
    STUDY.write("published", pd.concat(parts(STUDY, measure_rounds, list(ROUNDS), "published")))


def measure_case(name: str) -> pd.DataFrame:
    """Return the losses of a case, a row for each way to choose rates, momentum and reported seed.

    Args:
        name: of the case.
    """
    case = CASES[name]
    averages = _tuned(case, {0.0: case.grid(0.0, 0.0)})
    best = averages.iloc[0]
    rho = correlation(case, best["learning_rate"], best["outer_rate"])
    grids = {momentum: case.grid(momentum, rho) for momentum in MOMENTA[1:]}
    outer_rates = {momentum: grid[best["step"]] for momentum, grid in grids.items()}
    tables = [averages, _tuned(case, grids), _matched(case, best["learning_rate"], outer_rates).assign(step=best["step"])]
    if case.rate_key == "outer_rate":
        tables.append(_published(case))
    return pd.concat(tables).assign(correlation=rho, **asdict(case))


def _tuned(case: Case, grids: dict[float, Grid]) -> pd.DataFrame:
    """Return the losses at the best inner and outer rates of each momentum, whose outer rates are given by effective step."""
    key = f"algorithm.{case.rate_key}"
    sweeps = {momentum: {_RATE: RATES[case.task, case.inner], key: sorted(grid.values())} for momentum, grid in grids.items()}
    rows = _swept(case, {momentum: (case.algorithm(momentum), sweep) for momentum, sweep in sweeps.items()})
    steps = {(momentum, rate): step for momentum, grid in grids.items() for step, rate in grid.items()}
    ways = zip(rows["momentum"], rows[key], strict=True)
    return rows.rename(columns={key: "outer_rate"}).assign(kind="tuned", step=[steps[way] for way in ways])


def _published(case: Case) -> pd.DataFrame:
    """Return the losses with the outer rate and momentum of the DiLoCo paper, and the best inner rate for them."""
    rate, momentum = PUBLISHED
    algorithm = case.algorithm(momentum) | {case.rate_key: rate}
    rows = _swept(case, {momentum: (algorithm, {_RATE: RATES[case.task, case.inner]})})
    return rows.assign(kind="published", outer_rate=rate, step=np.nan)


def _swept(case: Case, sweeps: dict[float, tuple[dict[str, Any], dict[str, Any]]]) -> pd.DataFrame:
    """Return the losses at the best point of each momentum's sweep, with the seeds that had no part in the choice."""
    runs = {
        f"mu-{momentum:g}": {
            "algorithm": algorithm,
            "protocol": case.protocol,
            "sweep": {"over": values, "start": 3, "best": "loss"},
        }
        for momentum, (algorithm, values) in sweeps.items()
    }
    scenario = fred.scenario(case.settings, seeds=list(TUNING), report_seeds=list(REPORTED), runs=runs)
    result = fred.run(scenario)
    grid = pd.DataFrame([{"run": point.of, "point": name, **point.values} for name, point in scenario.points.items()])
    edges = {run for run, _, _ in at_the_ends(grid, result.best)}
    rows = []
    for _, point in result.best.iterrows():
        values = {name: point[name] for name in map(str, result.best.columns) if name.startswith("algorithm.")}
        values |= {"momentum": float(point["run"].removeprefix("mu-")), "points": point["points"]}
        rows += [values | {"at_the_edge": point["run"] in edges} | losses for losses in _losses(result, point["point"])]
    return pd.DataFrame(rows).rename(columns={_RATE: "learning_rate"})


def _matched(case: Case, rate: float, outer_rates: dict[float, float]) -> pd.DataFrame:
    """Return the losses with the inner rate of plain averages at their best, and the outer rate of each momentum."""
    algorithms = {
        f"mu-{momentum:g}": case.algorithm(momentum) | {"learning_rate": rate, case.rate_key: outer_rate}
        for momentum, outer_rate in outer_rates.items()
    }
    runs = {name: {"algorithm": algorithm, "protocol": case.protocol} for name, algorithm in algorithms.items()}
    result = fred.run(fred.scenario(case.settings, seeds=list(REPORTED), runs=runs))
    rows = [
        {"momentum": momentum, "learning_rate": rate, "outer_rate": outer_rate, **losses}
        for momentum, outer_rate in outer_rates.items()
        for losses in _losses(result, f"mu-{momentum:g}")
    ]
    return pd.DataFrame(rows).assign(kind="matched")


def _losses(result: fred.Result, run: str) -> list[dict[str, float]]:
    rows = result.summary[(result.summary["name"] == run) & result.summary["seed"].isin(REPORTED)]
    return [{"seed": seed, "loss": loss} for seed, loss in zip(rows["seed"], rows["loss"], strict=True)]


class Correlated(DiLoCo):
    """DiLoCo that adds up the products of successive pseudo-gradients."""

    has_statistic: ClassVar[bool] = True

    def init(self, params: fred.Params, workers: int) -> State:
        nothing = jax.tree.map(jnp.zeros_like, params)
        zero = jnp.float32(0.0)
        return super().init(params, workers).replace(last=nothing, products=zero, squares=zero, before=zero)

    def apply_round(self, state: State, total: fred.Message, timestamp: Scalar, count: Scalar) -> State:
        """Make an outer step."""
        products = state.products + _product(total, state.last)
        squares = state.squares + jnp.where(state.clock > 0, _product(total, total), 0.0)
        before = state.before + _product(state.last, state.last)
        stepped = super().apply_round(state, total, timestamp, count)
        return stepped.replace(last=total, products=products, squares=squares, before=before)

    def statistic(self, state: State) -> Scalar:
        """Return the correlation at distance one so far."""
        return state.products / jnp.sqrt(jnp.maximum(state.squares * state.before, 1e-30))


class Listening(OuterSteps):
    """`outer-steps` that notes the correlation after each outer step."""

    asks_for: ClassVar[Literal["statistic", "loss"]] = "statistic"

    @property
    def needs_values(self) -> bool:
        return True

    def start(self, sim: Simulation) -> None:
        super().start(sim)
        sim.process(self._listen(sim))

    def _listen(self, sim: Simulation) -> Process:
        yield 1_000_000  # a millisecond after each outer step
        while True:
            yield round(self.period * SECONDS * 1e9)
            _CORRELATIONS.append(sim.statistic(sim.global_replica))


def _product(first: fred.Message, second: fred.Message) -> Scalar:
    return sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def correlation(case: Case, rate: float, outer_rate: float) -> float:
    """Return the correlation of successive mean pseudo-gradients of DiLoCo without momentum, the mean of three seeds.

    Args:
        case: the case, whose system need not be DiLoCo.
        rate: inner learning rate.
        outer_rate: outer learning rate.
    """
    algorithm = Correlated(optimizer=case.inner, outer={"name": "sgd"}, outer_rate=outer_rate, learning_rate=rate)
    settings = case.settings | {"cluster": {"workers": case.workers, "compute": {"name": "constant", "seconds": SECONDS}}}
    values = []
    for seed in TUNING:
        fred.run(fred.scenario(settings, seeds=[seed], algorithm=algorithm, protocol=Listening(period=case.period)))
        values.append(_CORRELATIONS[-1])
    return float(sum(values) / len(values))


def measure_rounds(task: str, system: str) -> pd.DataFrame:
    """Return the losses of a system with the best of five inner rates.

    Args:
        task: name of the task.
        system: name, one of those in ROUNDS.
    """
    run, rates = ROUNDS[task, system]
    sweep = {"over": {_RATE: list(rates)}, "best": "loss"}
    swept = run | {"algorithm": run["algorithm"] | {"learning_rate": rates[0]}, "sweep": sweep}
    result = fred.run(fred.scenario(seeds=list(TUNING[:2]), report_seeds=list(REPORTED), runs={"swept": swept}))
    best = result.best.iloc[0]
    rate = float(best[_RATE])
    facts = {"task": task, "system": system, "point": rate, "edge": rate in (rates[0], rates[-1])}
    return pd.DataFrame([facts | losses for losses in _losses(result, best["point"])])
