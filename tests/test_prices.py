"""Costs and energy: closed forms, interval by interval recomputed, and the same however a run is computed or stored."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fred
from fred import Cluster, FredError, Schedule, Verb
from fred.cluster.costs import spent
from fred.diagnosis import question, ranking
from fred.diagnosis.answer_page import picture
from fred.diagnosis.question import COST, ENERGY, TIME, Candidate
from fred.diagnosis.ranking import Place, Ranking, compare_spent
from fred.outcomes.comparisons import trade_off
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from fred.running.recording import Timing
from fred.schedule.schedule import What
from tests.planning import limit_points, plan
from tests.program import fred_command
from tests.worlds import CLUSTERS, COMPUTE, PROTOCOLS, fitting_protocol, make_run, record

SECOND = {"name": "constant", "seconds": 1.0}
HOUR = 3600 * 10**9  # ns


def run_timed(algorithm: str, cluster: dict[str, Any], seconds: float, **options: Any) -> fred.Result:
    settings = {"cluster": cluster, "stop": {"seconds": seconds}, "algorithm": {"name": algorithm, "learning_rate": 0.1}}
    return fred.run(fred.scenario(settings, **options))


def test_kinds_and_regions():
    """Two groups over two regions: a price for each pair, of which the last entry that fits counts."""
    regions = {"bandwidth": [[1e9, 1e9], [1e9, 1e9]], "workers": [0, 1, 0, 1], "servers": [1, 0, 1]}
    entries = [{"per_hour": 1}, {"per_hour": 2, "regions": [1]}, {"per_hour": 4, "groups": [1]}]
    entries.append({"per_hour": 8, "groups": [1], "regions": [1]})
    prices = {"workers": entries, "servers": [{"per_hour": 16, "regions": [0]}, {"per_hour": 32, "regions": [1]}]}
    groups = [{"workers": 2}, {"workers": 2, "speed": 2.0}]
    network = {"regions": regions, "message_bytes": 1}
    cluster = {"groups": groups, "servers": 3, "compute": SECOND, "network": network, "prices": prices}
    cost = run_timed("asgd", cluster, 3600).outcomes[0].summary["cost"]
    assert (cost["workers"], cost["servers"], cost["total"]) == pytest.approx((1 + 2 + 4 + 8, 32 + 16 + 32, 95))


class TestTrafficBetweenRegions:
    BANDWIDTH = [[1e9, 1e8, 1e7], [1e8, 1e9, 1e8], [1e7, 1e8, 1e9]]
    TABLE = np.array([[1.0, 20.0, 300.0], [40.0, 5.0, 600.0], [700.0, 80.0, 9.0]])

    def traffic(
        self, algorithm: str, per_gb: Any = None, number: int = 1, protocol: Any = None, **regions: Any
    ) -> tuple[float, Schedule]:
        """Return the price of a run's traffic, in thousandths, with messages of 1 MB, and its schedule."""
        network = {"regions": {"bandwidth": self.BANDWIDTH, **regions}, "message_bytes": 1_000_000}
        cluster = {"workers": 6, "servers": number, "compute": SECOND, "network": network}
        cluster["prices"] = {"per_gb": self.TABLE.tolist() if per_gb is None else per_gb}
        outcome = outcome_of(algorithm, protocol=protocol, stop={"seconds": 40}, cluster=cluster)
        return outcome.summary["cost"]["traffic"] * 1000, outcome.schedule

    @pytest.mark.parametrize("servers", [[1], [0, 2]])
    def test_with_servers_which_each_have_a_part(self, servers):
        price, schedule = self.traffic("asgd", number=len(servers), servers=servers)
        pulls, pushes = (np.bincount(schedule["worker"][schedule.rows(verb)], minlength=6) for verb in (Verb.PULL, Verb.PUSH))
        down, up = self.TABLE[servers].mean(axis=0), self.TABLE[:, servers].mean(axis=1)
        assert price == pytest.approx(sum(pulls[w] * down[w // 2] + pushes[w] * up[w // 2] for w in range(6)), rel=1e-9)

    def test_with_servers_that_hold_blocks_or_serve_regions(self):
        for algorithm, protocol, servers, server_of in (
            ("asgd", {"name": "asynchronous", "clocks": "each"}, [0, 2], lambda row: (0, 2)[row.block]),
            ("halos", None, [0, 1, 2, 0], lambda row: 0 if row.replica == 9 else row.worker // 2),  # 9: on the global server
        ):
            price, schedule = self.traffic(algorithm, None, len(servers), protocol, servers=servers)
            expected = 0.0
            for row in (row for row in schedule if row.bytes):
                server, worker = server_of(row), row.worker // 2
                expected += (
                    row.bytes / 1e6 * (self.TABLE[server, worker] if row.verb == Verb.PULL else self.TABLE[worker, server])
                )
            assert price == pytest.approx(expected, rel=1e-9)

    def test_a_number_is_the_price_between_regions(self):
        price, schedule = self.traffic("asgd", per_gb=2.0)
        verbs = schedule.rows(Verb.PULL, Verb.PUSH)
        assert price == pytest.approx(2.0 * (schedule["worker"][verbs] >= 2).sum(), rel=1e-9)

    def test_rings_and_trees(self):
        """A ring of six passes three links inside regions; three trees of two and a ring of three send 2 x 3 + 2 x 2 models."""
        orders = [(0, 1, 2), (0, 2, 1)]  # with symmetric bandwidths both are as fast
        boundaries = [sum(self.TABLE[a, b] for a, b in zip(order, order[1:] + order[:1], strict=True)) for order in orders]
        two_levels = {"collective": "hierarchical"}
        for regions, inside, outside, rel in (({}, 15 / 6, 1 / 6, 1e-9), (two_levels, 3, 4 / 30, 1e-6)):
            price, schedule = self.traffic("allreduce-sgd", None, 1, None, **regions)
            megabytes = schedule["bytes"].sum() / 1e6
            assert any(price == pytest.approx(megabytes * (inside + outside * links), rel=rel) for links in boundaries)

    def test_models_between_workers_by_sender_and_receiver(self):
        price, schedule = self.traffic("ad-psgd")
        trips = schedule.intervals.select(What.TRIP)
        expected = np.zeros(len(schedule))
        for row, sender, receiver in zip(trips.row, trips.worker, trips.other, strict=True):
            copies = (trips.row == row).sum()
            expected[row] += schedule["bytes"][row] / copies / 1e6 * self.TABLE[sender // 2, receiver // 2]
        late = np.flatnonzero((schedule["bytes"] > 0) & ~np.isin(np.arange(len(schedule)), trips.row))  # not yet sent
        assert len(late) <= 6
        expected[late] = [self.TABLE[worker // 2].mean() for worker in schedule["worker"][late]]
        assert price == pytest.approx(expected.sum(), rel=1e-9)


def inside(intervals: list[tuple[int, int]], points: np.ndarray) -> np.ndarray:
    """Return whether each stretch between two neighbouring points is inside an interval."""
    changes = np.zeros(len(points) + 1, int)
    for ends, change in zip(np.array(intervals, int).reshape(-1, 2).T, (1, -1), strict=True):
        np.add.at(changes, np.searchsorted(points, np.clip(ends, 0, points[-1])), change)
    return changes.cumsum()[: len(points) - 1] > 0


CRASHES = {"name": "crashes", "mean_up": 3.0, "away": {"name": "constant", "seconds": 1.0}}
SESSIONS = {"name": "sessions", "sessions": [[[0, 2], [3, 4]], [[1, 9]]], "length": 9.5}
OUTAGE = {"name": "outage", "workers": [0], "begin": 0.5, "end": 3.0}
FAULTS = st.sampled_from([[], [CRASHES], [SESSIONS], [OUTAGE, CRASHES]])
STEPS = st.just(1.5) | st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda lengths: [(float(sum(lengths[:number])) * 0.37, float(lengths[number])) for number in range(len(lengths))]
)


@given(CLUSTERS, PROTOCOLS, FAULTS, st.lists(STEPS, min_size=2, max_size=2), st.booleans(), st.integers(0, 3))
def test_random_runs_cost_what_each_workers_intervals_cost(cluster, name, faults, prices, always, seed):
    """All of it again from the table, without `spans`: each worker's activities between any two of its events."""
    entries = [{"per_hour": prices[0], "busy_watts": 300.0, "idle_watts": 70.0}]
    entries += [{"per_hour": prices[1], "busy_watts": 5.0, "workers": [0], "paid_while_away": always}]
    priced = {"workers": entries, "servers": [{"per_hour": 0.5, "watts": 20.0}], "per_gb": 0.5, "per_kwh": 0.2}
    cluster = cluster.model_copy(update={"faults": faults})
    try:
        protocol = fitting_protocol(name, cluster)
        assume(protocol.has_clock)
        schedule = record(protocol, cluster, seconds=6.0, seed=seed)
    except (FredError, ValueError):  # combinations that FRED refuses
        assume(False)
    cluster = cluster.model_copy(update={"prices": priced})
    end = schedule.end_ns
    account = spent(schedule, cluster, np.array([end]), np.array([len(schedule)]))
    cost, joules = 0.0, 0.0
    for worker in range(cluster.size):
        entry = entries[0 if worker else 1]
        intervals = [interval for interval in zip(*schedule.intervals, strict=True) if interval[4] == worker]
        absences = [(begin, end_ns) for kind, begin, end_ns, *_ in intervals if kind == What.AWAY]
        running = [(begin, end_ns) for kind, begin, end_ns, *_ in intervals if kind in (What.COMPUTING, What.LOST)]
        rows = schedule.rows(Verb.PUSH, Verb.ADD, Verb.DROP)
        rows = rows[schedule["worker"][rows] == worker]
        running += zip(schedule["begin_ns"][rows].tolist(), schedule["end_ns"][rows].tolist(), strict=True)
        price_list = entry["per_hour"] if isinstance(entry["per_hour"], list) else [(0.0, entry["per_hour"])]
        begins, per_hour = np.array([[round(begin * 1e9), price] for begin, price in price_list]).T
        points = np.unique(
            np.clip([0, end, *begins, *(point for interval in (*absences, *running) for point in interval)], 0, end)
        )
        away_mask, busy_mask = inside(absences, points), inside(running, points)
        lengths, price = np.diff(points), per_hour[np.searchsorted(begins, points[:-1], side="right") - 1]
        cost += (lengths * price)[~away_mask | entry.get("paid_while_away", False)].sum() / HOUR
        joules += (lengths * np.where(busy_mask, entry["busy_watts"], entry.get("idle_watts", 0.0)))[~away_mask].sum() / 1e9
    servers = cluster.servers if schedule.on_servers else 0
    joules += 20.0 * servers * end / 1e9
    assert account.parts["workers"] == pytest.approx([cost], rel=1e-9)
    assert account.parts["servers"] == pytest.approx([0.5 * servers * end / HOUR], rel=1e-12)
    assert account.parts["traffic"] == pytest.approx([0.5e-9 * schedule["bytes"].sum()], rel=1e-9)
    assert account.kwh == pytest.approx(joules / 3.6e6, rel=1e-9)
    assert account.parts["electricity"] == pytest.approx(0.2 * account.kwh, rel=1e-12)
    assert account.total == pytest.approx(sum(account.parts.values()), rel=1e-12)


PRICES = {
    "workers": [{"per_hour": [[0.0, 3.0], [0.4, 900.0]], "busy_watts": 400, "idle_watts": 80}],
    "servers": [{"per_hour": 0.5}],
    "per_gb": 0.09,
}
LINKS = {"bandwidth": 1e5, "latency": {"name": "constant", "seconds": 0.01}}
WORKERS: dict[str, Any] = {"workers": 4, "compute": COMPUTE, "network": LINKS}
SIZED = WORKERS | {"network": {**LINKS, "message_bytes": 10_000}}


def outcome_of(algorithm: str, **options: Any) -> Outcome:
    return execute("run", make_run(algorithm, **{"task": None, **options}), 0)


class TestRuns:
    @pytest.mark.parametrize("algorithm", ["ssgd", "asgd", "local-sgd", "d-psgd"])
    def test_the_last_evaluation_is_the_summary(self, algorithm):
        faults = [CRASHES | {"mean_up": 1.0}]
        outcome = outcome_of(algorithm, cluster={**WORKERS, "faults": faults, "prices": PRICES}, stop={"seconds": 2.0})
        last = outcome.metrics.iloc[-1]
        assert (last["cost"], last["energy_kwh"]) == (outcome.summary["cost"]["total"], outcome.summary["energy_kwh"])
        assert (np.diff(outcome.metrics[["cost", "energy_kwh"]], axis=0) > 0).all()

    def test_prices_change_neither_timing_nor_arithmetic_and_runs_share_a_timing(self):
        free, priced = (make_run(cluster={**WORKERS, **options}) for options in ({}, {"prices": PRICES}))
        assert Timing.of_run(free, 0) == Timing.of_run(priced, 0)
        unpriced, priced_outcome = (execute("run", run, 0) for run in (free, priced))
        assert (unpriced.schedule_digest, unpriced.params_digest) == (
            priced_outcome.schedule_digest,
            priced_outcome.params_digest,
        )
        assert priced_outcome.metrics.drop(columns=["cost", "energy_kwh"]).equals(unpriced.metrics)
        assert {
            name: value for name, value in priced_outcome.summary.items() if name not in ("cost", "energy_kwh")
        } == unpriced.summary

    def test_without_prices_nothing_mentions_them(self, tmp_path, undrawn):
        result = fred.run(fred.scenario(make_run(cluster=SIZED, task=None).model_dump(mode="json")), out=tmp_path / "out")
        assert not [name for name in (*result.summary, *result.metrics) if "cost" in name or "energy" in name]
        text = "".join((tmp_path / "out" / file).read_text() for file in ("manifest.json", "summary.json"))
        assert not [word for word in ("price", "cost", "energy") if word in text]

    def test_stored_and_read_and_run_again_the_same(self, tmp_path, undrawn):
        (tmp_path / "spot.csv").write_text("begin,per_hour\n0,3\n0.4,900\n")
        entry, folder = {"per_hour": "spot.csv", "busy_watts": 400, "idle_watts": 80}, tmp_path / "out"
        run = make_run(cluster={**SIZED, "prices": PRICES}, task=None)
        cluster = {**SIZED, "prices": {**PRICES, "workers": [entry]}}
        (tmp_path / "a.yaml").write_text(json.dumps(run.model_dump(mode="json") | {"cluster": cluster}))
        assert fred_command("run", tmp_path / "a.yaml", "--out", folder).code == 0
        (tmp_path / "spot.csv").unlink()
        computed, loaded = fred.run(fred.load_result(folder).scenario), fred.load_result(folder)
        assert computed.summary.equals(loaded.summary) and computed.metrics.equals(loaded.metrics)
        assert computed.summary["cost_total"][0] == execute("run", run, 0).summary["cost"]["total"]
        assert fred_command("verify", folder).code == 0
        assert "energy, kWh" in fred_command("show", folder).out


def beaten(points: np.ndarray) -> np.ndarray:
    """Return whether another point is nowhere worse and somewhere better, for each of these points."""
    return np.array([((points <= point).all(axis=1) & (points < point).any(axis=1)).any() for point in points])


class TestTargets:
    SETTINGS: dict[str, Any] = {
        **make_run(cluster={**WORKERS, "prices": PRICES}).model_dump(mode="json", exclude={"protocol"}),
        "stop": {"seconds": 6},
        "evaluate": {"points": 60, "target_error": 0.3},
        "seeds": [1, 2],
        "sweep": {"over": {"cluster.workers": [1, 4]}, "best": "cost"},
    }

    @pytest.fixture(scope="class")
    @classmethod
    def result(cls) -> fred.Result:
        runs = {name: {"algorithm": {"name": name, "learning_rate": 0.3}} for name in ("asgd", "ssgd")}
        return fred.run(fred.scenario({key: value for key, value in cls.SETTINGS.items() if key != "algorithm"}, runs=runs))

    @pytest.mark.slow
    def test_the_cheapest_way_to_a_target(self, result):
        summary = result.summary
        for _, row in summary.iterrows():
            metrics = result.outcome(row["name"], row["seed"]).metrics
            reached = metrics[metrics["error"] <= 0.3]
            if len(reached):
                first = (reached["cost"].iloc[0], reached["energy_kwh"].iloc[0])
                assert (row["target_cost"], row["target_energy_kwh"]) == first
        means = summary.groupby("name")["target_cost"].agg(lambda costs: costs.mean(skipna=False))
        for run, point in zip(result.best["run"], result.best["point"], strict=True):
            assert means[point] == means[means.index.str.startswith(run)].min()

    def test_the_front_is_what_no_other_point_beats(self, result):
        points = trade_off(result)
        assert points["front"].tolist() == (~beaten(points[["seconds", "cost"]].to_numpy())).tolist()
        assert "cost" in result.pictures()
        assert [axis.get_xlabel() for axis in result.plot("cost").axes] == ["virtual time to the target, s"]
        figure = result.with_its_best().plot("error", against=["cost", "energy"])
        assert [axis.get_xlabel() for axis in figure.axes] == ["cost", "energy, kWh"]

    def test_runs_without_prices_or_a_clock_are_no_points(self):
        priced = {**SIZED, "prices": PRICES}
        runs: dict[str, Any] = {"free": {"cluster": {**SIZED, "prices": None}}, "paid": {"cluster": priced}}
        runs |= {"other": {"cluster": priced, "algorithm": "ssgd"}}
        runs |= {"clockless": {"cluster": priced, "protocol": {"name": "fixed-lag", "lag": 2}}}
        for run in runs.values():
            run["algorithm"] = {"name": run.get("algorithm", "asgd"), "learning_rate": 0.1}
        result = fred.run(fred.scenario(stop={"updates": 20}, runs=runs))
        assert trade_off(result)["point"].tolist() == ["paid", "other"]
        assert "missed" not in "".join(text.get_text() for text in result.plot("cost").texts)
        for column in ("cost_total", "energy_kwh"):
            assert result.summary[column].isna().tolist() == [True, False, False, True]

    def test_a_sweep_without_prices_says_what_it_needs(self):
        settings = {**self.SETTINGS, "cluster": WORKERS, "seeds": [1]}
        for best, requirement in (
            ("cost", "`cluster.prices`"),
            ("energy", "power, such as `busy_w"),
            ("target_cost", "prices"),
        ):
            sweep = {"over": {"cluster.workers": [1, 2]}, "best": best}
            with pytest.raises(FredError, match=requirement):
                fred.scenario({**settings, "sweep": sweep})
        with pytest.raises(FredError, match="nothing has a cost"):
            run_timed("asgd", {"workers": 2}, 5).plot("cost")


def test_wrong_prices_are_refused(tmp_path):
    for prices, message in (
        ({"workers": [{"per_hour": -1}]}, "found -1; expected greater than or equal to 0"),
        ({"workers": [{"per_hour": []}]}, "expected at least one step"),
        ({"workers": [{"per_hour": [[1, 2]]}]}, "the first step begins at 1 s; expected 0"),
        ({"workers": [{"per_hour": [[0, 2], [5, 1], [5, 2]]}]}, "the step at 5 s is not after the one before it"),
        ({"workers": [{"per_hour": "no.csv"}]}, "cannot read no.csv"),
        ({"workers": [{"workers": [0]}]}, "`prices`: `workers` has no price for worker 1: put an entry for all workers first"),
        ({"workers": [{"workers": [4]}]}, "`workers` names 4 in `workers`; there are 4, numbered from 0"),
        ({"workers": [{"groups": [0]}]}, "`workers` names 0 in `groups`; the cluster has none"),
        ({"servers": [{"regions": [0]}]}, "`servers` names 0 in `regions`; the cluster has none"),
        ({"servers": [{"servers": [1]}]}, "`servers` names 1 in `servers`; there are 1, numbered from 0"),
        ({"per_gb": [[0.1]]}, "`per_gb` has rows of 1 numbers; expected a number, as there are no `network.regions`"),
        ({"per_tb": 1}, "unknown key `per_tb`; did you mean `per_gb`?"),
        ("begin,cost\n0,1\n", "has no column `per_hour`; it has begin, cost; expected begin, per_hour"),
        ("begin,per_hour\n0,-1\n", "spot.csv:2: expected a time from 0 s on and a price; found 0 and -1"),
        ("begin,per_hour\n10,1\n", "the first step begins at 10 s; expected 0"),
    ):
        if isinstance(prices, str):
            (tmp_path / "spot.csv").write_text(prices)
            prices = {"workers": [{"per_hour": str(tmp_path / "spot.csv")}]}
        with pytest.raises(FredError) as error:
            run_timed("asgd", {"workers": 4, "prices": prices}, 5)
        assert message in str(error.value) and "\n" not in str(error.value)


class TestPlan:
    def test_fronts_are_what_no_other_system_beats_and_filled_in_the_figure(self):
        rng = np.random.default_rng(7)
        for number, by in enumerate((TIME, COST, ENERGY) * 20):
            spent = rng.integers(1, 6, (int(rng.integers(1, 9)), 3)).astype(float)
            spent[rng.random(len(spent)) < 0.2] = np.inf
            places = [
                Place(str(n), str(n), {}, 1, (), (spent[n, 0],), None, *map(tuple, spent[n, 1:, None]))
                for n in range(len(spent))
            ]
            pairs = spent[:, [0, 2]] if by == ENERGY else spent[:, :2]
            unbeaten = {str(name) for name in np.flatnonzero(~beaten(pairs) & (pairs[:, 0] < np.inf))}
            result = Ranking(places, {}, by)
            assert {place.run for place in result.front} == unbeaten
            assert not Ranking([replace(place, costs=(), energy=()) for place in places], {}).front, "without prices"
            if not unbeaten or number > 5:
                continue
            figure = picture(result, "an error of 0.3")
            markers = [line for line in figure.axes[0].get_lines() if line.get_label() in {place.run for place in places}]
            assert {line.get_label() for line in markers if line.get_markerfacecolor() != "white"} == unbeaten
            assert figure.axes[0].get_ylabel() == ("energy to the target, kWh" if by == ENERGY else "cost to the target")

    @pytest.mark.slow
    def test_the_criterion_decides_between_a_server_and_none(self, monkeypatch):
        """A round takes two latencies with a server, six without one; so a server is faster, but here expensive."""
        monkeypatch.setattr("fred.diagnosis.question.POINTS", 2)
        prices: dict[str, Any] = {"workers": [{"per_hour": 1.0, "busy_watts": 100, "idle_watts": 10}]}
        prices["servers"] = [{"per_hour": 20.0, "watts": 1000}]
        latency = {"latency": {"name": "constant", "seconds": 0.2}}
        cluster = Cluster(workers=4, compute=SECOND, network=latency, prices=prices)
        systems = [Candidate("sync", "ssgd"), Candidate("allreduce", "allreduce-sgd")]
        for by, first in ((TIME, "sync"), (ENERGY, "allreduce")):
            result, ranks = plan(cluster, systems, budget=40.0, by=by)
            summary = result.summary.set_index(["name", "seed"])[["target_cost", "target_energy_kwh"]]
            assert (ranks.by, ranks.places[0].run) == (by, first)
            assert [place.run for place in ranks.front] == ["sync", "allreduce"], "the fastest first"
            for place in ranks.places:
                reported = [tuple(summary.loc[(place.point, seed)]) for seed in (101, 102)]
                assert [*zip(place.costs, place.energy, strict=True)] == reported
                per_second = (4 * 1.0 + 20.0 * (place.run == "sync")) / 3600
                assert place.costs == pytest.approx([per_second * seconds for seconds in place.seconds])
            sync, allreduce = ranks.places
            ratios = [a / b for a, b in zip(allreduce.to_target(by), sync.to_target(by), strict=True)]
            assert allreduce.comparison is not None
            assert 1 < allreduce.comparison["mean"] == pytest.approx(np.exp(np.mean(np.log(ratios))))

    @pytest.mark.slow
    def test_each_system_is_tuned_by_the_criterion(self, monkeypatch):
        """Averaging every step is the fastest way, and the one that sends most."""
        monkeypatch.setattr("fred.diagnosis.question.POINTS", 4)
        network = {"bandwidth": 1e9, "message_bytes": 10**8}
        prices = {"workers": [{"per_hour": 0.01}], "per_gb": 1.0}
        cluster = Cluster(workers=4, compute=SECOND, network=network, prices=prices)
        periods = {}
        for by in (TIME, COST):
            result, ranks = plan(cluster, [Candidate("local-sgd", "local-sgd", "protocol.period", (1, 8))], 30.0, by=by)
            tuning = result.summary[result.summary["seed"] == 1].set_index("name")[by.to_target]
            periods[by.name] = ranks.places[0].values["protocol.period"]
            assert tuning[ranks.places[0].point] == tuning.min()
        assert periods == {"time": 1, "cost": 8}

    def test_a_seed_that_missed_the_target_is_never_in_favour_of_its_system(self):
        never, dear, cheap = np.inf, [9.0] * 5, [1.0] * 5
        reached = ranking.Spent([2.0] * 5, dear)
        (late,) = compare_spent([ranking.Spent([never] * 5, dear)], reached)
        (missed,) = compare_spent([ranking.Spent([never] * 5, cheap)], reached)  # it spent less than the target costs
        (other,) = compare_spent([reached], ranking.Spent([never] * 5, cheap))
        (tie,) = compare_spent([ranking.Spent([never] * 5, dear)], ranking.Spent([never] * 5, cheap))
        (free,) = compare_spent([reached], ranking.Spent([0.0] * 5, cheap))
        assert [row["mean"] for row in (late, missed, other, tie)] == pytest.approx([4.5, 1, 1, 1])
        assert [row["higher"] for row in (late, missed, other, tie, free)] == ["yes", "open", "open", "open", "yes"]

    def test_prices_that_are_all_zero_cannot_rank(self):
        for prices, by, other, message in (
            ({"workers": [{"busy_watts": 100}]}, COST, ENERGY, "nothing in a.yaml has a price"),
            ({"workers": [{"per_hour": [[0, 0], [5, 1]]}]}, ENERGY, COST, "no machine in a.yaml draws power"),
        ):
            cluster = Cluster(workers=2, prices=prices)
            with pytest.raises(FredError, match=message):
                question.check_criterion(by, cluster, "a.yaml")
            question.check_criterion(other, cluster, "a.yaml")

    @pytest.mark.slow
    def test_the_command_prints_and_draws_them(self, tmp_path, monkeypatch, request):
        limit_points(monkeypatch)
        file, out = tmp_path / "mine.yaml", tmp_path / "out"
        prices = {"workers": [{"per_hour": 36.0, "busy_watts": 9}], "per_gb": 1e-9}
        network = {"latency": {"name": "constant", "seconds": 0.5}}
        cluster = {"workers": 3, "compute": SECOND, "network": network, "prices": prices}
        options = {"cluster": cluster, "stop": {"seconds": 12}, "evaluate": {"target_error": 0.5}}
        file.write_text(make_run(**options).model_dump_json())
        command = ["plan", file, "--seeds", "1", "--jobs", "1", "--out", out]
        answer = fred_command(*command)
        for text in ("median cost", "By median time and cost, no system beats", f"time against cost: {out}/trade-off.svg."):
            assert text in answer.out
        assert (out / "result" / "figures" / "cost.svg").is_file()
        assert "Time against cost to an error of 0.5" in (out / "trade-off.svg").read_text()
        page = (out / "result" / "report.html").read_text()
        assert [word for word in ("cost of traffic", "energy, kWh", '"cost":"cost"') if word not in page] == []
        request.getfixturevalue("undrawn")
        plan = json.loads(fred_command(*command, "--by", "cost", "--json").out)
        first = plan["ranking"][0]
        assert (plan["by"], plan["front"][0]) == ("cost", first["run"])
        assert (plan["budget"], plan["target"]) == (12.0, {"target_error": 0.5})
        assert {place["run"] for place in plan["ranking"]} | plan["unreached"].keys() == {"sync", "asgd"}
        assert plan["lost"]["network"] == pytest.approx(0.5)  # two messages of half a second each
        assert first["median_cost"] == pytest.approx(0.03 * first["median"])
        assert first["costs"] == pytest.approx([0.03 * seconds for seconds in first["seconds"]])
        assert f"reached an error of 0.5 at the least cost, {first['median_cost']:,.4g}" in plan["answer"]
        assert "best: cost" in (out / "scenario.yaml").read_text()
