"""A figure of the number of workers to wait for: the time to the target for each number."""

from fred.diagnosis.backup_workers import Plan
from fred.views.figures import COLOURS, Picture, style


def picture(found: Plan) -> Picture:
    """Plot iterations, mean time of the N-th arrival, and their product against N, with a star at the best N.

    Args:
        found: plan with iterations, mean arrival (s) and time to the target (s) by N, the number of workers waited for.
    """
    best = found.best
    panels = (("iterations to the target", found.iterations), ("mean time of the N-th, s", found.arrival))
    with style():
        drawn = Picture(figsize=(9.6, 2.8), layout="constrained")
        axes = drawn.subplots(1, 3)
        for axis, (label, values) in zip(axes, (*panels, ("time to the target, s", found.seconds)), strict=True):
            axis.plot(found.waited_for, values, color=COLOURS[0])
            axis.set(xlabel=f"N, of {found.workers} workers", ylabel=label)
        axes[2].plot(found.waited_for[best], found.seconds[best], "*", color=COLOURS[1], markersize=12)
        axes[2].set_title(f"N = {found.waited_for[best]}, b = {found.workers - found.waited_for[best]}")
    return drawn
