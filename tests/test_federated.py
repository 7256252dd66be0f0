"""Federated systems: rounds of sampled clients, and FedCompass, whose scheduler is compared with another program."""

import heapq
import math
from typing import Any

import numpy as np
import pytest

import fred
from fred import Cluster, FredError
from fred.learning.data.dataset import loaded
from fred.outcomes.outcome import Outcome
from fred.protocols.client_rounds import ClientRounds
from fred.running import checks
from fred.running.execution import check
from fred.running.model_training import Problem
from fred.running.recording import Recording
from fred.schedule.minibatches import divide
from fred.schedule.schedule import Row, Schedule, Verb, What
from fred.schedule.traffic import messages
from tests.draws import Draws
from tests.laws import check_laws
from tests.recompute import measure
from tests.worlds import TASK, constant, make_run, mostly_slow, outcome, record

SIX = {"workers": 6, "speeds": [1, 1, 1, 0.5, 0.3, 2], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}


def rounds(**options: Any) -> dict[str, Any]:
    return {"name": "client-rounds", **options}


def times(schedule: Schedule) -> list[int]:
    return schedule["time_ns"][schedule.rows(Verb.COMMIT)].tolist()


def test_fedavg_with_one_step_is_synchronous_sgd_and_spare_clients_are_backup_workers():
    backup = {"name": "synchronous", "backup_workers": 2, "late": "interrupt"}
    for federated, updates, synchronous in (({}, 7 * 20, "synchronous"), ({"clients": 4, "spare": 2}, 5 * 20, backup)):
        fedavg = outcome("fedavg", rounds(period=1, **federated), SIX, stop={"updates": updates})
        ssgd = outcome("ssgd", synchronous, SIX, stop={"updates": 20})
        assert times(fedavg.schedule) == times(ssgd.schedule)
        assert all(np.allclose(fedavg.final[k], ssgd.final[k], rtol=1e-5, atol=1e-6) for k in ssgd.final)
        counts, reference = fedavg.schedule.counts(), ssgd.schedule.counts()
        assert {**counts, "updates": 0} == {**reference, "updates": 0}
        assert (counts["dropped"] > 20) == ("spare" in federated)


def sample_clients(protocol: ClientRounds, cluster: Cluster, seconds: float = 400.0) -> list[int]:
    schedule = record(protocol, cluster, seconds=seconds)
    return schedule["worker"][schedule.rows(Verb.ADD)].tolist()


@pytest.mark.slow
def test_samples_are_uniform_or_in_proportion_to_speed_and_have_nobody_twice():
    cluster = Cluster(workers=10, speeds=[1.0] * 5 + [3.0] * 5, compute={"name": "constant", "seconds": 0.3})
    for sampling, expected in (("uniform", 0.5), ("speed", 0.75)):
        clients = sample_clients(ClientRounds(clients=1, period=1, sampling=sampling), cluster)
        assert abs(np.mean(np.array(clients) >= 5) - expected) < 4 * np.sqrt(0.25 / len(clients)), sampling
    four = np.array(sample_clients(ClientRounds(clients=4, period=1), cluster)[:4000]).reshape(-1, 4)
    assert (np.diff(np.sort(four)) > 0).all() and len(np.unique(four)) == 10


def test_the_size_of_a_client_is_the_number_of_its_examples():
    task = {**TASK, "division": "dirichlet", "concentration": 0.2}
    run = make_run("fedavg", protocol=rounds(clients=2, sampling="size", work="size", period=6), cluster=SIX, task=task)
    assert run.task is not None
    problem = Problem(run.task, run, 3)
    sizes = np.array(problem.sizes.examples)
    assert sizes.sum() == len(problem.data.train) and sizes.max() > 2 * sizes.min()
    schedule = Recording(run, 3, problem.sizes).schedule()
    clients, pushed = (schedule["worker"][schedule.rows(verb)] for verb in (Verb.ADD, Verb.PUSH))
    turns = np.split(pushed, np.flatnonzero(np.diff(schedule.rows(Verb.PUSH)) > 2) + 1)[:-1]
    steps = np.maximum(1, np.rint(6 * sizes / sizes.mean()))
    assert [(turn[0], len(turn)) for turn in turns] == [(client, steps[client]) for client in clients[: len(turns)]]
    adds, weights = schedule.rows(Verb.ADD), schedule["weight"]
    assert weights[adds].tolist() == (sizes / sizes.mean())[clients].tolist()
    for commit in schedule.rows(Verb.COMMIT):
        assert weights[commit] * weights[adds[adds < commit][-2:]].sum() == pytest.approx(1), "a mean"


