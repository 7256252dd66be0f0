"""One verdict from several: of a claim with several parts, and of a claim that was judged under several choices of FRED's."""

from collections.abc import Sequence

from reproductions.verdicts import Found, Verdict

CHOICES = """An order that only one of two choices shows is *within the seeds*. If they show opposite orders, FRED's choice
decides, and the claim counts as *not compared*."""


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim with several parts, all of which must hold.

    Args:
        verdicts: one per part.

    >>> str(all_of([Verdict.AGREES, Verdict.WITHIN]))
    'within the seeds'
    """
    for verdict in (Verdict.DISAGREES, Verdict.WITHIN):
        if verdict in verdicts:
            return verdict
    return Verdict.AGREES


def under_both(usual: Found, other: Found, name: str) -> Found:
    """Return one verdict on a claim that was judged under two choices, neither of which the paper excludes.

    Args:
        usual: result under the choice of the scenario.
        other: result under the other choice.
        name: of the other choice.

    >>> under_both(Found("1 for 2", Verdict.AGREES), Found("3 for 2", Verdict.DISAGREES), "spread")[:]
    ('1 for 2 (agrees); spread 3 for 2 (disagrees)', <Verdict.OPEN: 'not compared'>)
    """
    if usual == other:
        return usual
    if usual.verdict == other.verdict:
        return Found(f"{usual.fred}; {name} {other.fred}", usual.verdict)
    verdict = Verdict.WITHIN if Verdict.WITHIN in (usual.verdict, other.verdict) else Verdict.OPEN
    return Found(f"{usual.fred} ({usual.verdict}); {name} {other.fred} ({other.verdict})", verdict)
