"""The systems, each with its knobs as ordered values, and the system at whose tuned point its search begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from studies.kit.tuning import Knobs, Settings
from studies.low_communication.cases import LONGEST, SLOWNESS, Case

PLAIN_AVERAGE = (0.0, 1.0)  # momentum and rate of outer steps: plain averages
OUTER = (PLAIN_AVERAGE, (0.5, 0.7), (0.9, 0.35), (0.9, 0.7))  # the last pair is DiLoCo's
MOMENTA, MEMORIES = (0.0, 0.5, 0.9, 0.97), (0.8, 0.95, 1.0)
TIMES = tuple(float(2**power) for power in range(1, LONGEST.bit_length()))  # s
FRAGMENTS = 2


@dataclass(frozen=True)
class System:
    """A system and its knobs.

    Args:
        description: its idea, in words.
        knobs: names of its knobs besides the rate.
        run: returns algorithm and protocol of a run, of a value for each knob.
        base: system at whose tuned point the search begins; empty: the middle of the grid.
        contains: True if the base is a special case of this system.
        centre: learning rate in the middle of the grid.
    """

    description: str
    knobs: tuple[str, ...]
    run: Callable[[Settings], dict[str, Any]]
    base: str = ""
    contains: bool = False
    centre: float = 0.02

    def grid(self, case: Case) -> Knobs:
        """Return the ordered values of each knob.

        Args:
            case: the case, whose runs hold twenty rounds of each.
        """
        values: dict[str, Sequence[Any]] = {
            "momentum": MOMENTA,
            "period": case.periods,
            "every": TIMES,
            "outer": OUTER,
            "memory": MEMORIES,
        }
        rates = [float(f"{self.centre * 2.5**power:.4g}") for power in range(-3, 4)]
        return {"rate": rates, **{knob: values[knob] for knob in self.knobs}}

    def start(self, base: Settings, case: Case) -> Settings:
        """Return the point of this system that is, or is most like, a tuned point of its base.

        Args:
            base: value of each knob of the base.
            case: the case.
        """
        point = {"outer": PLAIN_AVERAGE, "memory": MEMORIES[1], **base}
        if "every" in self.knobs:
            point["every"] = float(base["period"] * (SLOWNESS if case.slow else 1))
        return {knob: point[knob] for knob in self.grid(case)}


def _sync(knobs: Settings) -> dict[str, Any]:
    optimizer = {"name": "adamw", "b1": knobs["momentum"]}
    return {"algorithm": {"name": "allreduce-sgd", "optimizer": optimizer, "learning_rate": knobs["rate"]}}


def _with_inner(algorithm: dict[str, Any], protocol: dict[str, Any], knobs: Settings) -> dict[str, Any]:
    return {"algorithm": algorithm | {"optimizer": "adamw", "learning_rate": knobs["rate"]}, "protocol": protocol}


def _with_outer(name: str, knobs: Settings, options: dict[str, Any] | None = None, **protocol: Any) -> dict[str, Any]:
    momentum, rate = knobs["outer"]
    outer = {"outer": {"name": "sgd", "momentum": momentum, "nesterov": True}, "outer_rate": rate}
    when = {key: knobs[key] for key in ("period", "every") if key in knobs}
    return _with_inner({"name": name, **outer, **(options or {})}, when | protocol, knobs)


def _streaming(knobs: Settings) -> dict[str, Any]:
    delay = knobs["period"] // FRAGMENTS - 1
    protocol = {"fragments": FRAGMENTS, "delay": delay, "mixing": 0.5}
    return _with_outer("streaming-diloco", knobs, {"codec": "e3m0"}, **protocol)


def _sparseloco(knobs: Settings) -> dict[str, Any]:
    values = {"name": "low-bit", "bits": 2, "zero": False}
    codec = {"name": "top-k", "chunk": 4096, "share": 1 / 64, "values": values, "error_feedback": knobs["memory"]}
    return _with_inner({"name": "sparseloco", "codec": codec}, {"period": knobs["period"]}, knobs)


SYSTEMS = {
    "sync": System("whole gradients, at every step", ("momentum",), _sync),
    "local-sgd": System(
        "whole models, rarely, averaged", ("period",), lambda knobs: _with_outer("diloco", knobs | {"outer": PLAIN_AVERAGE})
    ),
    "diloco": System(
        "the same, with outer momentum", ("period", "outer"), lambda knobs: _with_outer("diloco", knobs), "local-sgd", True
    ),
    "diloco-by-time": System(
        "the same, at fixed times", ("every", "outer"), lambda knobs: _with_outer("diloco", knobs), "diloco"
    ),
    "streaming": System(
        "half of the model at a time, in four bits, while workers continue", ("period", "outer"), _streaming, "diloco"
    ),
    "sparseloco": System("the largest 1/64 of pseudo-gradients, in two bits", ("period", "memory"), _sparseloco, "local-sgd"),
    "decoupled": System(
        "a server asks for half of the model at a time, and continues with the answers it has",
        ("period", "outer"),
        lambda knobs: _with_outer("decoupled-diloco", knobs, fragments=FRAGMENTS),
        "diloco",
    ),
}