def test_a_round_ends_at_its_deadline_but_waits_for_its_minimum():
    cluster = Cluster(workers=4, speeds=[1, 1 / 2, 1 / 3, 1 / 10])
    for minimum, ends in ((1, 2.5), (3, 3.0), (4, 10.0)):
        schedule = record(ClientRounds(period=1, deadline=2.5, minimum=minimum), cluster, seconds=11)
        assert times(schedule)[0] == ends * 1e9, minimum
    late = record(ClientRounds(period=1, deadline=2.5, late="finish"), cluster, seconds=4)
    drops = late.rows(Verb.DROP)
    assert late["worker"][drops].tolist() == [2, 2] and late["time_ns"][drops].tolist() == [3e9, 3e9], "wasted"
    pulls = late.rows(Verb.PULL)
    restarted = late["worker"][pulls[(late["time_ns"][pulls] == 2.5e9) & (late["messages"][pulls] > 0)]]
    assert restarted.tolist() == [0, 1], "late clients are busy"


def test_only_available_clients_are_sampled_and_the_server_waits_for_enough():
    outages = [{"name": "outage", "workers": [0, 1], "begin": 0.0, "end": 50.0}]
    cluster = Cluster(workers=4, compute={"name": "constant", "seconds": 1.0}, faults=outages)
    assert set(sample_clients(ClientRounds(clients=2, period=1), cluster, seconds=49.5)) == {2, 3}
    waiting = record(ClientRounds(clients=3, period=1, minimum=3), cluster, seconds=60)
    assert times(waiting)[0] == 51e9


def test_steps_of_late_clients_are_not_computed_and_no_model_is_held_for_a_client():
    cluster = {**SIX, "workers": 400, "speeds": []}
    run = make_run("fedavg", protocol=rounds(clients=3, spare=30, period=5), cluster=cluster, task=None)
    schedule = Recording(run, 3).schedule()
    counts = schedule.counts()
    assert counts["dropped"] > 5 * counts["gradients"] / 3
    assert schedule.replicas == 2 and len(schedule.rows(Verb.PUSH)) == counts["gradients"]
    layout = fred.Layout.clients()
    assert layout.local(2) and layout.local(1000) and not layout.models_only(2)


def test_each_client_has_a_loss_and_an_error_of_its_own():
    for division in ("by-quantity", "by-label", None):
        task = TASK if division is None else {**TASK, "division": division}
        run = make_run("fedavg", protocol=rounds(clients=2, spare=2, period=3), task=task, cluster=SIX, stop={"updates": 61})
        result = fred.run(fred.scenario({"runs": {"fedavg": run.model_dump()}}))
        frame, single = result.by_worker("fedavg"), result.outcome("fedavg")
        counts, pushed = single.schedule.counts(), single.schedule["worker"][single.schedule.rows(Verb.PUSH)]
        assert frame["dropped"].sum() == counts["dropped"] > 0
        assert frame["gradients"].tolist() == np.bincount(pushed, minlength=6).tolist()
        if division is None:
            assert list(frame) == ["worker", "gradients", "dropped"]
            continue
        assert run.task is not None
        data = loaded(run.task.data, 0).train
        for name, value in zip(("loss", "error"), measure(single.final, data.inputs, data.answers), strict=True):
            assert np.average(frame[name], weights=frame["examples"]) == pytest.approx(value, rel=1e-5)
        if division == "by-label":
            part = divide(0, len(data), 6, data.answers).order[: frame["examples"][0]]
            assert frame["error"][0] == pytest.approx(measure(single.final, data.inputs[part], data.answers[part])[1])


