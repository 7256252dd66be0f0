"""WAGMA-SGD, figure 4: throughput with two of 64 workers delayed at each step. Timing only."""

import pandas as pd

import fred
from fred.results import figures
from reproductions.common import RESULTS, ROOT, say, table

PAPER = {"allreduce": 1.26, "sgp": 1.25, "d-psgd": 1.23}  # WAGMA's speed-up over them at 64 workers, with delays
PAPER_EVEN = {"wagma": 1.55, "ad-psgd": 1.61, "d-psgd": 1.57, "sgp": 1.51}  # steps/s without delays (section 5.2)
THROUGHPUT = RESULTS / "wagma-throughput.csv"


def measure() -> None:
    """About two minutes."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    frames = []
    for delays in (True, False):
        settings = [] if delays else ["cluster.contention=[]"]
        result = fred.run(fred.load(ROOT / "scenarios" / "wagma-sgd" / "figure4.yaml", settings))
        frame = result.summary[["name", "seed", "gradients_applied", "virtual_seconds"]]
        frames.append(frame.assign(delays=delays, steps_per_second=frame["gradients_applied"] / 64 / frame["virtual_seconds"]))
        say(f"wagma: {'with' if delays else 'without'} delays")
    pd.concat(frames).to_csv(THROUGHPUT, index=False, float_format="%.6g")


def report() -> str:
    """Write wagma.md and its figure from the measured throughput."""
    throughput = pd.read_csv(THROUGHPUT).groupby(["delays", "name"])["steps_per_second"].mean()
    delayed, even = throughput[True], throughput[False]
    rows = []
    for name in delayed.index:
        speedup = delayed["wagma"] / delayed[name]
        paper = PAPER.get(name)
        verdict = "–" if paper is None else "yes" if abs(speedup - paper) < 0.05 * paper else "no"
        cells = [
            f"{value:.2f}" if value else "–" for value in (PAPER_EVEN.get(name), even[name], delayed[name], paper, speedup)
        ]
        rows.append([name, *cells, verdict])
    header = ["run", "paper: steps/s, no delays", "FRED: the same", "FRED: steps/s, delays"]
    header += ["paper: WAGMA's speed-up", "FRED: the same", "agrees"]
    _picture(delayed, even).save(RESULTS / "wagma-figure4.svg")
    path = RESULTS / "wagma.md"
    path.write_text(TEXT.format(rows=table(header, rows)), encoding="utf-8")
    return str(path.relative_to(ROOT))


def _picture(delayed: pd.Series, even: pd.Series) -> figures.Picture:
    with figures.style():
        picture = figures.Picture(figsize=(6, 2.8), layout="constrained")
        axis = picture.subplots()
        names = delayed.sort_values().index
        axis.barh(range(len(names)), even[names], 0.7, color="#DDDDDD", label="without delays")
        axis.barh(range(len(names)), delayed[names], 0.45, color=figures.COLOURS[0], label="two of 64 workers 320 ms late")
        axis.set(yticks=range(len(names)), yticklabels=names, xlabel="steps of all workers per second")
        picture.legend(loc="outside lower center", ncols=2)
    return picture


TEXT = """# WAGMA-SGD, figure 4: throughput with random delays

Made by `make reproduce` from `scenarios/wagma-sgd/figure4.yaml`: 64 workers, two random ones delayed by 320 ms at each step,
models of 102 MB (ResNet-50), WAGMA with groups of 8 and a global average every 10 steps; 400 s of virtual time, three seeds.

{rows}

"Agrees" means within 5 %. **Calibrated**, on the throughput without delays that the paper prints: 0.6 s of compute per step and
5 GB/s. Nothing was calibrated with delays.

What holds: WAGMA is faster than every algorithm that waits in step, and only AD-PSGD is faster still. What does not: gossip in
step (SGP, D-PSGD) loses less to the delays here than in the paper, where it is as slow as Allreduce-SGD, and Allreduce-SGD
loses more. In the model a delay reaches a worker only through the graph, iteration by iteration, and delays that overlap cost
once; a group that averages without waiting costs its workers nothing but the transfer. What else the paper's implementations
wait for, it does not say.

![throughput](wagma-figure4.svg)
"""
