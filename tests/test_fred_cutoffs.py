"""`fred cutoffs`: what a trace would gain by a cutoff, from the command line to the table."""

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fred.base.errors import FredError
from fred.commands import cutoff_tables
from fred.commands.cli import main
from fred.prediction import closed_loop
from fred.prediction.closed_loop import Rounds
from fred.prediction.comparison import RULES, Comparison, compare, rule_named
from fred.prediction.ewma import EWMA
from fred.prediction.hmm import HiddenMarkov
from fred.prediction.rolling import rolling
from fred.traces.reading import read
from fred.traces.trace import Trace
from fred.views import cutoff_figures
from tests.rounds import NODES, clusters


@pytest.fixture
def trace(tmp_path):
    """A file with the times of three nodes of ten workers, which are slow now and then."""
    seconds = clusters(5, 260, slow=3.0, dwell=25)
    lines = [f"{t},{w},{seconds[t, w]:.6f},{NODES[w]}" for t in range(260) for w in range(30)]
    path = tmp_path / "trace.csv"
    path.write_text("iteration,worker,seconds,node\n" + "\n".join(lines) + "\n")
    return path


def test_one_json_object_says_what_the_closed_loop_says(trace, capsys):
    assert main(["cutoffs", str(trace), "--train", "150", "--rules", "all,count,count:20,hmm,oracle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["rules"]) == ["all", "count", "count:20", "hmm", "oracle"]
    seconds = np.round(clusters(5, 260, slow=3.0, dwell=25), 6)
    rule = HiddenMarkov().trained(seconds[:150], NODES)
    again = closed_loop.run(rule, seconds[150:], NODES).summary()
    assert {name: said["rules"]["hmm"][name] for name in again if name != "milliseconds"} == {
        name: value for name, value in again.items() if name != "milliseconds"
    }
    assert said["rules"]["hmm"]["against_best"] == {"ratio": 1, "interval": [1, 1]}
    for name in ("count", "oracle"):
        won = said["rules"][name]["throughput"] / said["rules"]["all"]["throughput"]
        assert said["rules"][name]["against_all"]["ratio"] == pytest.approx(won)
        assert won == pytest.approx(math.sqrt(math.prod(said["rules"][name]["against_all"]["interval"])))
    assert (said["best"], said["recommended"], said["trained"]) == ("hmm", "hmm", 1)
    assert said["rules"]["oracle"]["of_oracle"] == 1
    assert said["rules"]["all"]["cutoff"] == 30
    assert said["rules"]["count:20"]["cutoff"] == 20
    assert (said["train"], said["warm_up"], said["rounds"], said["groups"]) == (150, 20, 90, 3)
    assert "A cutoff saves time here: `hmm`" in said["verdict"]


def test_the_table_has_every_rule_and_a_line_in_words(trace, capsys):
    assert main(["cutoffs", str(trace), "--train", "150", "--warm-up", "10"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{name} " in out for name in RULES)
    said = " ".join(out.split())
    assert "3 groups (as given)" in said
    assert "gradients/s, waiting for all 30 workers" in said


def test_two_thirds_train_unless_the_user_says_otherwise(trace, capsys):
    assert main(["cutoffs", str(trace), "--rules", "all,count"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "after 173 to train on and 17 to warm up" in said
    assert "rules were trained on the first 173, two thirds of 260 iterations; --train N changes this" in said
    assert main(["cutoffs", str(trace), "--rules", "all,count", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["train"], told["warm_up"], told["rounds"]) == (173, 17, 70)
    again = compare(read(trace), 173, ["all", "count"], 17).rules
    assert {name: rule["of_oracle"] for name, rule in told["rules"].items()} == {
        name: rule["of_oracle"] for name, rule in again.items()
    }


def test_groups_that_nobody_tells_are_found(trace):
    seconds = clusters(6, 400, slow=3.0)
    outcome = compare(Trace(seconds, tuple(map(str, range(30)))), 300, ["ewma"])
    assert outcome.found
    assert outcome.groups == 3


def test_every_round_is_kept_and_rules_with_options_take_part(trace):
    outcome = compare(read(trace), 150, ["all", "count"], more={"calm": EWMA(node_rate=0.05)})
    assert list(outcome.rounds) == list(outcome.rules) == ["all", "count", "calm"]
    again = closed_loop.run(EWMA(node_rate=0.05), read(trace).seconds[150:], NODES)
    assert outcome.rounds["calm"].cutoff.tolist() == again.cutoff.tolist()
    assert outcome.rounds["all"].cutoff.tolist() == [30] * 90
    bars: Any = cutoff_figures.throughput(outcome.rounds)
    panels: Any = cutoff_figures.cutoffs(outcome.rounds)
    shown = [patch.get_width() for patch in bars.axes[0].patches]
    assert shown == [each["throughput"] for each in outcome.rules.values()]
    assert [axis.patches[1].get_data().values.tolist() for axis in panels.axes[:3]] == [
        each.cutoff.tolist() for each in outcome.rounds.values()
    ]
    assert panels.axes[0].patches[0].get_data().values.tolist() == outcome.rounds["all"].best_cutoff.tolist()


def judged(**times: list[float]) -> Comparison:
    """A comparison of rules whose rounds take these times, s; each rule takes 10 gradients, waiting for all 20."""

    def rounds(number: int, seconds: list[float]) -> Rounds:
        cutoff, time = np.full(len(seconds), number), np.rint(1e9 * np.array(seconds)).astype(np.int64)
        return Rounds(cutoff, time, np.zeros(len(seconds)), cutoff, time)

    plain = rounds(20, [2.0] * len(next(iter(times.values()))))
    trace = Trace(np.ones((90, 20)), tuple(map(str, range(20))))
    return Comparison(trace, 10, 0, 1, False, plain, {name: rounds(10, own) for name, own in times.items()})


def noisy(seconds: float, rounds: int = 64, by: float = 0.01) -> list[float]:
    """Times about a mean, to which there is no pattern that lasts."""
    return (seconds + by * np.random.default_rng(rounds).permutation(np.linspace(-1, 1, rounds))).tolist()


class TestVerdict:
    @pytest.mark.parametrize(
        ("times", "said"),
        [
            (
                noisy(0.8),
                "A cutoff saves time here: `ewma` does 12.5 gradients/s, waiting for all 20 workers 10 (+25.0%, 95% interval",
            ),
            (noisy(0.99), "A cutoff saves little time here: `ewma`"),
            (noisy(1.0), "A cutoff saves little or no time here: `ewma`"),
            (noisy(1.2), "A cutoff saves no time here: `ewma`"),
            ([1.0] * 64, "A cutoff saves no time here: `ewma`"),
            (noisy(0.95, by=0.9), "These 64 rounds cannot tell whether a cutoff saves time: `ewma`"),
            (
                noisy(0.8, rounds=7),
                "These 7 rounds cannot tell yet whether a cutoff saves time; 60 that count are needed: `ewma`",
            ),
        ],
    )
    def test_a_claim_is_made_only_where_the_interval_excludes_what_contradicts_it(self, times, said):
        assert judged(ewma=times).verdict().startswith(said)

    def test_seven_rounds_are_too_few_for_any_interval(self):
        outcome = judged(ewma=[0.8] * 7)
        assert "(+25.0%, too few rounds for an interval;" in outcome.verdict()
        assert json.loads(outcome.json())["rules"]["ewma"]["against_all"] == {"ratio": 1.25, "interval": None}

    def test_it_names_the_rules_that_are_not_told_from_the_best(self):
        verdict = judged(ewma=noisy(0.8), hmm=noisy(0.801, by=0.1), elfving=noisy(0.95), oracle=noisy(0.7)).verdict()
        assert "`ewma` does" in verdict
        assert verdict.endswith("These 64 rounds cannot tell `hmm` from `ewma`.")

    def test_the_rule_that_chooses_is_recommended_unless_it_is_told_worse_than_the_best_single_one(self):
        even, worse = (judged(ewma=noisy(0.8), auto=own) for own in (noisy(0.801, by=0.1), noisy(0.9)))
        assert (even.best, even.recommended) == ("ewma", "auto")
        assert "saves time here: `auto` does" in even.verdict()
        assert "The best single rule is `ewma` (`auto` against it: -0." in even.verdict()
        assert (worse.best, worse.recommended) == ("ewma", "ewma")
        assert "`auto` is worse (-11.1%, 95% interval" in worse.verdict()
        assert judged(auto=noisy(0.8)).best == "auto"

    def test_limits_are_no_rules(self):
        assert (
            judged(oracle=noisy(0.8))
            .verdict()
            .startswith("Waiting for all 20 workers: 10 gradients/s; the round-by-round oracle: +")
        )


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_table_is_whole_on_narrow_terminals(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    cutoff_tables.print_comparison(judged(**{"ewma": noisy(0.8, by=0.3), "oracle-throughput": noisy(0.7, by=0.3)}))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    table = "\n".join(lines)
    assert "oracle-throughput" in table
    assert "gradients/s" in table
    for found in judged(ewma=noisy(0.8, by=0.3)).against["all"].values():
        assert f"({100 * found.low - 100:+.1f} to {100 * found.high - 100:+.1f})" in table


class TestRolling:
    def test_it_is_what_training_and_running_block_by_block_gives(self, trace):
        outcome = rolling(read(trace), 100, 70, ["count", "hmm", "oracle"], warm_up=15)
        seconds = read(trace).seconds
        parts = [
            closed_loop.run(HiddenMarkov().trained(seconds[:origin], NODES), seconds[origin - 15 : last], NODES, warm_up=15)
            for origin, last in ((100, 170), (170, 240), (240, 260))
        ]
        assert outcome.rounds["hmm"].cutoff.tolist() == [c for part in parts for c in part.cutoff]
        assert outcome.rounds["hmm"].time.tolist() == [t for part in parts for t in part.time]
        assert outcome.rounds["oracle"].time.tolist() == outcome.rounds["hmm"].best_time.tolist()
        every = np.rint(1e9 * seconds[100:].max(axis=1))
        assert outcome.waiting_for_all.time.tolist() == every.tolist()
        assert (outcome.counted, outcome.trained) == (160, 3)

    def test_from_the_command_line(self, trace, capsys):
        words = ["cutoffs", str(trace), "--train", "100", "--rolling", "80", "--rules", "all,count"]
        assert main([*words, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["train"], said["trained"], said["rounds"]) == (100, 2, 160)
        assert main(words) == 0
        assert "after 100 to train on first, trained 2 times" in " ".join(capsys.readouterr().out.split())

    @pytest.mark.parametrize("numbers", [["0", "--rolling", "5"], ["260", "--rolling", "5"], ["100", "--rolling", "0"]])
    def test_impossible_numbers_are_refused(self, trace, capsys, numbers):
        assert main(["cutoffs", str(trace), "--train", *numbers]) == 2
        assert "260 iterations: expected 1 or more to train on at first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--train", "240", "--warm-up", "20"],
            "260 iterations: expected 1 or more to train on (240), 0 or more to warm up (20)",
        ),
        (["--train", "260"], "260 iterations: expected 1 or more to train on (260)"),
        (["--train", "0"], "1 or more to train on (0)"),
        (["--train", "9", "--warm-up", "-1"], "0 or more to warm up (-1)"),
        (["--train", "5", "--rules", "hmm"], "rule `hmm`: 5 iterations to train on; at least 6 are needed"),
        (["--train", "9", "--rules", "hnm"], "no rule `hnm`; expected some of all, count, deadline"),
        (
            ["--train", "9", "--rules", "none"],
            "dmm-printed, dmm-alone, oracle-throughput, count:N, deadline:SECONDS",
        ),
        (["--train", "9", "--rules", "all,"], "no rule ``"),
        (["--train", "9", "--rules", "count:x"], "expected a number of workers after `count:`"),
        (["--train", "9", "--rules", "deadline:0.0"], "expected seconds after `deadline:`"),
        (["--train", "9", "--rules", "count:31"], "rule `count:31`: `workers` (31) must not exceed the cluster's 30"),
        (["--train", "9", "--rules", "mine:Mine"], "allow it with `--import mine`"),
        (["--train", "9", "--nodes", "31"], "`nodes` is 31"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(trace, capsys, options, message):
    assert main(["cutoffs", str(trace), *options]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert not said.out


def test_every_name_is_a_rule():
    for name in (*RULES, "count:3", "oracle", "backup", "deadline:1.5", "dmm-alone"):
        assert rule_named(name)
    with pytest.raises(FredError, match="did you mean `ewma`"):
        rule_named("ewna")


def test_nothing_heavy_is_loaded_to_print_help():
    program = "import sys; from fred.commands.cli import main\ntry: main(['--help'])\nexcept SystemExit: print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("False")


@pytest.mark.parametrize("command", [["cutoffs", "--train", "150"], ["diagnose"], ["fit"]], ids=lambda command: command[0])
def test_jax_is_not_loaded_to_look_at_a_trace(trace, command):
    program = "import sys; from fred.commands.cli import main; main(sys.argv[1:]); print('jax' in sys.modules)"
    name, *options = command
    said = subprocess.run(
        [sys.executable, "-c", program, name, str(trace), *options], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip().endswith("False")
