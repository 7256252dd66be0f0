"""`fred cutoffs`: what a trace would gain by a cutoff, from the command line to the table."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fred.commands.cli import main
from fred.errors import FredError
from fred.prediction import closed_loop
from fred.prediction.comparison import RULES, compare, rule_named
from fred.prediction.ewma import EWMA
from fred.prediction.hmm import HiddenMarkov
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
    assert main(["cutoffs", str(trace), "--train", "150", "--rules", "all,static,static:20,hmm,oracle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["rules"]) == ["all", "static", "static:20", "hmm", "oracle"]
    seconds = np.round(clusters(5, 260, slow=3.0, dwell=25), 6)
    rule = HiddenMarkov().trained(seconds[:150], NODES)
    again = closed_loop.run(rule, seconds[150:], NODES).summary()
    assert {**said["rules"]["hmm"], "milliseconds": 0} == {**again, "milliseconds": 0}
    assert said["rules"]["oracle"]["of_oracle"] == 1
    assert said["rules"]["all"]["cutoff"] == 30
    assert said["rules"]["static:20"]["cutoff"] == 20
    assert (said["train"], said["warm_up"], said["rounds"], said["groups"]) == (150, 20, 90, 3)
    assert "A cutoff pays here: `hmm`" in said["verdict"]


def test_the_table_has_every_rule_and_a_line_in_words(trace, capsys):
    assert main(["cutoffs", str(trace), "--train", "150", "--warm-up", "10"]) == 0
    out = capsys.readouterr().out
    assert all(f" {name} " in out for name in RULES)
    assert "3 groups (as told)" in out
    assert "gradients/s, waiting for all 30 workers" in out


def test_groups_that_nobody_tells_are_found(trace):
    seconds = clusters(6, 400, slow=3.0)
    outcome = compare(Trace(seconds, tuple(map(str, range(30)))), 300, ["node-ewma"])
    assert outcome.found
    assert outcome.groups == 3


def test_every_round_is_kept_and_rules_with_options_take_part(trace):
    outcome = compare(read(trace), 150, ["all", "static"], more={"calm": EWMA(of="node", node_rate=0.05)})
    assert list(outcome.rounds) == list(outcome.rules) == ["all", "static", "calm"]
    again = closed_loop.run(EWMA(of="node", node_rate=0.05), read(trace).seconds[150:], NODES)
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


def test_the_verdict_says_how_much_it_is_worth():
    trace = Trace(np.ones((70, 4)) * [1.0, 1.0, 1.0, 1.001], tuple("abcd"))
    few, enough = (compare(trace, 10, ["all", "static:3"], warm_up).verdict() for warm_up in (20, 10))
    assert few.startswith("A cutoff wins nothing here: `static:3`")
    assert few.endswith("%). 40 rounds are few to judge by.")
    assert enough.endswith("%).")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train", "240"], "260 iterations: expected 1 or more to train on (240), 0 or more to warm up (20)"),
        (["--train", "0"], "1 or more to train on (0)"),
        (["--train", "9", "--warm-up", "-1"], "0 or more to warm up (-1)"),
        (["--train", "5", "--rules", "hmm"], "rule `hmm`: 5 iterations to train on; at least 6 are needed"),
        (["--train", "9", "--rules", "hnm"], "no rule `hnm`; expected some of all, static, elfving"),
        (["--train", "9", "--rules", "none"], "dmm-printed, node-ewma, oracle-throughput, static:N"),
        (["--train", "9", "--rules", "all,"], "no rule ``"),
        (["--train", "9", "--rules", "static:x"], "expected a number of workers after `static:`"),
        (["--train", "9", "--rules", "static:31"], "rule `static:31`: `workers` (31) must not exceed the cluster's 30"),
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
    for name in (*RULES, "static:3", "oracle", "backup", "best-static"):
        assert rule_named(name)
    with pytest.raises(FredError, match="did you mean `ewma`"):
        rule_named("ewna")


def test_nothing_heavy_is_loaded_to_print_help():
    program = "import sys; from fred.commands.cli import main\ntry: main(['--help'])\nexcept SystemExit: print('numpy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("False")


def test_jax_is_not_loaded_for_rules_that_do_not_need_it(trace):
    program = "import sys; from fred.commands.cli import main; main(sys.argv[1:]); print('jax' in sys.modules)"
    arguments = ["cutoffs", str(trace), "--train", "150"]
    said = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("False")
