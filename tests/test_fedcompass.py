"""FedCompass: its scheduler compared with another program, identities with FedAvg, and late clients."""

import heapq
import math
from typing import Any

import numpy as np
import pytest

import fred
from fred.base.errors import FredError
from fred.outcomes.outcome import Outcome
from fred.outcomes.sent_messages import messages
from fred.running.execution import execute
from fred.running.problem import Problem
from fred.schedule.schedule import Row, Schedule, Verb, What
from tests.draws import Draws
from tests.laws import check_laws
from tests.worlds import TASK, make_run

NETWORK = {"latency": {"name": "exponential", "scale": 0.05}, "bandwidth": 1e4, "server_bandwidth": 1e5}
SLOW = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 3.0, "slow_seconds": 2.0}
UNEQUAL = {"workers": 6, "speeds": [1, 1, 0.9, 0.6, 0.3, 0.1], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.3}}
Task = tuple[float, int]  # beginning (ns), local steps
Update = tuple[float, list[tuple[int, int]]]  # time (ns), clients with their staleness


def outcome(protocol: Any, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    options = {"stop": {"seconds": 30.0}, "task": None, "algorithm": "fedcompass", **options}
    protocol = {"name": "arrival-groups", **protocol}
    return execute("run", make_run(options.pop("algorithm"), protocol=protocol, cluster=cluster, **options), 3, inline)


def constant(*seconds: float, **options: Any) -> dict[str, Any]:
    return {"workers": len(seconds), "times": list(seconds), "compute": {"name": "constant", "seconds": 1.0}, **options}


class Compass:
    """The scheduler of APPFL, event by event, from the times of gradients and of messages alone."""

    def __init__(self, options: Any, gradients: list[list[int]], down: list[list[int]], up: list[list[int]]):
        self.q_min, self.q_max, self.factor = options.fewest, options.period, options.lateness
        self.momentum, self.first = 1 - options.decay, options.first or options.fewest
        self.gradients, self.down, self.up = (list(map(iter, each)) for each in (gradients, down, up))
        self.info: list[dict[str, Any]] = [{"stamp": 0} for _ in gradients]
        self.groups: dict[int, dict[str, Any]] = {}
        self.general: list[tuple[int, int]] = []  # clients and the stamps of their models
        self.events: list[tuple[float, int, str, int]] = []
        self.now: float = 0  # ns
        self.stamp, self.opened = 0, 0
        self.tasks: list[list[Task]] = [[] for _ in gradients]
        self.updates: list[Update] = []
        self.ends: list[tuple[float, int]] = []  # of groups, and their latest arrivals
        self.late = 0
        for client in range(len(gradients)):
            self.ask(client, -1, self.first)

    def run(self, end: int) -> None:
        """Go on until this time, ns."""
        while self.events and self.events[0][0] <= end:
            self.now, _, kind, number = heapq.heappop(self.events)
            self.timer(number) if kind == "timer" else self.arrival(number)

    def ask(self, client: int, group: int, steps: int) -> None:
        self.tasks[client].append((self.now, steps))
        self.info[client] |= {"goa": group, "steps": steps, "start": self.now, "stamp": self.stamp}
        computing = sum(next(self.gradients[client], math.inf) for _ in range(steps))  # never, if the run ends before
        moving = next(self.down[client], math.inf) + computing + next(self.up[client], math.inf)
        heapq.heappush(self.events, (self.now + moving, 1 + sum(map(len, self.tasks)), "arrival", client))

    def arrival(self, client: int) -> None:
        info = self.info[client]
        measured = (self.now - info["start"]) / info["steps"]
        info["speed"] = (1 - self.momentum) * info.get("speed", measured) + self.momentum * measured
        group = self.groups.get(info["goa"])
        if info["goa"] < 0:
            self.update([(client, info["stamp"])])
            self.assign(client)
        elif group is None or self.now > group["latest"]:
            self.general.append((client, info["stamp"]))
            self.late += 1
            self.assign(client)
        else:
            group["clients"].remove(client)
            group["arrived"].append((client, info["stamp"]))
            if not group["clients"]:
                self.aggregate(info["goa"])

    def timer(self, number: int) -> None:
        if number in self.groups:
            self.aggregate(number)

    def aggregate(self, number: int) -> None:
        group = self.groups.pop(number)
        self.ends.append((self.now, group["latest"]))
        arrived = group["arrived"]
        if arrived:
            self.update(self.general + arrived)
            self.general = []
        for client, _ in sorted(arrived, key=lambda each: self.info[each[0]]["speed"]):
            self.assign(client)

    def update(self, models: list[tuple[int, int]]) -> None:
        self.updates.append((self.now, [(client, self.stamp - stamp) for client, stamp in models]))
        self.stamp += 1

    def assign(self, client: int) -> None:
        speed, chosen, steps = self.info[client]["speed"], None, -1
        for number, group in self.groups.items():
            own = math.floor((group["expected"] - self.now) / speed)
            if self.q_min <= own <= self.q_max and own >= steps:
                chosen, steps = number, own
        if chosen is None:
            chosen, steps = self.opened, self.alone(speed)
            self.opened += 1
            end = steps * speed
            self.groups[chosen] = {"clients": [], "arrived": [], "expected": self.now + end}
            self.groups[chosen]["latest"] = self.now + math.ceil(end * self.factor)
            heapq.heappush(self.events, (self.groups[chosen]["latest"] + 1, 0, "timer", chosen))
        self.groups[chosen]["clients"].append(client)
        self.ask(client, chosen, steps)

    def alone(self, speed: float) -> int:
        steps = -1
        for group in self.groups.values():
            members = group["clients"] + [client for client, _ in group["arrived"]]
            fastest = min(self.info[member]["speed"] for member in members)
            own = math.floor((group["latest"] + fastest * self.q_max - self.now) / speed)
            if own <= self.q_max:
                steps = max(steps, own)
        return self.q_max if steps < 0 else max(steps, self.q_min)


def recorded(schedule: Schedule) -> tuple[list[list[Row]], list[list[list[Row]]], list[Update]]:
    """Of each client, the rows in which tasks begin, and those of their gradients; and the updates of the server."""
    begun: list[list[Row]] = [[] for _ in range(schedule.workers)]
    steps: list[list[list[Row]]] = [[] for _ in range(schedule.workers)]
    updates, joined = list[Update](), list[tuple[int, int]]()
    for row in schedule:
        if row.verb == Verb.PULL and row.replica == 1:
            begun[row.worker].append(row)
        elif row.verb == Verb.SYNC:
            steps[row.worker].append([])
        elif row.verb == Verb.PUSH:
            steps[row.worker][-1].append(row)
        elif row.verb == Verb.ADD:
            joined.append((row.worker, row.staleness))
        elif row.verb == Verb.COMMIT:
            updates.append((row.time_ns, joined))
            joined = []
    return begun, steps, updates


def simulated(found: Outcome) -> Compass:
    """The same run by the other program, which takes only the times of gradients and messages from the schedule."""
    begun, steps, _ = recorded(found.schedule)
    gradients = [[row.end_ns - row.begin_ns for task in own for row in task] for own in steps]
    down = [[row.end_ns - row.begin_ns for row in own] for own in begun]
    up = [[task[-1].time_ns - task[-1].end_ns for task in own] for own in steps]
    compass = Compass(found.run.protocol, gradients, down, up)
    compass.run(found.schedule.end_ns)
    return compass


def assert_the_same(found: Outcome, compass: Compass) -> None:
    begun, steps, updates = recorded(found.schedule)
    assert compass.updates == updates and len(updates) > 5
    for pulls, made, tasks in zip(begun, steps, compass.tasks, strict=True):
        assert [time for time, _ in tasks] == [row.time_ns for row in pulls]
        assert [number for _, number in tasks[: len(made)]] == [len(task) for task in made]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"period": 10}, {}),
    "tight": ({"period": 20, "least": 1, "lateness": 1.0, "decay": 0.5, "first": 7}, {}),
    "wide": ({"period": 5, "least": 5, "lateness": 3.0, "decay": 0.0}, {}),
    "network": ({"period": 12, "lateness": 1.2}, {"network": NETWORK}),
    "contention": ({"period": 12, "lateness": 1.1}, {"network": NETWORK, "contention": [SLOW]}),
}


