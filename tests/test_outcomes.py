"""One outcome, in memory or on disk: the same answers."""

import hashlib
import pickle
import re
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest

import fred
from fred import FredError, Result
from fred.outcomes.outcome import digest
from fred.running.units import SelectedRuns, Unit
from tests.folders import undrawn_results
from tests.pages import KINDS, LEARNED
from tests.worlds import make_run

pytestmark = pytest.mark.usefixtures("undrawn")

TIMED: dict[str, Any] = {**KINDS["no task"], "seeds": [1, 2]}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Result, Result]:
    scenario, out = fred.scenario(LEARNED), tmp_path_factory.mktemp("outcomes") / "out"
    with undrawn_results():
        return fred.run(scenario), fred.run(scenario, out=out)


def test_memory_and_folder_give_the_same_answers(results):
    for memory, stored in zip(*(result.outcomes for result in results), strict=True):
        for name in ("name", "seed", "run", "data_digest", "schedule_digest", "params_digest", "summary"):
            assert getattr(memory, name) == getattr(stored, name), name
        assert all(map(pd.DataFrame.equals, (memory.metrics, memory.run_times), (stored.metrics, stored.run_times)))
        for name in ("initial", "final"):
            np.testing.assert_equal(getattr(memory, name), getattr(stored, name))
        pd.testing.assert_frame_equal(memory.schedule.frame(), stored.schedule.frame(), check_exact=True)
        for outcome in (memory, stored):
            renamed = outcome.renamed("another")
            assert (renamed.name, renamed.summary["name"]) == ("another", "another")
            assert renamed.summary | {"name": outcome.name} == outcome.summary


def test_digests_are_the_sha256_of_the_arrays(results):
    final, sha = results[0].outcomes[0].final, hashlib.sha256()
    for path in sorted(final):
        sha.update(f"{path} {final[path].dtype.str} {final[path].shape}".encode() + final[path].tobytes())
    assert results[0].outcomes[0].params_digest == digest(final) == sha.hexdigest()
    assert digest({}) is None


def test_a_run_without_a_clock_has_no_times_wherever_it_is(tmp_path):
    scenario = fred.scenario(make_run(task=None, protocol="dispatcher").model_dump(mode="json"))
    for result in (fred.run(scenario), fred.run(scenario, out=tmp_path / "out")):
        with pytest.raises(FredError, match=r"run `asgd` has no clock, so its gradients take no time"):
            result.run_times("asgd")


def test_a_result_whose_folder_another_has_taken_says_so(tmp_path):
    """Instead of the other one's numbers; what both have in common, such as the timing, is the same for both."""
    scenario, out = fred.scenario({**LEARNED, "seeds": [1]}), tmp_path / "out"
    before = fred.run(scenario, out=out)
    timing, losses = before.schedule("asgd"), before.outcome("asgd").metrics
    fred.run(scenario, out=out, fresh=True)
    assert before.outcome("asgd").metrics.equals(losses), "the same again"
    after = fred.run(scenario.replace({"algorithm.learning_rate": 0.5}), out=out)
    for name in ("metrics", "initial", "final"):
        with pytest.raises(
            FredError, match=r"has changed \(its digest differs\): load the result again if a later run wrote it"
        ):
            getattr(before.outcome("asgd"), name)
    assert before.schedule("asgd").equals(timing)
    assert fred.load_result(out).metrics.equals(after.metrics)


def test_a_loaded_result_is_found_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = fred.run(fred.scenario(TIMED), out="out")
    loaded = fred.load_result("out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert loaded.metrics.equals(result.metrics)


def test_a_folder_of_another_format_is_refused_and_replaced_by_the_next_run(tmp_path):
    out, scenario = tmp_path / "out", fred.scenario({**TIMED, "seeds": [1]})
    fred.run(scenario, out=out)
    (out / "manifest.json").write_text(re.sub(r'"format": \d+', '"format": 1', (out / "manifest.json").read_text()))
    with pytest.raises(FredError, match=r"out has format 1; this version reads format \d+: run its scenario again"):
        fred.load_result(out)
    repeated = fred.run(scenario, out=out)
    assert fred.load_result(out).summary.equals(repeated.summary)


def test_a_units_identity_travels(monkeypatch):
    """The receiving process would compute another one, for instance because other modules are loaded."""
    unit = next(SelectedRuns(fred.scenario(TIMED)).stages()).units[0]
    sent = cloudpickle.dumps(unit)
    monkeypatch.setattr("fred.running.units.code_of_fred", lambda: "another")
    assert Unit(unit.name, unit.run, unit.seed).identity != unit.identity
    assert pickle.loads(sent).identity == unit.identity
