"""Servers that keep a gradient of each worker: what they are the same as, what divided data show, and NumPy's word on each."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fred.components import registry
from fred.outcomes.outcome import Outcome
from fred.running.execution import execute
from tests.recompute import largest_relative_error
from tests.worlds import COMPUTE, make_run, same

UNEQUAL = {"workers": 5, "compute": {"name": "lognormal", "median": 0.1, "sigma": 0.7}}
NETWORK = {"latency": {"name": "exponential", "scale": 0.02}, "bandwidth": 1e5}
NAMES = ("ia2sgd", "ringleader")


def outcome(algorithm: str, protocol: Any = None, cluster: Any = UNEQUAL, inline: bool = False, **options: Any) -> Outcome:
    described = {"name": algorithm, "learning_rate": 0.1}
    options = {"stop": {"updates": 60}, **options}
    return execute("run", make_run(described, protocol=protocol, cluster=cluster, **options), 3, inline)


def test_of_one_worker_both_are_asgd():
    """IA2SGD but for the last digit: its mean changes by differences."""
    cluster = {"workers": 1, "compute": COMPUTE}
    asgd, leader, table = (outcome(name, None, cluster) for name in ("asgd", "ringleader", "ia2sgd"))
    assert same(leader, asgd)
    assert table.schedule.digest() == asgd.schedule.digest()
    assert largest_relative_error(table.final, asgd.final) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_rounds_of_fresh_gradients_are_synchronous_sgd(name):
    """Nothing of a round is anybody's own, so the table stays empty."""
    assert outcome(name, "synchronous").params_digest == outcome("ssgd").params_digest


@pytest.mark.parametrize(("name", "found"), [("asgd", 0.75), ("ia2sgd", 2.0), ("ringleader", 2.0)])
def test_where_they_settle_does_not_depend_on_who_is_fast(name, found):
    """Optima of two workers at 0 and 4, the first of which is about four times as fast: the mean, or one nearer to 0."""
    server = registry.lookup("algorithm", name)(learning_rate=0.02)
    update, state, read = jax.jit(server.apply_update), server.init({"w": jnp.zeros(1)}, workers=2), [jnp.zeros(1)] * 2
    for arrival in range(1500):
        worker = int(arrival % 5 == 4)
        gradient = {"w": read[worker] - 4.0 * worker}
        state = update(state, gradient, 0, worker)
        read[worker] = state.params["w"]
    assert float(state.params["w"][0]) == pytest.approx(found, abs=0.1)


def test_each_of_ringleaders_rounds_steps_once_for_each_worker_and_none_is_older_than_2n_2():
    """Parameters change at the arrivals at which each worker has its turn: counted from the schedule alone."""
    found = outcome("ringleader", stop={"updates": 400}).schedule
    frame = found.frame()
    had_turn, here, after, changes, read = set[int](), set[int](), set[int](), 0, dict[int, int]()
    oldest = 0
    row: Any
    for row in frame[frame["verb"].isin(["PULL", "PUSH"])].itertuples():
        if row.verb == "PULL":
            read[row.mailbox] = changes
            continue
        if row.worker in had_turn:
            after.add(row.worker)
            continue
        here.add(row.worker)
        if len(here) == found.workers:
            oldest = max(oldest, changes - read[row.mailbox])
            changes += 1
            had_turn.add(row.worker)
        if len(had_turn) == found.workers:
            had_turn, here, after = set(), after, set()
    assert changes > 50
    assert found.workers - 1 <= oldest <= 2 * found.workers - 2


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_of_updates_never_copies_the_table(name):
    """As compiled for 300 workers; nothing is computed."""
    server = registry.lookup("algorithm", name)(learning_rate=0.1)
    model = {"w": jax.ShapeDtypeStruct((30, 20), jnp.float32)}
    state = jax.eval_shape(lambda params: server.init(params, 300), model)

    @partial(jax.jit, donate_argnums=0)
    def run(state, gradient):
        return jax.lax.fori_loop(0, 9, lambda i, state: server.apply_update(state, gradient, i, i % 300), state)

    compiled = run.lower(state, model).compile().as_text() or ""
    assert "f32[300,30,20]" in compiled
    assert not re.search(r"= f32\[300,30,20\]\S* copy\(", compiled)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")
@pytest.mark.parametrize("name", NAMES)
def test_tables_of_a_thousand_workers_fit_into_four_gibibytes(name):
    """784-200-10: 159,010 parameters; a table is 0.6 GB. Measured in a process of its own."""
    program = f"""
import fred
scenario = fred.scenario({{
    "task": {{"data": {{"name": "synthetic-classification", "features": 784, "examples": 300}},
             "model": {{"name": "mlp", "hidden": [200]}}, "batch_size": 1}},
    "cluster": {{"workers": 1000, "compute": {{"name": "constant", "seconds": 0.1}}}},
    "stop": {{"updates": 1200}},
    "algorithm": {{"name": "{name}", "learning_rate": 0.01}},
}})
fred.run(scenario)
status = open("/proc/self/status").read()  # resource.getrusage would count the memory of the test's own process, too
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    peak = int(done.stdout.split()[-1])
    table = 1000 * 159_010 * 4
    assert table < peak < 4 * 2**30, np.round(peak / 2**30, 2)
