"""Clients with their data, devices and links; systems with their knobs; the criterion of the tuning, and the measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

import fred
from fred.learning.data.dataset import Dataset
from fred.learning.data.images import Digits
from fred.schedule.minibatches import Parts, divide, divide_by_shares
from studies.kit.comparison import TRIALS, Comparison, by_logarithm
from studies.kit.study import Study
from studies.kit.tuning import Knobs, Settings

STUDY = Study("asked", "Which clients should be asked, and which waited for?", ("", TRIALS), core_hours=0.27)
POINTS, FINALISTS = 12, 2  # of each system in each case; the best of those are tried with all tuning seeds
TUNING_END = 0.6  # loss, nats, at which runs of the tuning end: well below that at the target
WORST = 0.1  # share of clients whose error counts as that of the worst
LAST = 7  # 7, 8 and 9 are the last digits
CLIENTS = 30
BUDGET, LOOKS = 240.0, 80  # s of virtual time, and evaluations in them
TARGET = 0.25  # error on held-out digits
SKEW = 0.1  # concentration of the Dirichlet distribution
STEP, VARIES = 0.5, 0.3  # s: median time of a local step on a device of speed 1, and its sigma
LATENCY, UPLOAD, DOWNLOAD = 0.2, 5e3, 1e5  # s, and bytes/s; a model has 9,640 bytes
SPREAD = 1.0  # sigma of speeds and of uplinks
ONLINE, OFFLINE = 60.0, 30.0  # s: mean time for which a client stays, and for which it is away


class Owned(fred.Data):
    """Digits with owners, in the order of their share of the digits 7, 8 and 9: client 0 has the smallest.

    Args:
        clients: number of owners.
        concentration: of the Dirichlet distribution that draws each class's shares; 0: even, random parts.
    """

    generated: ClassVar[bool] = True

    clients: int
    concentration: float

    def load(self, seed: int) -> Dataset:
        data = Digits().load(seed)
        labels = data.train.answers
        order, begins = self._parts(seed, labels)
        parts = np.split(order, begins[1:-1])
        last = [float(np.mean(labels[part] >= LAST)) for part in parts]
        owners = np.empty(len(labels), np.int64)
        for owner, number in enumerate(np.argsort(last, kind="stable").tolist()):
            owners[parts[number]] = owner
        return replace(data, owners=owners)

    def _parts(self, seed: int, labels: NDArray) -> Parts:
        if self.concentration:
            return divide_by_shares(seed, labels, self.clients, self.concentration)
        return divide(seed, len(labels), self.clients)


@dataclass(frozen=True)
class Case:
    """A case of the tables.

    Args:
        description: in words.
        skewed: True if clients have different classes.
        devices: `alike`; `mixed`: speeds have nothing to do with data; `sorted`: the slowest have most of the last digits.
        sessions: True if clients come and go.
    """

    description: str
    skewed: bool
    devices: str
    sessions: bool = False

    def settings(self) -> dict[str, Any]:
        """Return what all runs of the case share, as a scenario has it."""
        return {
            "task": {
                "data": Owned(clients=CLIENTS, concentration=SKEW if self.skewed else 0.0),
                "model": {"name": "mlp", "hidden": [32]},
                "batch_size": 8,
                "division": "by-owner",
            },
            "cluster": self._cluster(),
            "stop": {"seconds": BUDGET},
            "evaluate": {"points": LOOKS, "target_error": TARGET},
        }

    def _cluster(self) -> dict[str, Any]:
        cluster = {
            "workers": CLIENTS,
            "compute": {"name": "lognormal", "median": STEP, "sigma": VARIES},
            "network": {"latency": {"name": "lognormal", "median": LATENCY, "sigma": 0.5}, "bandwidth": DOWNLOAD},
            "devices": {"kinds": kinds(self.devices), "assignment": "in-order"},
        }
        if self.sessions:
            absence = {"name": "exponential", "scale": OFFLINE}
            cluster["faults"] = [{"name": "crashes", "mean_up": ONLINE, "away": absence}]
        return cluster


def kinds(devices: str) -> list[dict[str, float]]:
    """Return the device of each client: speed, and bandwidth of its uplink, bytes/s. A slow device has a slow uplink.

    Args:
        devices: `alike`, `mixed` or `sorted`.
    """
    if devices == "alike":
        return [{"speed": 1.0, "upload": UPLOAD}] * CLIENTS
    factors = np.exp(SPREAD * stats.norm.ppf((np.arange(CLIENTS) + 0.5) / CLIENTS))[::-1]
    if devices == "mixed":
        factors = factors[np.random.default_rng(0).permutation(CLIENTS)]
    return [{"speed": float(f"{factor:.3g}"), "upload": float(f"{UPLOAD * factor:.3g}")} for factor in factors]


CASES = {
    "even": Case("even data, devices alike", False, "alike"),
    "skewed": Case("skewed data, devices alike", True, "alike"),
    "devices": Case("skewed data, devices differ", True, "mixed"),
    "slow-differ": Case("slow devices have the last digits", True, "sorted"),
    "sessions": Case("devices differ, clients come and go", True, "mixed", sessions=True),
}


_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
_PERIODS = (2, 5, 10, 20)
_CLIENTS = (5, 10, 20)
_ROUNDS: Knobs = {"rate": _RATES, "period": _PERIODS, "clients": _CLIENTS}
_BUFFER: Knobs = {"rate": _RATES, "period": _PERIODS, "buffer": (5, 10, 20), "server_rate": (0.5, 1.0, 2.0, 4.0)}
_OF_SERVER = ("server_rate", "mixing", "exponent")  # knobs of the algorithm; the others are the protocol's


@dataclass(frozen=True)
class System:
    """A system and its knobs.

    Args:
        description: whom the server asks, and whom it waits for.
        algorithm: its name.
        knobs: ordered values of each tuned setting, by name.
        protocol: fixed options of the protocol.
        rounds: True if the server asks a sample of the clients, round by round; else clients are always at work.
        at_work: largest number of clients at work at once, by case; empty: all.
    """

    description: str
    algorithm: str
    knobs: Knobs
    protocol: dict[str, Any] = field(default_factory=dict)
    rounds: bool = True
    at_work: Mapping[str, int] = field(default_factory=dict)

    def run(self, settings: Settings, case: str) -> dict[str, Any]:
        """Return a run, as a scenario has it.

        Args:
            settings: value of each knob.
            case: name of the case.
        """
        algorithm = {"name": self.algorithm, "learning_rate": settings["rate"]}
        algorithm |= {name: settings[name] for name in _OF_SERVER if name in settings}
        options = {name: value for name, value in settings.items() if name not in ("rate", *_OF_SERVER)}
        options |= {"concurrency": self.at_work[case]} if self.at_work else {}
        return {"algorithm": algorithm, "protocol": {**self.protocol, **options}}


BASE = "uniform"  # with which the others are compared
SYSTEMS = {
    BASE: System("a uniform sample; waits for all of it (FedAvg)", "fedavg", _ROUNDS),
    "spare": System("more than it needs; drops the last ones", "fedavg", {**_ROUNDS, "spare": (2, 5, 10)}),
    "deadline": System("a uniform sample; waits until a deadline", "fedavg", {**_ROUNDS, "deadline": (3.0, 6.0, 12.0, 24.0)}),
    "by speed": System("fast clients more often", "fedavg", _ROUNDS, protocol={"sampling": "speed"}),
    "by size": System(
        "clients with many examples more often", "fedavg", _ROUNDS, protocol={"sampling": "size", "weights": "equal"}
    ),
    "FedAdam": System("a uniform sample; Adam on the server", "fedadam", {**_ROUNDS, "server_rate": (0.01, 0.03, 0.1)}),
    "FedBuff": System("all, always; a step for each K arrivals", "fedbuff", _BUFFER, rounds=False),
    "FedAsync": System(
        "all, always; averages with each arrival",
        "fedasync",
        {"rate": _RATES, "period": _PERIODS, "mixing": (0.05, 0.1, 0.2, 0.4), "exponent": (0.0, 0.5, 1.0)},
        rounds=False,
    ),
    "FedCompass": System(
        "all, always; steps such that groups arrive together",
        "fedcompass",
        {"rate": _RATES, "period": (5, 10, 20, 40), "server_rate": (1.0, 3.0, 10.0)},
        rounds=False,
    ),
}
AS_MANY = "FedBuff, as many"  # a control: FedBuff with as many clients at work as the fastest rounds of the case ask
_AT_WORK = {"even": 10, "skewed": 10, "devices": 20, "slow-differ": 15, "sessions": 10}
CONTROL = System("as many as the fastest rounds ask", "fedbuff", _BUFFER, rounds=False, at_work=_AT_WORK)
_MEASURED = SYSTEMS | {AS_MANY: CONTROL}


def scores(case: str, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the time to the target [settings, seeds], s.

    A run that misses the target counts as its length, times one more than the logarithm of its error over the target.

    Args:
        case: name of the case.
        system: name of the system.
        points: settings.
        seeds: of the runs.
    """
    runs = {f"p{number}": _MEASURED[system].run(settings, case) for number, settings in enumerate(points)}
    shared = CASES[case].settings() | {"stop": {"seconds": BUDGET, "target_loss": TUNING_END}}
    result = fred.run(fred.scenario(shared, seeds=list(seeds), runs=runs))
    return np.array([[_score(result.outcome(name, seed).metrics) for seed in seeds] for name in runs])


