"""Small plans, shared by tests of plans and of prices."""

from fred.cluster.cluster import Cluster
from fred.diagnosis.question import TIME, By, Candidate, Question
from fred.diagnosis.ranking import ranked
from fred.results import experiment
from fred.specification.loading import scenario
from tests.worlds import TASK


def plan(cluster: Cluster, candidates: list[Candidate], budget: float, target: float = 0.5, by: By = TIME):
    """The result and the ranking of some systems."""
    question = Question(cluster, TASK, {"target_error": target}, budget, (1, 2), by=by)
    result = experiment.run(scenario(question.document(candidates)))
    return result, ranked(result, candidates, "error")


SYNC = Candidate("sync", "ssgd", "protocol.late", ("finish",))
BACKUP = Candidate("backup-workers", "ssgd", "protocol.backup_workers", (1,), (1,))


def limit_points(monkeypatch):
    monkeypatch.setattr("fred.diagnosis.question.POINTS", 2)
    monkeypatch.setattr("fred.commands.plan_for._TUNING", 1)
    monkeypatch.setattr(
        "fred.diagnosis.question.of_cluster", lambda cluster: [Candidate("sync", "ssgd"), Candidate("asgd", "asgd")]
    )
