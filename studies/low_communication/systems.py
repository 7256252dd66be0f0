"""The systems, each with its own knobs, as ordered values that the search may choose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.tuning import Settings

PERIODS = (2, 8, 32, 128, 512)  # gradients of a worker
TIMES = (0.5, 2.0, 8.0, 32.0, 128.0)  # s, as many gradients where all are alike
OUTER = ((0.0, 1.0), (0.5, 0.7), (0.9, 0.35), (0.9, 0.7))  # momentum and rate of outer steps; the last pair is DiLoCo's
FRAGMENTS = 2
_EDIT = ((1.0, 10.0), (1e6, 1e6))  # temperature of weights and largest length: the paper's, and plain means


@dataclass(frozen=True)
class System:
    """A system and its knobs.

    Args:
        about: its idea, in words.
        knobs: ordered values of each knob, by name.
        run: returns the algorithm and the protocol of a scenario's run, of a value for each knob.
        own_models: whether its loss is the mean loss of the workers' own models, since they have none in common.
        if_alike: system that it is the same as where all workers are equally fast; empty: none.
    """

    about: str
    knobs: Mapping[str, Sequence[Any]]
    run: Callable[[Settings], dict[str, Any]]
    own_models: bool = False
    if_alike: str = ""


def rates(centre: float) -> tuple[float, ...]:
    """Return seven learning rates, each 2.5 times the one before.

    Args:
        centre: the one in the middle, where the search begins.

    >>> rates(0.02)
    (0.00128, 0.0032, 0.008, 0.02, 0.05, 0.125, 0.3125)
    """
    return tuple(float(f"{centre * 2.5**power:.4g}") for power in range(-3, 4))


def _sync(knobs: Settings) -> dict[str, Any]:
    optimizer = {"name": "adam", "b1": knobs["momentum"]}
    return {"algorithm": {"name": "allreduce-sgd", "optimizer": optimizer, "learning_rate": knobs["rate"]}}


def _demo(knobs: Settings) -> dict[str, Any]:
    codec = {"name": "dct", "kept": knobs["kept"], "error_feedback": knobs["memory"]}
    return {"algorithm": {"name": "demo", "codec": codec, "learning_rate": knobs["rate"]}}


def _sparseloco(knobs: Settings) -> dict[str, Any]:
    codec = {
        "name": "top-k",
        "chunk": 4096,
        "share": 1 / 64,
        "values": {"name": "low-bit", "bits": 2, "zero": False},
        "error_feedback": knobs["memory"],
    }
    return _with_inner({"name": "sparseloco", "codec": codec}, {"period": knobs["period"]}, knobs)


def _diloco(knobs: Settings) -> dict[str, Any]:
    return _with_outer("diloco", {key: knobs[key] for key in ("period", "every") if key in knobs}, knobs)


def _local_sgd(knobs: Settings) -> dict[str, Any]:
    return _diloco(knobs | {"outer": (0.0, 1.0)})


def _streaming(knobs: Settings) -> dict[str, Any]:
    period = knobs["period"]
    protocol = {"period": period, "fragments": FRAGMENTS, "delay": period // FRAGMENTS - 1, "mixing": 0.5}
    return _with_outer("streaming-diloco", protocol, knobs, codec="e3m0")


def _decoupled(knobs: Settings) -> dict[str, Any]:
    return _with_outer("decoupled-diloco", {"period": knobs["period"], "fragments": FRAGMENTS}, knobs)


def _noloco(knobs: Settings) -> dict[str, Any]:
    momentum, rate = knobs["outer"]
    options = {"name": "noloco", "block_momentum": momentum, "block_rate": rate}
    return _with_inner(options, {"period": knobs["period"]}, knobs)


def _a_edit(knobs: Settings) -> dict[str, Any]:
    temperature, longest = knobs["averaging"]
    return _with_outer("edit", {"every": knobs["every"]}, knobs, temperature=temperature, longest=longest)


def _delayed_nesterov(knobs: Settings, paced: bool = False) -> dict[str, Any]:
    momentum, rate = knobs["outer"]
    options = {"name": "delayed-nesterov", "momentum": momentum, "outer_rate": rate}
    return _with_inner(options, {"period": knobs["period"], "paced": paced}, knobs)


def _with_outer(name: str, protocol: dict[str, Any], knobs: Settings, **more: Any) -> dict[str, Any]:
    momentum, rate = knobs["outer"]
    outer = {"name": "sgd", "momentum": momentum, "nesterov": True}
    return _with_inner({"name": name, "outer": outer, "outer_rate": rate, **more}, protocol, knobs)


def _with_inner(options: dict[str, Any], protocol: dict[str, Any], knobs: Settings) -> dict[str, Any]:
    return {"algorithm": options | {"optimizer": "adamw", "learning_rate": knobs["rate"]}, "protocol": protocol}


_ROUNDS: dict[str, Sequence[Any]] = {"rate": rates(0.02), "period": PERIODS, "outer": OUTER}
_BY_TIME: dict[str, Sequence[Any]] = {"rate": rates(0.02), "every": TIMES, "outer": OUTER}
SYSTEMS = {
    "sync": System("whole gradients, at every step", {"rate": rates(0.1), "momentum": (0.0, 0.5, 0.9, 0.97)}, _sync),
    "demo": System(
        "the largest DCT coefficients of momenta, at every step",
        {"rate": rates(0.02), "memory": (0.7, 0.9, 0.99, 0.999, 0.9999), "kept": (1, 2, 8, 32, 128)},
        _demo,
    ),
    "local-sgd": System("whole models, rarely, averaged", {"rate": rates(0.02), "period": PERIODS}, _local_sgd),
    "diloco": System("whole pseudo-gradients, rarely, with outer momentum", _ROUNDS, _diloco),
    "diloco-by-time": System("the same, at fixed times", _BY_TIME, _diloco),
    "streaming": System("half of the model at a time, in four bits, while workers continue", _ROUNDS, _streaming),
    "sparseloco": System(
        "the largest 1/64 of pseudo-gradients, in two bits",
        {"rate": rates(0.02), "period": PERIODS, "memory": (0.8, 0.95, 1.0)},
        _sparseloco,
    ),
    "noloco": System("whole models, to one other worker", _ROUNDS, _noloco, own_models=True),
    "a-edit": System(
        "pseudo-gradients at fixed times, weighted by their lengths and clipped", _BY_TIME | {"averaging": _EDIT}, _a_edit
    ),
    "delayed-nesterov": System("pseudo-gradients, to a server that waits for no worker", _ROUNDS, _delayed_nesterov),
    "delayed-nesterov-paced": System(
        "the same; it knows the speeds, and slow workers make fewer local steps",
        _ROUNDS,
        lambda knobs: _delayed_nesterov(knobs, paced=True),
        if_alike="delayed-nesterov",
    ),
    "decoupled": System(
        "a server asks for half of the model at a time, and continues with the answers it has", _ROUNDS, _decoupled
    ),
}