def _score(metrics: pd.DataFrame) -> float:
    """Return the score of a run from its evaluations; its summary has the time to the loss at which it ends."""
    reached = metrics.loc[metrics["error"] <= TARGET, "virtual_seconds"]
    last = float(np.nan_to_num(metrics["error"].iloc[-1], nan=1.0))
    return float(reached.iloc[0]) if len(reached) else BUDGET * (1 + np.log(last / TARGET))


def report(case: str, system: str, points: Sequence[Settings], seeds: Sequence[int]) -> pd.DataFrame:
    """Return the measurements of a system in a case, a row for each setting and seed.

    Args:
        case: name of the case.
        system: name of the system.
        points: settings.
        seeds: of the runs.
    """
    runs = {f"p{number}": _MEASURED[system].run(settings, case) for number, settings in enumerate(points)}
    result = fred.run(fred.scenario(CASES[case].settings(), seeds=list(seeds), runs=runs))
    columns = ["seed", "target_seconds", "error", "loss", "gradients_computed", "gradients_applied", "messages_to_servers"]
    rows = result.summary.reindex(columns=columns).assign(setting=result.summary["name"].str[1:].astype(int))
    keys = zip(result.summary["name"], result.summary["seed"], strict=True)
    clients = pd.DataFrame([of_clients(result.by_worker(name, seed=seed)) for name, seed in keys], index=rows.index)
    return pd.concat([rows, clients], axis=1)


def of_clients(clients: pd.DataFrame) -> dict[str, float]:
    """Return the mean error of the final model over the clients, that of the worst tenth, and the share that took part.

    Args:
        clients: a row for each client.
    """
    worst = clients.nlargest(max(1, round(WORST * len(clients))), "error")
    return {
        "client_error": float(clients["error"].mean()),
        "worst_error": float(worst["error"].mean()),
        "took_part": float((clients["gradients"] > 0).mean()),
    }


COMPARISON = Comparison(
    STUDY,
    list(CASES),
    {name: system.knobs for name, system in _MEASURED.items()},
    scores,
    report,
    points=POINTS,
    finalists=FINALISTS,
    average=by_logarithm,
)
