"""The study of local updates: claims of one optimizer with optima inside the grid, and a page that quotes the measurements."""

import numpy as np
import pandas as pd
import pytest

from fred.base.intervals import Verdict
from fred.schedule.minibatches import divide
from studies.kit.tuning import REPORTED
from studies.local_updates import page
from studies.local_updates.experiments import EXPERIMENTS, LOSS, RATES, SECONDS, Claim, Spoiled, below, optimizer
from studies.local_updates.measure import STUDY, TUNING
from studies.local_updates.page import judge


def rows(**systems: list[float]) -> pd.DataFrame:
    """Return the losses and seconds of five seeds; a seed with NaN did not get there in ten seconds."""
    tables = [pd.DataFrame({"system": name, "seed": REPORTED, "loss": losses}) for name, losses in systems.items()]
    table = pd.concat(tables)
    return table.assign(target_seconds=table["loss"], virtual_seconds=10.0, experiment="one", edges="")


def test_claims_are_of_systems_with_one_optimizer():
    for experiment in EXPERIMENTS.values():
        assert {name for claim in experiment.claims for name in claim.factors} <= set(experiment.systems)
        assert len({claim.sentence for claim in experiment.claims}) == len(experiment.claims)
        for claim in experiment.claims:
            assert len({optimizer(experiment.systems[name]) for name in claim.factors}) == 1, claim.sentence
            assert claim.source.startswith("arXiv:"), "a guess of ours is no claim"
    assert not set(TUNING) & set(REPORTED) and {len(rates) for rates in RATES.values()} == {5}


def test_verdicts_are_given_only_where_the_whole_interval_is_on_one_side():
    losses = rows(low=[1.0, 1.1, 1.2, 1.1, 1.0], high=[2.0, 2.2, 2.1, 2.0, 2.1], like=[1.1, 1.0, 1.1, 1.2, 1.0])

    def answer(claim):
        value = judge("one", claim, losses)
        assert value
        return value.below(claim.high)

    assert answer(below("", "", LOSS, "low", "high")) == Verdict.YES
    assert answer(below("", "", LOSS, "high", "low")) == Verdict.NO
    assert answer(below("", "", LOSS, "low", "like")) == Verdict.OPEN
    assert answer(below("", "", LOSS, "like", "low", 0.5)) == Verdict.YES
    assert answer(Claim("", "", LOSS, {"like": 1.0, "low": 0.0, "high": -1.0})) == Verdict.YES
    value = judge("one", below("", "", SECONDS, "low", "high"), losses)
    assert value and value.ratio.startswith("**0.5") and value.lower == Verdict.YES


def test_a_missed_target_leaves_no_end_and_an_optimum_at_an_edge_no_claim():
    table = rows(late=[1.0, float("nan"), 1.2, 1.1, 1.0], early=[0.5, 0.6, 0.5, 0.5, 0.5])
    late = judge("one", below("", "", SECONDS, "late", "early"), table)
    assert late and late.ratio.startswith("**> ") and late.open_interval[1] == np.inf
    early = judge("one", below("", "", SECONDS, "early", "late"), table)
    assert early and early.ratio.startswith("**< ") and early.open_interval[0] == -np.inf and early.lower == Verdict.YES
    assert judge("one", below("", "", SECONDS, "early", "late"), table.assign(edges="rate")) is None


def test_one_worker_of_four_has_wrong_labels():
    spoiled, clean = Spoiled(workers=4).load(3), Spoiled.__bases__[0]().load(3)
    order, begins = divide(3, len(spoiled.train), 4)
    wrong = spoiled.train.answers != clean.train.answers
    assert 0.8 < wrong[order[: begins[1]]].mean() < 1 and not wrong[order[begins[1] :]].any()
    assert np.array_equal(spoiled.evaluation.answers, clean.evaluation.answers)


@pytest.mark.slow
@pytest.mark.skipif(not STUDY.measured, reason="the study has not been run: python -m studies.local_updates")
def test_the_page_is_that_of_the_measurements():
    assert STUDY.page.read_text(encoding="utf-8") == page.text(STUDY.read_tables())
