"""The job, its failures, and the systems; their times to a target, the work that lasts, and checkpoints in closed form."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fred
from fred.components.component import NANOSECONDS
from fred.learning.data.dataset import Dataset
from fred.learning.data.language import Bigrams
from fred.schedule.schedule import Schedule, What
from studies.kit.comparison import TRIALS, Comparison
from studies.kit.runs import parts
from studies.kit.study import Study
from studies.kit.tuning import Geometric, Knobs, Settings

STUDY = Study("failures", "What does a failure cost, by system?", ("", TRIALS, "work", "goodput"))
WORKERS = 8
ROUND = 139.1  # s: mean time of the slowest of eight gradients
BUDGET, LOOK = 16 * 3600.0, 120.0  # s of virtual time, and between two evaluations
TARGET = 4.35  # loss, nats; the least possible one is 4.08
HOUR = 3600.0
NONE = math.inf  # hours between two failures of the job
RATES = {24.0: "one a day", 4.0: "six a day", 1.0: "one an hour"}
MOST = 1.0  # hours between failures where the cost of one is measured
PAUSE = 60.0  # s for which a checkpoint stops the job
DETECT, REPAIR, JOIN, LOAD = 60.0, 1800.0, 120.0, 240.0  # s
OUTAGE = DETECT + REPAIR + LOAD  # s without one machine
POINTS, FINALISTS, EXTRA = 5, 2, 8  # of each system; the best are tried with all tuning seeds
REPORTED = tuple(range(11, 19))  # seeds
DAYS = 3  # length of a run that measures the work that lasts
LONG = {1.0: 400, 4.0: 200, 24.0: 50}  # hours between failures, and failures of a run for the goodput
_CALM = 1000 * ROUND  # s without failures, for the mean time of a round

_OUTER = ((0.0, 0.7), (0.0, 1.0), (0.5, 0.7), (0.5, 1.0), (0.9, 0.4), (0.9, 0.7))  # momentum and outer rate
_AVERAGES = (0.0, 1.0)  # the outer step of local SGD
_PERIODS = (4, 8, 16, 32)


class Corpus(fred.Data):
    """The same tokens for all seeds, so that times to a target differ by minibatches, compute times and failures alone."""

    generated: ClassVar[bool] = True

    def load(self, seed: int) -> Dataset:
        return Bigrams(vocabulary=256, context=16, examples=30000, evaluation=100).load(0)


@dataclass(frozen=True)
class System:
    """A system, and how it meets failures.

    Args:
        meets: effect of a failure, in words.
        algorithm: its name.
        knobs: ordered values of each tuned setting, by name.
        protocol: fixed options of the protocol.
        usual: values of the protocol's knobs for the work that lasts.
        stops: True if a failure stops the whole job, which goes back to a checkpoint; else it stops one worker.
        round_updates: updates in the time of a step.
        spares: machines that stand by.
        twin: system that is the same without failures.
    """

    meets: str
    algorithm: str
    knobs: Knobs
    protocol: dict[str, Any] = field(default_factory=dict)
    usual: Settings = field(default_factory=dict)
    stops: bool = False
    round_updates: int = 1
    spares: int = 0
    twin: str | None = None

    def run(self, settings: Settings, interval: float) -> dict[str, Any]:
        """Return a run, as a scenario has it.

        Args:
            settings: value of each knob; without `outer` the outer step of local SGD.
            interval: hours between two failures of the job.
        """
        algorithm: dict[str, Any] = {"name": self.algorithm, "learning_rate": settings.get("rate", 1.0)}
        if "outer" in self.knobs:
            momentum, rate = settings.get("outer", _AVERAGES)
            algorithm |= {"outer_rate": rate, "outer": {"name": "sgd", "momentum": momentum, "nesterov": True}}
        options = {name: value for name, value in settings.items() if name not in ("rate", "outer")}
        run = {"algorithm": algorithm, "protocol": {**self.protocol, **options}}
        return run if interval == NONE else run | {"cluster": self.cluster(interval)}

    def cluster(self, interval: float) -> dict[str, Any]:
        """Return the part of the cluster that differs between systems: failures.

        Args:
            interval: hours between two failures of the job.
        """
        mean_up = WORKERS * interval * HOUR  # of each machine
        if not self.stops:
            return {"faults": [{"name": "crashes", "mean_up": mean_up, "away": _constant(OUTAGE)}]}
        failures = {
            "causes": [{"mean_up": mean_up, "repair": _constant(REPAIR)}],
            "checkpoint": {"every_updates": self.round_updates * rounds_between_checkpoints(interval), "pause": PAUSE},
            "detect": _constant(DETECT),
            "load": _constant(LOAD),
        }
        return {"failures": failures | ({"spares": self.spares, "join": _constant(JOIN)} if self.spares else {})}


def _constant(seconds: float) -> dict[str, Any]:
    return {"name": "constant", "seconds": seconds}


def daly_interval(pause: float, interval: float) -> float:
    """Return the best time between two checkpoints, s [Daly 2006, Future Generation Computer Systems 22, equation 37].

    Args:
        pause: time for which a checkpoint stops the job, s.
        interval: mean time between failures of the job, s.

    >>> round(daly_interval(60, 3600)), round(daly_interval(60, 604800))
    (618, 8479)
    """
    root = math.sqrt(pause / (2 * interval))
    return math.sqrt(2 * pause * interval) * (1 + root / 3 + root**2 / 9) - pause


def goodput(every: float, pause: float, interval: float, outage: float, load: float) -> float:
    """Return the share of time with work that lasts. Failures have exponential times, and strike while the job works or loads.

    Args:
        every: work between two checkpoints, s.
        pause: time for which a checkpoint stops the job, s.
        interval: mean time between failures of the job, s.
        outage: time until a failure is detected and repaired, in which none strikes, s.
        load: time to load a checkpoint, s.

    >>> round(goodput(600, 60, 3600, outage=1860, load=240), 3), round(goodput(600, 60, 1e9, outage=1860, load=240), 3)
    (0.511, 0.909)
    """
    return every / ((interval + outage) * math.exp(load / interval) * math.expm1((every + pause) / interval))


def rounds_between_checkpoints(interval: float) -> int:
    """Return the number of synchronous rounds next to Daly's interval.

    Args:
        interval: hours between two failures of the job.

    >>> [rounds_between_checkpoints(hours) for hours in (1, 4, 24)]
    [4, 9, 23]
    """
    return max(1, round(daly_interval(PAUSE, interval * HOUR) / ROUND))


_SYNCHRONOUS = {"rate": Geometric.spanning(71, 200, ratio=math.sqrt(2))}
_ASYNCHRONOUS = {"rate": Geometric.spanning(8.9, 25, ratio=math.sqrt(2))}
_LOCAL = {**_SYNCHRONOUS, "period": _PERIODS}
_OUTER_KNOBS = {**_SYNCHRONOUS, "outer": _OUTER, "period": _PERIODS}
_PERIOD = {"period": 16}

SYSTEMS = {
    "checkpoints": System("all stop, go back, wait for the repair", "ssgd", _SYNCHRONOUS, stops=True),
    "checkpoints, a spare": System(
        "all stop, go back, a spare joins", "ssgd", _SYNCHRONOUS, stops=True, spares=1, twin="checkpoints"
    ),
    "backup workers": System(
        "rounds need 7 or 6 of 8",
        "ssgd",
        {**_SYNCHRONOUS, "backup_workers": (1, 2)},
        protocol={"late": "interrupt"},
        usual={"backup_workers": 1},
    ),
    "elastic rounds": System(
        "after 60 s rounds go on without it, with a smaller batch",
        "ssgd",
        _SYNCHRONOUS,
        protocol={"timeout": DETECT},
        twin="checkpoints",
    ),
    "elastic, same batch": System(
        "the others compute its share (Rennala)", "rennala", {**_SYNCHRONOUS, "batch": (4, 6, 8, 12, 16)}, usual={"batch": 8}
    ),
    "asynchronous, checkpoints": System(
        "all stop, go back, wait for the repair", "asgd", _ASYNCHRONOUS, stops=True, round_updates=WORKERS, twin="asynchronous"
    ),
    "asynchronous": System("the others go on", "asgd", _ASYNCHRONOUS),
    "local SGD": System("the others wait at the next average", "local-sgd", _LOCAL, usual=_PERIOD),
    "DiLoCo": System("the others wait at the next outer step", "diloco", _OUTER_KNOBS, usual=_PERIOD),
    "elastic DiLoCo": System(
        "the others go on; it rejoins from a peer",
        "streaming-diloco",
        _OUTER_KNOBS,
        protocol={"fragments": 1, "elastic": True},
        usual=_PERIOD,
        twin="DiLoCo",
    ),
    "Decoupled DiLoCo": System("the others go on; it rejoins from the server", "decoupled-diloco", _OUTER_KNOBS, usual=_PERIOD),
}
BASE = "checkpoints"  # with which the others are compared
_CLUSTER = {"workers": WORKERS, "compute": {"name": "lognormal", "median": 120.0, "sigma": 0.1}}


def settings() -> dict[str, Any]:
    """Return the settings that all runs to the target share, as a scenario has them."""
    return {
        "task": {"data": Corpus(), "model": "token-scores", "batch_size": 4},
        "cluster": _CLUSTER,
        "stop": {"seconds": BUDGET, "target_loss": TARGET},
        "evaluate": {"points": round(BUDGET / LOOK), "target_loss": TARGET},
    }


def scores(case: str, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the time to the target without failures [settings, seeds], s.

    A run that misses the target counts as its length, times one more than the logarithm of its loss over the target.

    Args:
        case: the only one.
        system: name of the system.
        points: settings.
        seeds: of the runs.
    """
    runs = {f"p{number}": SYSTEMS[system].run(knobs, NONE) for number, knobs in enumerate(points)}
    summary = fred.run(fred.scenario(settings(), seeds=list(seeds), runs=runs)).summary
    missed = BUDGET * (1 + np.maximum(0, np.log(pd.to_numeric(summary["loss"]).fillna(np.inf) / TARGET)))
    by_seed = summary.assign(score=pd.to_numeric(summary["target_seconds"]).fillna(missed))
    return by_seed.pivot(index="name", columns="seed", values="score").loc[list(runs), list(seeds)].to_numpy(float)


