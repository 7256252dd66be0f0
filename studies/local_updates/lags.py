"""Optimizers whose gradients are all of one age, as in pipelines: does AdamW suffer more than others, and where?"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from studies.local_updates.claims import AFTERWARDS, LOSS, Claim, Experiment, Settings, gap

OPTIMIZERS, LAGS = {"adamw": "AdamW", "muon": "Muon", "lion": "Lion"}, (0, 1, 2, 4)
OLD = 16  # an age that was added when the others had been seen
UPDATES = {"heavy tail": 250, "no tail": 250, "digits": 600}
_B1, _B2 = "arXiv:2606.30634", "arXiv:2505.01099"
_GUESS = "a guess of ours"


def experiments() -> Iterator[Experiment]:
    """One on each kind of tokens, and on digits; and with an age at which more is to be seen."""
    for task in UPDATES:
        extra, corrections = _corrected() if task == "heavy tail" else ({}, ())
        yield _late_by(task, LAGS, "one age", extra, corrections)
    for task in UPDATES:
        yield replace(_late_by(task, (0, OLD), "great age", {}, ()), reported=AFTERWARDS)


def _late_by(
    task: str, lags: tuple[int, ...], name: str, extra: Mapping[str, Settings], corrections: tuple[Claim, ...]
) -> Experiment:
    systems = {f"{optimizer} {lag}": _late(optimizer, lag) for optimizer in OPTIMIZERS for lag in lags}
    claims = (*_claims(lags[1:], tailed=task == "heavy tail"), *corrections)
    ages = " or ".join((", ".join(str(lag) for lag in lags[:-1]), str(lags[-1])))
    setting = f"one worker, gradients of a fixed age of {ages} updates; loss after {UPDATES[task]} updates"
    settings: Settings = {"stop": {"updates": UPDATES[task]}, "cluster": {"workers": 1}}
    return Experiment(name, task, setting, settings, {**systems, **extra}, claims)


def _corrected() -> tuple[Mapping[str, Settings], tuple[Claim, ...]]:
    systems = {f"{name} extrapolated {lag}": _late(name, lag, "extrapolated") for name in ("adamw", "muon") for lag in (1, 4)}
    return systems | {"nadamw 4": _late({"name": "nadamw", "b1": 0.99}, 4)}, tuple(_corrections())


def _late(optimizer: str | Settings, lag: int, algorithm: str = "asgd") -> Settings:
    ahead = {"ahead": lag} if algorithm == "extrapolated" else {}
    return {
        "algorithm": {"name": algorithm, "optimizer": optimizer, **ahead},
        "protocol": {"name": "fixed-lag", "lag": lag},
    }


def _claims(lags: tuple[int, ...], tailed: bool) -> Iterator[Claim]:
    source = _B1 if tailed else _GUESS
    for lag in lags:
        late = (f"adamw {lag}", "adamw 0")
        for other in ("muon", "lion"):
            theirs = (f"{other} {lag}", f"{other} 0")
            if tailed:
                yield gap(f"lag {lag} costs {OPTIMIZERS[other]} less than AdamW", source, theirs, late)
            else:
                alike = gap(f"lag {lag} costs AdamW no more than {OPTIMIZERS[other]} (by 0.02)", source, late, theirs)
                yield alike._replace(high=0.02)


def _corrections() -> Iterator[Claim]:
    for name in ("adamw", "muon"):
        for lag in (1, 4):
            said = f"extrapolated steps win back half or more of what lag {lag} costs {OPTIMIZERS[name]}"
            yield gap(said, _B1, (f"{name} extrapolated {lag}", f"{name} 0"), (f"{name} {lag}", f"{name} 0"), share=0.5)
    yield Claim("NAdamW with b1 = 0.99 loses less at lag 4 than AdamW does", _B2, LOSS, {"nadamw 4": 1.0, "adamw 4": -1.0})
    yield Claim("... and is below AdamW without any lag", _B2, LOSS, {"nadamw 4": 1.0, "adamw 0": -1.0})
