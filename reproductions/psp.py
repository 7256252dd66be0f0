"""PSP-SGD, table 1: what rare late replies cost who waits for everything, and who does not. Timing only."""

import pandas as pd

import fred
from fred.results import figures
from reproductions.common import RESULTS, ROOT, say, table

PAPER = {"sync": 199.97, "push-28": 164.97, "push-28-pull-90": 139.95, "push-20-pull-75": 136.54}
TIMES = RESULTS / "psp-times.csv"


def measure() -> None:
    """A few minutes."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    result = fred.run(fred.load(ROOT / "scenarios" / "psp-sgd" / "table1.yaml"), progress=lambda *event: _progress(*event))
    result.summary[["name", "seed", "updates", "virtual_seconds", "gradients_applied", "gradients_dropped"]].to_csv(
        TIMES, index=False
    )


def _progress(run: str, seed: int, done: float) -> None:
    if done == 1.0:
        say(f"psp: {run}, seed {seed}")


def report() -> str:
    """Write psp.md and its figure from the measured times."""
    times = pd.read_csv(TIMES)
    ratios = times.pivot(index="seed", columns="name", values="virtual_seconds")
    ratios = ratios.div(ratios["sync"], axis=0)
    paper = {name: seconds / PAPER["sync"] for name, seconds in PAPER.items()}
    rows = []
    for name, expected in paper.items():
        mean, spread = ratios[name].mean(), ratios[name].max() - ratios[name].min()
        verdict = "–" if name == "sync" else "calibrated" if "pull" in name else "yes" if abs(mean - expected) < 0.03 else "no"
        rows.append([name, f"{expected:.3f}", f"{mean:.3f}", f"{spread:.3f}", verdict])
    _picture(ratios, paper).save(RESULTS / "psp-table1.svg")
    path = RESULTS / "psp.md"
    path.write_text(TEXT.format(rows=table(["run", "paper", "FRED", "range of seeds", "agrees"], rows)), encoding="utf-8")
    return str(path.relative_to(ROOT))


def _picture(ratios: pd.DataFrame, paper: dict[str, float]) -> figures.Picture:
    with figures.style():
        picture = figures.Picture(figsize=(6, 2.6), layout="constrained")
        axis = picture.subplots()
        for number, (name, expected) in enumerate(paper.items()):
            axis.barh(number - 0.2, expected, 0.35, color=figures.COLOURS[7], label="paper" if number == 0 else None)
            axis.barh(number + 0.2, ratios[name].mean(), 0.35, color=figures.COLOURS[0], label="FRED" if number == 0 else None)
        axis.set(yticks=range(len(paper)), yticklabels=list(paper), xlabel="run time / that of waiting for everything")
        axis.invert_yaxis()
        picture.legend(loc="outside lower center", ncols=2)
    return picture


TEXT = """# PSP-SGD, table 1: late replies

Made by `make reproduce` from `scenarios/psp-sgd/table1.yaml`: 32 workers, 32 servers, 0.16 % of the servers' replies 4 s late,
300 updates, three seeds, timing only (validation errors are not re-measured here). The table states no unit, so ratios are
compared.

{rows}

"Agrees" means within 0.03. **Calibrated**: the compute time of a gradient (median 7.4 s, sigma 0.03), which the paper does not
give, on the last two ratios, in which late replies hardly matter. The second ratio is then a prediction: a worker that got one
block late stays late, because it never catches up with the others, and as soon as more than four are late the servers wait
again.

![run times](psp-table1.svg)
"""
