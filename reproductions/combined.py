"""One verdict from several: of a claim with several parts, and of a claim that was judged under several choices of FRED's."""

from collections.abc import Mapping, Sequence

from reproductions.verdicts import Evidence, Verdict

CHOICES = """Some orders depend on choices of FRED's. They are judged under each choice. If two choices show opposite orders,
the claim counts as *not compared*. If only some choices show an order, it is *open*."""


def combine_parts(verdicts: Sequence[Verdict]) -> Verdict:
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


def combine_choices(usual: Evidence, alternatives: Mapping[str, Evidence]) -> Evidence:
    """Return one verdict on a claim that was judged under several choices, none of which the paper excludes.

    Args:
        usual: result under the scenario's own choices.
        alternatives: results under others, by their names.

    >>> agrees, disagrees = Found("1 for 2", Verdict.AGREES), Found("3 for 2", Verdict.DISAGREES)
    >>> under_choices(agrees, {"spread": disagrees})[:]
    ('1 for 2 (agrees); spread: 3 for 2 (disagrees)', <Verdict.NOT_COMPARED: 'not compared'>)
    """
    alternatives = {name: evidence for name, evidence in alternatives.items() if evidence != usual}
    verdicts = {usual.verdict, *(evidence.verdict for evidence in alternatives.values())}
    if len(verdicts) == 1:
        return Evidence(
            "; ".join([usual.fred, *(f"{name}: {evidence.fred}" for name, evidence in alternatives.items())]), usual.verdict
        )
    verdict = Verdict.NOT_COMPARED if {Verdict.AGREES, Verdict.DISAGREES} <= verdicts else Verdict.OPEN
    parts = [f"{usual.fred} ({usual.verdict})"]
    parts += [f"{name}: {evidence.fred} ({evidence.verdict})" for name, evidence in alternatives.items()]
    return Evidence("; ".join(parts), verdict)
