"""The figure of a plan: each system's time against its cost, with the Pareto front."""

import math

import pandas as pd

from fred.diagnosis.criteria import TIME
from fred.diagnosis.ranking import Ranking
from fred.views import cost_figure
from fred.views.figures import Picture


def picture(ranking: Ranking, aim: str) -> Picture:
    """Draw the median time and cost of each system at its best point, over the reported seeds.

    The cost is the energy if systems are ranked by it, or if everything is free.

    Args:
        ranking: ranking of systems on a cluster with prices; some have a median time.
        aim: the target in words.
    """
    price = ranking.price
    assert price is not None
    front = {place.run for place in ranking.front}
    rows = [
        (place.run, place.run, place.median, place.median_of(price), place.run in front)
        for place in ranking.places
        if place.median < math.inf
    ]
    points = pd.DataFrame(rows, columns=["run", "point", "seconds", "cost", "front"])
    points.attrs = {"time": TIME.to_target, "cost": price.to_target}
    missed = len(ranking.places) + len(ranking.unreached) - len(rows)
    left = f"{missed} more system{'s' * (missed > 1)} missed the target" if missed else ""
    seeds = len(ranking.places[0].seconds)
    means = f"medians over {seeds} seeds, each system tuned by {ranking.by.name}" if seeds > 1 else ""
    return cost_figure.cost(points, f"Time against {price.name} to {aim}", means, left)
