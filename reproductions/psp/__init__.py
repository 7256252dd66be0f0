"""PSP-SGD: what late replies cost (table 1), and what it costs not to wait for them (figure 3)."""

import pandas as pd

from reproductions.common import RESULTS, Claim, claims, near, table, write
from reproductions.psp import errors, times


def timing() -> None:
    """Two minutes or three: table 1's times."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    times.measure()


def training() -> None:
    """Some minutes: errors."""
    errors.measure()


def report() -> str:
    """Write psp.md and its figures from what was measured."""
    timed, learned = pd.read_csv(times.TIMES), pd.read_csv(errors.ERRORS)
    times.picture(timed).save(RESULTS / "psp-table1.svg")
    errors.picture(learned).save(RESULTS / "psp-figure3.svg")
    seeds = {"time_seeds": timed["seed"].nunique(), "error_seeds": learned["seed"].nunique()}
    updates = {"time_updates": timed["updates"].max(), "error_updates": learned["updates"].max()}
    ratios, ends, order = claims(_ratios(timed)), _ends(learned), claims(_order(learned))
    return write("psp", TEXT.format(ratios=ratios, ends=ends, order=order, **seeds, **updates))


def _ratios(timed: pd.DataFrame) -> list[Claim]:
    means, rows = times.ratios(timed), list[Claim]()
    for name in (each for each in means.index if each != "sync"):
        run = str(name).removesuffix(times.KEEPING)
        paper, ours = times.PAPER[run] / times.PAPER["sync"], float(means[name])
        calibrated = "yes" if name in times.CALIBRATED else "no"
        rows.append((str(name), f"{paper:.3f}", f"{ours:.3f}", near(ours, paper, 0.03 / paper), calibrated))
    return rows


def _ends(learned: pd.DataFrame) -> str:
    late, even = errors.ends(learned, late=True), errors.ends(learned, late=False)
    rows = [
        [name, f"{paper:.4f}", *(f"{own['error'][name]:.4f} ± {own['standard_error'][name]:.4f}" for own in (late, even))]
        for name, paper in errors.PAPER.items()
    ]
    return table(["run", "paper: error, late replies", "FRED: error, late replies", "without late replies"], rows)


def _order(learned: pd.DataFrame) -> list[Claim]:
    late, paper = errors.ends(learned, late=True)["error"], errors.PAPER
    most = ("push-7", "push-7-pull-90")
    mild = max(late[name] - late["sync"] for name in most)
    least = late["push-5-pull-75"] - late["sync"]
    said = f"{max(paper[name] - paper['sync'] for name in most):+.4f}, {paper['push-5-pull-75'] - paper['sync']:+.4f}"
    return [
        ("errors above `sync`: most waited for, few", said, f"{mild:+.4f}, {least:+.4f}", None, "no"),
        ("few waited for has the largest error", "yes", *_yes(late.idxmax() == "push-5-pull-75"), "no"),
        ("its distance from `sync` is the larger one", "yes", *_yes(least > mild), "no"),
    ]


def _yes(holds: bool) -> tuple[str, bool]:
    return "yes" if holds else "no", bool(holds)


TEXT = """# PSP-SGD: late replies

Made by `make reproduce` (this part alone: `python -m reproductions psp`; without the training, `--timing`) from
`scenarios/psp-sgd/` and the CSV files beside this page.

## Table 1: times

32 workers and 32 machines with servers, 0.16 % of the servers' replies 4 s late. The table states no unit, so ratios to the
time of waiting for everything are compared. **Scaled down**: {time_updates} updates, {time_seeds} seed, timing only.

{ratios}

"Agrees" means within 0.03. **Calibrated**, on the last two ratios under the paper's rule: two blocks on each machine ("each
server is responsible for several blocks"; how many, it does not say), and 8.3 s for a gradient. The other ratios are then
predictions: a worker that got one block late stays late, because it never catches up, and as soon as more than four are late
the servers wait again. Workers drop blocks of versions older than their own, as in the paper's algorithm 1; in the runs that
end with `-keep` they take every block newer than what they have.

![run times](psp-table1.svg)

## Table 1 and figure 3: errors

**Scaled down**: handwritten digits and one hidden layer in place of CIFAR-10 and ResNet-50, 8 workers and 8 servers in place
of 32, {error_updates} updates, {error_seeds} seeds (± their standard error); the shares waited for, momentum, and how
rates fall as in the paper, no weight decay. Only the order can be compared.

{ends}

{order}

![errors](psp-figure3.svg)
"""