@pytest.mark.parametrize("name", CASES)
def test_another_program_finds_the_same_tasks_and_updates(name):
    protocol, cluster = CASES[name]
    found = outcome(protocol, {**UNEQUAL, **cluster}, stop={"seconds": 100.0})
    check_laws(found)
    compass = simulated(found)
    assert_the_same(found, compass)
    assert (compass.late > 0) == (name != "wide"), "Q_min = Q_max and long waits"


@pytest.mark.parametrize("seed", range(12))
def test_another_program_finds_the_same_with_random_options(seed):
    draws = Draws(seed)
    period, known_first = draws.between(1, 25), draws.between(1, 30)
    protocol = {"period": period, "least": draws.between(1, period), "first": draws.one(None, known_first)}
    protocol |= {"lateness": draws.one(1.0, draws.real(1.0, 4.0)), "decay": draws.one(0.0, draws.real(0.0, 0.95))}
    compute = {"name": "lognormal", "median": 0.1, "sigma": draws.real(0.05, 1.5)}
    speeds = [draws.real(0.1, 3.0) for _ in range(draws.between(1, 9))]
    cluster = {"workers": len(speeds), "speeds": speeds, "compute": compute, "network": draws.one(None, NETWORK)}
    found = outcome(protocol, cluster, stop={"seconds": 60.0})
    check_laws(found)
    assert_the_same(found, simulated(found))