def report(case: str, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> pd.DataFrame:
    """Return the times to the target and the failures until then, without failures and with one an hour.

    Args:
        case: the only one.
        system: name of the system.
        points: settings.
        seeds: of the runs.
    """
    keys = {f"p{number}-{hours:g}": (number, hours) for number in range(len(points)) for hours in (NONE, MOST)}
    runs = {name: SYSTEMS[system].run(points[number], hours) for name, (number, hours) in keys.items()}
    result = fred.run(fred.scenario(settings(), seeds=list(seeds), runs=runs))
    rows = result.summary[["seed", "target_seconds", "loss"]].copy()
    rows["setting"], rows["hours"] = zip(*(keys[name] for name in result.summary["name"]), strict=True)
    begins = {(outcome.name, outcome.seed): failures(outcome.schedule) for outcome in result.outcomes}
    ends = pd.to_numeric(rows["target_seconds"]).fillna(BUDGET)
    names = zip(result.summary["name"], result.summary["seed"], ends, strict=True)
    return rows.assign(failures=[int((begins[name, seed] < end).sum()) for name, seed, end in names])


def failures(schedule: Schedule) -> NDArray[np.float64]:
    """Return the times of failures, s: of the job, or of single workers.

    Args:
        schedule: of a run.
    """
    intervals = schedule.intervals
    job = intervals.select(What.DETECTING)
    begins = job.begin_ns if len(job.begin_ns) else intervals.select(What.AWAY).begin_ns
    return np.asarray(begins / NANOSECONDS, float)


COMPARISON = Comparison(
    STUDY,
    ["job"],
    {name: system.knobs for name, system in SYSTEMS.items()},
    scores,
    report,
    points=POINTS,
    finalists=FINALISTS,
    extra=EXTRA,
    special={name: ["local SGD"] for name in ("DiLoCo", "Decoupled DiLoCo")},
    twins={name: system.twin for name, system in SYSTEMS.items() if system.twin},
    reported=REPORTED,
)


def work(system: str) -> pd.DataFrame:
    """Return the gradients of runs without learning that last, as shares of those without failures, by rate and seed.

    Args:
        system: name of the system.
    """
    runs = {f"{hours:g}": SYSTEMS[system].run(SYSTEMS[system].usual, hours) for hours in (NONE, *RATES)}
    scenario = fred.scenario({"cluster": _CLUSTER, "stop": {"seconds": DAYS * 24 * HOUR}}, seeds=list(REPORTED), runs=runs)
    summary = fred.run(scenario).summary
    gradients = summary.pivot(index="seed", columns="name", values="gradients_applied").astype(float)
    shares = gradients.div(gradients["inf"], axis=0).drop(columns="inf").melt(ignore_index=False, var_name="hours")
    return shares.rename(columns={"value": "work"}).reset_index().assign(system=system)


def long_goodput(interval: float) -> pd.DataFrame:
    """Return the goodput of synchronous SGD with checkpoints over many failures, without learning, by seed.

    Args:
        interval: hours between two failures of the job.
    """
    algorithm = {"algorithm": {"name": "ssgd", "learning_rate": 0.1}}
    runs = {"job": algorithm | {"cluster": SYSTEMS[BASE].cluster(interval)}, "plain": algorithm | {"stop": {"seconds": _CALM}}}
    common = {"cluster": _CLUSTER, "stop": {"seconds": LONG[interval] * interval * HOUR}}
    summary = fred.run(fred.scenario(common, seeds=list(REPORTED[:5]), runs=runs)).summary
    job, calm = (summary[summary["name"] == name] for name in ("job", "plain"))
    mean_round = _CALM / (calm["gradients_applied"].mean() / WORKERS)
    return job[["seed", "failures_number", "failures_goodput"]].assign(hours=interval, round=mean_round)


def measure() -> None:
    """Measure all parts that have no file, and write the tables."""
    STUDY.write("goodput", pd.concat(parts(STUDY, long_goodput, [(hours,) for hours in LONG], "goodput")))
    STUDY.write("work", pd.concat(parts(STUDY, work, [(name,) for name in SYSTEMS], "work")))
    COMPARISON.measure()
