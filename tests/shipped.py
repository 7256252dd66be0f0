"""Train the deep Markov model that comes with FRED, on its own scenario: part of `make golden`, or python -m tests.shipped."""

from pathlib import Path

import fred
from fred.prediction.deep import saved
from fred.prediction.deep.rule import DMM, train_best
from fred.traces.reading import read

SCENARIO = Path(__file__).parent.parent / "scenarios" / "systems" / "cutoff-sgd.yaml"
ROUNDS = 3000
SEED = 1000  # none that the scenario runs with


def main() -> None:
    """Record the scenario's cluster while all workers are waited for, and train on that."""
    if not saved.SHIPPED.exists():  # the scenario cannot be read without one
        trace = read("example")
        assert trace.node_of is not None
        train_best(DMM(steps=50), trace.seconds, trace.node_of).save(saved.SHIPPED)
    settings = [f"seeds=[{SEED}]", f"stop={{updates: {ROUNDS}}}", "task=null"]
    result = fred.run(fred.load(SCENARIO, settings), only="all")
    cluster = result.outcome("all").run.cluster
    seconds = result.run_times("all")["seconds"].to_numpy().reshape(-1, cluster.size)
    trained = train_best(DMM(alone=True), seconds, cluster.node_of)
    trained.save(saved.SHIPPED)
    print(f"wrote {saved.SHIPPED}, digest {trained.digest[:16]}")


if __name__ == "__main__":
    main()