def alike(protocol: dict[str, Any], **options: Any) -> Outcome:
    network = {"latency": {"name": "constant", "seconds": 0.03}}
    return outcome(protocol, constant(*[0.1] * 5, network=network), task=TASK, stop={"updates": 160}, **options)


def moved(found: Outcome) -> list[int]:
    return found.schedule["time_ns"][found.schedule.rows(Verb.COMMIT)].tolist()


def test_clients_alike_are_fedavg_to_the_last_bit():
    groups = alike({"period": 3, "least": 3, "speeds": "known", "lateness": 2.0})
    rounds = alike({"name": "client-rounds", "period": 3}, algorithm="fedavg")
    assert moved(groups) == moved(rounds) and len(moved(groups)) == 10
    assert groups.params_digest == rounds.params_digest
    averaged = alike({"period": 3, "least": 3, "speeds": "known", "lateness": 2.0}, algorithm="fedavg")
    assert averaged.params_digest == rounds.params_digest


def test_clients_alike_whose_speed_is_measured_are_always_together():
    found = alike({"period": 3, "least": 3, "lateness": 1.0})
    _, steps, updates = recorded(found.schedule)
    turn = 0.36e9  # 0.03 s, three steps, 0.03 s
    assert moved(found) == [turn] * 5 + [turn * n for n in range(2, len(updates) - 3)]
    assert {len(task) for own in steps for task in own[:-1]} == {3}
    assert [joined for _, joined in updates[6:]] == [[(client, 0) for client in range(5)]] * (len(updates) - 6)


def test_clients_make_as_many_steps_as_they_are_fast():
    found = outcome({"period": 20, "least": 2}, constant(0.1, 0.2, 0.4, 1.0))
    _, steps, updates = recorded(found.schedule)
    assert [len(own[-1]) for own in steps] == [20, 10, 5, 2]
    assert {client for client, _ in updates[-1][1]} == {0, 1, 2, 3}
    rows = found.schedule.rows(Verb.ADD)
    waited = found.schedule["time_ns"][rows] - found.schedule["end_ns"][rows]
    assert not waited[-4:].any(), "they arrive at the same time"


