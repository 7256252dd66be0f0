"""One verdict from several: of a claim with several parts, and of a claim that was judged under several choices of FRED's."""

from collections.abc import Mapping, Sequence

from reproductions.verdicts import Found, Verdict

CHOICES = """Some orders depend on choices of FRED's. They are judged under each choice. If two choices show opposite orders,
the claim counts as *not compared*. If only some choices show an order, it is *open*."""


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim with several parts, all of which must hold.

    Args:
        verdicts: one per part.

    >>> str(all_of([Verdict.AGREES, Verdict.OPEN]))
    'open'
    """
    for verdict in (Verdict.DISAGREES, Verdict.OPEN):
        if verdict in verdicts:
            return verdict
    return Verdict.AGREES


def under_choices(usual: Found, others: Mapping[str, Found]) -> Found:
    """Return one verdict on a claim that was judged under several choices, none of which the paper excludes.

    Args:
        usual: result under the scenario's own choices.
        others: results under others, by their names.

    >>> agrees, disagrees = Found("1 for 2", Verdict.AGREES), Found("3 for 2", Verdict.DISAGREES)
    >>> under_choices(agrees, {"spread": disagrees})[:]
    ('1 for 2 (agrees); spread: 3 for 2 (disagrees)', <Verdict.NOT_COMPARED: 'not compared'>)
    """
    others = {name: found for name, found in others.items() if found != usual}
    verdicts = {usual.verdict, *(found.verdict for found in others.values())}
    if len(verdicts) == 1:
        return Found("; ".join([usual.fred, *(f"{name}: {found.fred}" for name, found in others.items())]), usual.verdict)
    verdict = Verdict.NOT_COMPARED if {Verdict.AGREES, Verdict.DISAGREES} <= verdicts else Verdict.OPEN
    said = [f"{usual.fred} ({usual.verdict})"]
    said += [f"{name}: {found.fred} ({found.verdict})" for name, found in others.items()]
    return Found("; ".join(said), verdict)
