"""Claims that are a number in the paper's text, of `paper.py`: what they say, and what was found."""

from reproductions.verdicts import Claim, Found, Measured, close
from reproductions.wagma import paper
from reproductions.wagma.paper import Fact
from reproductions.wagma.throughput import Throughput

CLOSE = 0.07  # share within which numbers agree
_CALIBRATED = {("figure 8", "local-sgd"), ("figure 7", "wagma-global")}
_SECTION = {
    "figure 4": "four",
    "ablation 3": "four",
    "figure 5": "five",
    "figure 7": "seven",
    "figure 8": "seven",
    "figure 10": "ten",
}
_FIGURE = {"ablation 3": "figure 4", "figure 8": "figure 7"}  # whose runs are meant


def claims() -> dict[str, dict[str, Claim]]:
    """Return the claims by section of the page and name."""
    made: dict[str, dict[str, Claim]] = {"even": {}, "four": {}, "five": {}, "seven": {}, "ten": {}}
    for fact in paper.STEPS_PER_SECOND:
        calibrated = "yes" if fact.run == "ad-psgd" else "in part"
        made["even"][_name(fact)] = Claim(f"{fact.run}: steps per second", fact.section, f"{fact.value:.2f}", calibrated)
    for fact, verb in (*((each, "is") for each in paper.FASTER), *((each, "trains") for each in paper.TRAINING_TIME)):
        calibrated = "yes" if (fact.what, fact.run) in _CALIBRATED else "no"
        what = f"{fact.what}: WAGMA {verb} faster than {fact.run}, {fact.workers:,} workers"
        made[_SECTION[fact.what]][_name(fact)] = Claim(what, fact.section, f"{fact.value:.2f}", calibrated)
    for fact in paper.MINUTES:
        calibrated = "yes" if fact.run == "ad-psgd" else "no"
        made["five"][_name(fact)] = Claim(f"{fact.what}: minutes of {fact.run}", fact.section, f"{fact.value:.0f}", calibrated)
    return made


def found(measured: Throughput) -> Measured:
    """Return the measured value of each claim."""
    result = {}
    for fact in paper.STEPS_PER_SECOND:
        ours = measured.of("4, no delays", fact.workers, fact.run)
        result[_name(fact)] = Found(f"{ours:.2f}", close(ours, fact.value, CLOSE))
    for fact in (*paper.FASTER, *paper.TRAINING_TIME):
        figure = _FIGURE.get(fact.what, fact.what).removeprefix("figure ")
        ours = measured.faster(figure, fact.workers, fact.run)
        result[_name(fact)] = Found(f"{ours:.2f}", close(ours, fact.value, CLOSE))
    for fact in paper.MINUTES:
        ours = minutes(fact.run, measured.of("5", fact.workers, fact.run))
        result[_name(fact)] = Found(f"{ours:.0f}", close(ours, fact.value, CLOSE))
    return result


def minutes(run: str, steps_per_second: float) -> float:
    """Return the minutes of a run's epochs with a total batch of 4,096."""
    return paper.EPOCHS.get(run, 90) * paper.STEPS_PER_EPOCH / steps_per_second / 60


def _name(fact: Fact) -> str:
    return f"{fact.what}: {fact.run}"