@pytest.mark.parametrize("times", [(0.1, 0.13, 0.37, 0.9), (0.1, 0.11, 0.12, 0.19, 3.0)])
def test_with_constant_times_nobody_waits_for_the_time_of_a_step(times):
    found = outcome({"period": 10}, constant(*times), stop={"seconds": 60.0})
    sent = messages(found.schedule)
    sent = sent[sent["way"].eq("to servers") & sent["arrived"]]
    used = found.schedule["time_ns"][sent["row"]]
    waited, own = used - sent["end_ns"], np.array(times)[sent["sender"]] * 1e9
    assert (waited < own).all() and (waited > 0).sum() > 10
    assert (sent["end_ns"] == sent["begin_ns"]).all(), "messages take no time"


@pytest.mark.parametrize("lateness", [1.0, 1.3, 2.0])
def test_nobody_waits_longer_than_until_the_latest_arrival(lateness):
    found = outcome({"period": 10, "lateness": lateness}, UNEQUAL, stop={"seconds": 60.0})
    compass = simulated(found)
    assert all(end <= latest + 1 for end, latest in compass.ends)
    late = sum(end == latest + 1 for end, latest in compass.ends)
    assert late > 5 if lateness < 2.0 else not late


def test_a_late_pseudo_gradient_counts_in_the_next_group_and_its_client_goes_on_at_once():
    away = [{"name": "outage", "workers": [2], "begin": 1.0, "end": 6.25}]
    found = outcome({"period": 4, "least": 4, "first": 4}, constant(0.1, 0.1, 0.1, faults=away), stop={"seconds": 8.0})
    begun, steps, updates = recorded(found.schedule)
    assert [round(task[-1].time_ns / 1e9, 6) for task in steps[2]][:3] == [0.4, 0.8, 6.45]
    assert begun[2][3].time_ns == 6.45e9
    number = next(n for n, (time, _) in enumerate(updates) if time > 6.45e9)
    assert updates[number][1][0] == (2, number - 4), "it had read the model after four updates"
    waiting = {client for _, joined in updates[5:number] for client, _ in joined}
    assert waiting == {0, 1} and updates[4][0] == 1.4e9 + 1, "the others waited until the latest arrival"


def test_time_in_a_group_is_waiting_and_not_sending():
    found = outcome({"period": 10, "lateness": 3.0}, {**UNEQUAL, "network": {"bandwidth": 1e6, "message_bytes": 1e4}})
    sent = messages(found.schedule)
    up = sent[sent["way"].eq("to servers") & sent["arrived"]]
    assert ((up["end_ns"] - up["begin_ns"]) == 0.01e9).all()
    held = found.schedule.intervals.only(What.SENDING)
    assert (held.row[:-6] >= 0).all() and len(held.row) > 30
    account = fred.spans(found.schedule)
    shares = (account["end_ns"] - account["begin_ns"]).groupby(account["kind"], observed=False).sum()
    assert shares["waiting"] > 3 * shares["network"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period": 3, "least": 4}, r"`least` \(4\) must not exceed `period` \(3\)"),
        ({"first": 2, "speeds": "known"}, "`first` needs `speeds: measured`"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, message):
    with pytest.raises(FredError, match=message):
        outcome(options)


def test_the_weight_of_a_client_is_its_share_of_all_examples():
    task = {**TASK, "division": "by-quantity", "concentration": 0.5}
    found = outcome({"period": 5, "weights": "size"}, task=task, stop={"gradients": 150})
    assert found.run.task is not None
    sizes = np.array(Problem(found.run.task, found.run, 3).sizes.examples)
    schedule = found.schedule
    adds, commits = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
    assert (schedule["weight"][commits] == 1 / 6).all() and sizes.max() > 2 * sizes.min()
    assert np.allclose(schedule["weight"][adds] / 6, (sizes / sizes.sum())[schedule["worker"][adds]])