def test_memories_that_do_not_fit_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(checks, "machine_memory", lambda: 5000.0)
    cluster = {"workers": 40}
    check("run", make_run("fedavg", cluster=cluster), 0)
    with pytest.raises(FredError, match=r"`scaffold` stores 0.0 MB for each of 40 workers, .*; use a smaller model"):
        check("run", make_run("scaffold", cluster=cluster), 0)


NETWORK = {"latency": {"name": "exponential", "scale": 0.05}, "bandwidth": 1e4, "server_bandwidth": 1e5}
SLOW = {"name": "markov-switching", "slowdown": 4.0, "fast_seconds": 3.0, "slow_seconds": 2.0}
SPREAD = {"workers": 6, "speeds": [1, 1, 0.9, 0.6, 0.3, 0.1], "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.3}}
Task = tuple[float, int]  # beginning (ns), local steps
Update = tuple[float, list[tuple[int, int]]]  # time (ns), clients with their staleness


def run_grouped(protocol: dict[str, Any], cluster: Any = SPREAD, algorithm: str = "fedcompass", **options: Any) -> Outcome:
    options = {"stop": {"seconds": 30.0}, "task": None, **options}
    return outcome({"name": algorithm, "learning_rate": 0.1}, {"name": "arrival-groups", **protocol}, cluster, **options)


class Compass:
    """The scheduler of APPFL, event by event, from the times of gradients and of messages alone."""

    def __init__(self, options: Any, gradients: list[list[int]], down: list[list[int]], up: list[list[int]]):
        self.q_min, self.q_max, self.factor = options.fewest, options.period, options.lateness
        self.momentum, self.first = 1 - options.decay, options.first or options.fewest
        self.gradients, self.down, self.up = (list(map(iter, times)) for times in (gradients, down, up))
        self.info: list[dict[str, Any]] = [{"stamp": 0} for _ in gradients]
        self.groups: dict[int, dict[str, Any]] = {}
        self.general: list[tuple[int, int]] = []  # clients and the stamps of their models
        self.events: list[tuple[float, int, str, int]] = []
        self.now: float = 0  # ns
        self.stamp, self.opened = 0, 0
        self.tasks: list[list[Task]] = [[] for _ in gradients]
        self.updates: list[Update] = []
        self.late = 0
        for client in range(len(gradients)):
            self.ask(client, -1, self.first)

    def run(self, end: int) -> None:
        while self.events and self.events[0][0] <= end:
            self.now, _, kind, number = heapq.heappop(self.events)
            self.aggregate(number) if kind == "timer" else self.arrival(number)

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

    def aggregate(self, number: int) -> None:
        arrived = self.groups.pop(number, {"arrived": []})["arrived"]
        if arrived:
            self.update(self.general + arrived)
            self.general = []
        for client, _ in sorted(arrived, key=lambda arrival: self.info[arrival[0]]["speed"]):
            self.assign(client)

    def update(self, models: list[tuple[int, int]]) -> None:
        self.updates.append((self.now, [(client, self.stamp - stamp) for client, stamp in models]))
        self.stamp += 1

    def assign(self, client: int) -> None:
        speed, group_number, steps = self.info[client]["speed"], None, -1
        for number, group in self.groups.items():
            affordable = math.floor((group["expected"] - self.now) / speed)
            if self.q_min <= affordable <= self.q_max and affordable >= steps:
                group_number, steps = number, affordable
        if group_number is None:
            group_number, steps = self.opened, self.count_steps(speed)
            self.opened += 1
            end = steps * speed
            self.groups[group_number] = {"clients": [], "arrived": [], "expected": self.now + end}
            self.groups[group_number]["latest"] = self.now + math.ceil(end * self.factor)
            heapq.heappush(self.events, (self.groups[group_number]["latest"] + 1, 0, "timer", group_number))
        self.groups[group_number]["clients"].append(client)
        self.ask(client, group_number, steps)

    def count_steps(self, speed: float) -> int:
        steps = -1
        for group in self.groups.values():
            members = group["clients"] + [client for client, _ in group["arrived"]]
            fastest = min(self.info[member]["speed"] for member in members)
            affordable = math.floor((group["latest"] + fastest * self.q_max - self.now) / speed)
            if affordable <= self.q_max:
                steps = max(steps, affordable)
        return self.q_max if steps < 0 else max(steps, self.q_min)


def read_schedule(schedule: Schedule) -> tuple[list[list[Row]], list[list[list[Row]]], list[Update]]:
    pulls, updates, adds = [list[Row]() for _ in range(schedule.workers)], list[Update](), list[tuple[int, int]]()
    steps: list[list[list[Row]]] = [[] for _ in range(schedule.workers)]
    for row in schedule:
        if row.verb == Verb.PULL and row.replica == 1:
            pulls[row.worker].append(row)
        elif row.verb == Verb.SYNC:
            steps[row.worker].append([])
        elif row.verb == Verb.PUSH:
            steps[row.worker][-1].append(row)
        elif row.verb == Verb.ADD:
            adds.append((row.worker, row.staleness))
        elif row.verb == Verb.COMMIT:
            updates.append((row.time_ns, adds))
            adds = []
    return pulls, steps, updates


def check_against_other_program(single: Outcome) -> Compass:
    check_laws(single)
    pulls_of, steps, updates = read_schedule(single.schedule)
    gradients = [[row.end_ns - row.begin_ns for task in tasks for row in task] for tasks in steps]
    down = [[row.end_ns - row.begin_ns for row in pulls] for pulls in pulls_of]
    up = [[task[-1].time_ns - task[-1].end_ns for task in tasks] for tasks in steps]
    compass = Compass(single.run.protocol, gradients, down, up)
    compass.run(single.schedule.end_ns)
    assert compass.updates == updates and len(updates) > 5
    for pulls, gradients, tasks in zip(pulls_of, steps, compass.tasks, strict=True):  # type: ignore[assignment]
        assert [time for time, _ in tasks] == [row.time_ns for row in pulls]
        assert [number for _, number in tasks[: len(gradients)]] == [len(task) for task in gradients]
    return compass


def test_another_program_finds_the_same_tasks_and_updates():
    for protocol, cluster in (
        ({"period": 20, "least": 1, "lateness": 1.0, "decay": 0.5, "first": 7}, {}),
        ({"period": 5, "least": 5, "lateness": 3.0, "decay": 0.0}, {}),
        ({"period": 12, "lateness": 1.1}, {"network": NETWORK, "contention": [SLOW]}),
    ):
        compass = check_against_other_program(run_grouped(protocol, {**SPREAD, **cluster}, stop={"seconds": 60.0}))
        assert (compass.late > 0) == (protocol["lateness"] < 3), "Q_min = Q_max and long waits"


@pytest.mark.parametrize("seed", mostly_slow(range(12), range(4)))
def test_another_program_finds_the_same_with_random_options(seed):
    draws = Draws(seed)
    period, first = draws.integer(1, 25), draws.integer(1, 30)
    protocol = {"period": period, "least": draws.integer(1, period), "first": draws.choose(None, first)}
    protocol |= {"lateness": draws.choose(1.0, draws.real(1.0, 4.0)), "decay": draws.choose(0.0, draws.real(0.0, 0.95))}
    compute = {"name": "lognormal", "median": 0.1, "sigma": draws.real(0.05, 1.5)}
    speeds = [draws.real(0.1, 3.0) for _ in range(draws.integer(1, 9))]
    cluster = {"workers": len(speeds), "speeds": speeds, "compute": compute, "network": draws.choose(None, NETWORK)}
    check_against_other_program(run_grouped(protocol, cluster, stop={"seconds": 60.0}))


def test_clients_alike_are_fedavg_to_the_last_bit():
    options: dict[str, Any] = {"task": TASK, "stop": {"updates": 160}}
    cluster = constant(*[0.1] * 5, network={"latency": {"name": "constant", "seconds": 0.03}})
    settings = {"period": 3, "least": 3, "speeds": "known", "lateness": 2.0}
    groups, averaged = (run_grouped(settings, cluster, name, **options) for name in ("fedcompass", "fedavg"))
    usual = run_grouped({"name": "client-rounds", "period": 3}, cluster, "fedavg", **options)
    assert times(groups.schedule) == times(usual.schedule) and len(times(groups.schedule)) == 10
    assert groups.params_digest == averaged.params_digest == usual.params_digest


def test_a_late_pseudo_gradient_counts_in_the_next_group_and_its_client_goes_on_at_once():
    outages = [{"name": "outage", "workers": [2], "begin": 1.0, "end": 6.25}]
    options, cluster = {"period": 4, "least": 4, "first": 4}, constant(0.1, 0.1, 0.1, faults=outages)
    pulls, steps, updates = read_schedule(run_grouped(options, cluster, stop={"seconds": 8.0}).schedule)
    assert [round(task[-1].time_ns / 1e9, 6) for task in steps[2]][:3] == [0.4, 0.8, 6.45]
    assert pulls[2][3].time_ns == 6.45e9
    number = next(n for n, (time, _) in enumerate(updates) if time > 6.45e9)
    assert updates[number][1][0] == (2, number - 4), "it had read the model after four updates"
    waiting = {client for _, members in updates[5:number] for client, _ in members}
    assert waiting == {0, 1} and updates[4][0] == 1.4e9 + 1, "the others waited until the latest arrival"


def test_time_in_a_group_is_waiting_and_not_sending():
    network = {"bandwidth": 1e6, "message_bytes": 1e4}
    schedule = run_grouped({"period": 10, "lateness": 3.0}, {**SPREAD, "network": network}).schedule
    sent = messages(schedule)
    up = sent[sent["way"].eq("to servers") & sent["arrived"]]
    assert ((up["end_ns"] - up["begin_ns"]) == 0.01e9).all()
    rows = schedule.intervals.select(What.SENDING).row
    assert (rows[:-6] >= 0).all() and len(rows) > 30
    account = fred.spans(schedule)
    shares = (account["end_ns"] - account["begin_ns"]).groupby(account["kind"], observed=False).sum()
    assert shares["waiting"] > 3 * shares["network"] > 0


def test_options_that_do_not_fit_together_are_refused():
    for name, options, message in (
        ("client-rounds", {"clients": 3, "spare": 2}, "samples 5 clients"),
        ("client-rounds", {"clients": 2, "minimum": 3}, r"`minimum` \(3\) must be at most"),
        ("arrival-groups", {"period": 3, "least": 4}, r"`least` \(4\) must not exceed `period` \(3\)"),
        ("arrival-groups", {"first": 2, "speeds": "known"}, "`first` needs `speeds: measured`"),
    ):
        with pytest.raises(FredError, match=message):
            make_run("fedcompass", protocol={"name": name, **options})


def test_the_weight_of_a_client_is_its_share_of_all_examples():
    task = {**TASK, "division": "by-quantity", "concentration": 0.5}
    protocol = {"name": "arrival-groups", "period": 5, "weights": "size"}
    run = make_run("fedcompass", protocol=protocol, cluster=SPREAD, task=task, stop={"gradients": 150})
    assert run.task is not None
    sizes = Problem(run.task, run, 3).sizes
    examples, schedule = np.array(sizes.examples), Recording(run, 3, sizes).schedule()
    adds, commits = schedule.rows(Verb.ADD), schedule.rows(Verb.COMMIT)
    assert (schedule["weight"][commits] == 1 / 6).all() and examples.max() > 2 * examples.min()
    assert np.allclose(schedule["weight"][adds] / 6, (examples / examples.sum())[schedule["worker"][adds]])
