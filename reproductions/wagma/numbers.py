"""Claims that are a number in the paper's text, of `paper.py`: what they say, and the results."""

from reproductions.common import near
from reproductions.verdicts import Claim, Evidence, Measured, Reason, Verdict, combine_choices, judge, judge_close
from reproductions.wagma import paper
from reproductions.wagma.paper import Fact
from reproductions.wagma.throughput import NOT_HIDDEN, Throughput

CLOSE = 0.07  # share within which numbers agree
ADVANTAGE = 0.25  # share within which a ratio less 1 agrees
EXCHANGED = "AD-PSGD's exchanges take their time"
_FASTEST = "ad-psgd"  # whose step without delays has no communication
_CALIBRATED = {("figure 8", "local-sgd"), ("figure 7", "wagma-global")}
_SECTION = {
    "figure 4": "four",
    "ablation 3": "four",
    "figure 5": "five",
    "figure 7": "seven",
    "figure 8": "seven",
    "figure 10": "ten",
}
_STEPS = "{}: steps per second (and time of a step beyond AD-PSGD's)"
_PRINTED = next(fact.value for fact in paper.STEPS_PER_SECOND if fact.run == _FASTEST)
_FIGURE = {"ablation 3": "figure 4", "figure 8": "figure 7"}  # whose runs are meant


def claims() -> dict[str, dict[str, Claim]]:
    """Return the claims by section of the page and name."""
    sections: dict[str, dict[str, Claim]] = {"even": {}, "four": {}, "five": {}, "seven": {}, "ten": {}}
    for fact in paper.STEPS_PER_SECOND:
        calibrated = "yes" if fact.run == _FASTEST else "in part"
        sections["even"][_name(fact)] = _claim(_STEPS.format(fact.run), fact, _steps(fact.value, _PRINTED), calibrated)
    for fact, verb in (*((fact, "is") for fact in paper.FASTER), *((fact, "trains") for fact in paper.TRAINING_TIME)):
        calibrated = "yes" if (fact.experiment, fact.run) in _CALIBRATED else "no"
        sentence = f"{fact.experiment}: WAGMA {verb} faster than {fact.run}, {fact.workers:,} workers"
        sections[_SECTION[fact.experiment]][_name(fact)] = _claim(sentence, fact, f"{fact.value:.2f}", calibrated)
    for fact in paper.MINUTES:
        calibrated = "yes" if fact.run == "ad-psgd" else "no"
        sections["five"][_name(fact)] = _claim(
            f"{fact.experiment}: minutes of {fact.run}", fact, f"{fact.value:.0f}", calibrated
        )
    return sections


def _claim(sentence: str, fact: Fact, printed: str, calibrated: str) -> Claim:
    """Return a claim; if it disagrees, it does for the bandwidths of each library, which are not printed."""
    return Claim(sentence, fact.section, printed, calibrated, reason=Reason.INPUTS)


def judge_numbers(measured: Throughput) -> Measured:
    """Return the evidence for each claim, by its name."""
    result = {}
    for fact in paper.STEPS_PER_SECOND:
        ours, fastest = (measured.rate("4, no delays", fact.workers, run) for run in (fact.run, _FASTEST))
        if fact.run == _FASTEST:
            verdict = judge_close(ours, fact.value, CLOSE)
        else:
            verdict = same_communication(communication(ours, fastest), communication(fact.value, _PRINTED))
        result[_name(fact)] = Evidence(_steps(ours, fastest), verdict)
    for fact in (*paper.FASTER, *paper.TRAINING_TIME):
        figure = _FIGURE.get(fact.experiment, fact.experiment).removeprefix("figure ")
        ours = measured.faster(figure, fact.workers, fact.run)
        # Figure 10's tail is unknown: see the page.
        verdict = Verdict.NOT_COMPARED if fact.experiment == "figure 10" else ratio(ours, fact.value)
        result[_name(fact)] = Evidence(f"{ours:.2f}", verdict)
        if fact.run == _FASTEST:
            slower = measured.rate(figure, fact.workers, "wagma") / measured.rate(NOT_HIDDEN, fact.workers, fact.run)
            other = Evidence(f"{slower:.2f}", ratio(slower, fact.value))
            result[_name(fact)] = combine_choices(result[_name(fact)], {EXCHANGED: other})
    for fact in paper.MINUTES:
        ours = minutes(fact.run, measured.rate("5", fact.workers, fact.run))
        result[_name(fact)] = Evidence(f"{ours:.0f}", judge_close(ours, fact.value, CLOSE))
    return result


def ratio(ours: float, printed: float) -> Verdict:
    """Return whether a ratio agrees, and its part above 1 as well, because ratios near 1 are always close to each other."""
    return judge(near(ours, printed, CLOSE) and near(ours - 1, printed - 1, ADVANTAGE))


def minutes(run: str, steps_per_second: float) -> float:
    """Return the minutes of a run's epochs with a total batch of 4,096."""
    return paper.EPOCHS.get(run, 90) * paper.STEPS_PER_EPOCH / steps_per_second / 60


def same_communication(ours: float, printed: float) -> Verdict:
    """Return whether times of communication agree."""
    return judge_close(ours, printed, ADVANTAGE)


def communication(steps_per_second: float, fastest: float) -> float:
    """Return the time of a step beyond that of the run without communication, s."""
    return 1 / steps_per_second - 1 / fastest


def _steps(steps_per_second: float, fastest: float) -> str:
    return f"{steps_per_second:.2f} ({1000 * communication(steps_per_second, fastest):.0f} ms)"


def _name(fact: Fact) -> str:
    return f"{fact.experiment}: {fact.run}"
