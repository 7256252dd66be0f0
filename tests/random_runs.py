"""Random runs of every kind that a scenario can describe, each a function of one seed; for the fuzzer of inline against replay."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fred import registry
from fred.errors import FredError
from fred.specification.loading import validated
from fred.specification.shape import Run

OWN = ("PlainConvolution", "Flax", "Attention", "Recurrent")
ALGORITHMS = tuple(registry.REGISTRY["algorithm"])
CUTOFF_RULES = ("all", "elfving", "empirical", "ewma", {"name": "ewma", "of": "node"}, "hmm", "backup", "oracle")
OPTIMIZERS = (
    *("sgd", "adam", "adamw", "lamb", "lars", "rmsprop", "adagrad", "novograd", "fromage", "lion", "yogi", "radam", "nadam"),
    *("adabelief", "adan", "rprop", "sm3", "signum", "adamax", "amsgrad", "optimistic_adam_v2", "sign_sgd", "noisy_sgd"),
)
BEFORE = (
    "clip_by_global_norm",
    "adaptive_grad_clip",
    "centralize",
    "clip_by_block_rms",
    "normalize_by_update_norm",
    "ema",
    "trace",
)
OPTIONS = {"clip_by_global_norm": {"max_norm": 1.0}, "adaptive_grad_clip": {"clipping": 0.1}, "ema": {"decay": 0.9}}
OPTIONS |= {"clip_by_block_rms": {"threshold": 0.1}, "trace": {"decay": 0.5}, "noisy_sgd": {"eta": 0.01, "gamma": 0.5}}


def random_run(seed: int) -> tuple[Run, int]:
    """A valid run and the seed to run it with, both functions of `seed`."""
    draw = np.random.default_rng(seed)
    while True:
        try:
            run = validated({"runs": {"run": specification(draw)}}, str).runs["run"]
            run.cluster.loads(0)
            return run, int(draw.integers(2**32))
        except FredError:
            continue


def specification(draw: np.random.Generator) -> dict[str, Any]:
    """A run, perhaps one that does not fit together."""

    def one(*options: Any) -> Any:
        return options[draw.integers(len(options))]

    def between(low: int, high: int) -> int:
        return int(draw.integers(low, high + 1))

    def transformation(name: str) -> dict[str, Any]:
        return {"name": name, **OPTIONS.get(name, {})}

    workers = one(1, 2, 3, 4, 5, 8, 16)
    name = one(*ALGORITHMS)
    algorithm: dict[str, Any] = {"name": name, "learning_rate": float(10 ** draw.uniform(-3, 0))}
    if one(True, False):
        chain = [transformation(one(*OPTIMIZERS))]
        algorithm["optimizer"] = [transformation(one(*BEFORE)), *chain] if one(True, False, False) else chain
    if name == "fasgd" or name == "b-fasgd":
        algorithm["variant"] = one("std", "published-code", "literal")
    decay = {"name": "exponential_decay", "decay_rate": 0.9, "transition_steps": 7}
    algorithm |= one(
        {}, {}, {"schedule": decay, "counts": one("updates", "gradients")}, {"scaling": one("workers", "gradients")}
    )
    algorithm |= one({}, {}, {"average": 0.9})
    usual = registry.lookup("algorithm", name).protocol
    protocol = usual if one(True, True, False) else one(*registry.REGISTRY["protocol"])
    return {
        "task": _task(one, between),
        "cluster": _cluster(draw, one, workers, protocol),
        "algorithm": algorithm,
        "protocol": {"name": protocol, **_protocol_options(one, between, protocol, workers)},
        "stop": {one("updates", "gradients"): between(5, 60)},
        "evaluate": {"points": between(1, 6)},
    }


def _task(one: Callable[..., Any], between: Callable[[int, int], int]) -> dict[str, Any]:
    hidden = [between(1, 24) for _ in range(between(0, 2))]
    mlp = {"name": "mlp", "hidden": hidden or [7], "activation": one("relu", "tanh", "sigmoid", "gelu")}
    model = one(mlp, mlp, "softmax", {"name": "cnn", "channels": [3], "hidden": 5, "kernel": 2}, f"tests.users:{one(*OWN)}")
    flat = one(
        {"name": "synthetic-classification", "examples": 300, "evaluation": 90, "features": between(1, 40), "classes": 3},
        {
            "name": "synthetic-regression",
            "examples": 300,
            "evaluation": 90,
            "features": between(1, 9),
            "outputs": between(1, 3),
        },
    )
    data = one("digits", flat) if model in (mlp, "softmax") else "digits"
    task = {"data": data, "model": model, "batch_size": one(1, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64)}
    task |= one({}, {}, {"division": one("divided", "by-label")})
    task |= {"sampling": one("replacement", "shuffled", "sequential"), "replicas_start": one("equal", "equal", "apart")}
    return task


def _cluster(draw: np.random.Generator, one: Callable[..., Any], workers: int, protocol: str) -> dict[str, Any]:
    compute = one(
        {"name": "constant", "seconds": 0.1}, {"name": "lognormal", "median": 0.1, "sigma": float(draw.uniform(0, 1))}
    )
    cluster: dict[str, Any] = {"workers": workers, "compute": compute}
    if one(True, False):
        latency = {"name": "exponential", "scale": 0.05}
        cluster["network"] = {"latency": latency, "bandwidth": 1e5, **one({}, {"server_bandwidth": 2e5})}
    if one(True, False, False):
        cluster["contention"] = [{"name": "random-delays", "workers": 1, "seconds": 0.3}]
    if protocol in ("partial", "synchronous", "asynchronous", "softsync", "stale-synchronous", "gated", "cutoff"):
        cluster["servers"] = one(1, 1, 2, 3)
    away = {"name": "crashes", "mean_up": 1.0, "away": {"name": "constant", "seconds": 0.2}}
    if one(True, False, False, False) and protocol not in ("dispatcher", "fixed-lag"):
        cluster["faults"] = one([away], [away, {"name": "lost-messages", "share": 0.1, "again_after": 0.3}])
    return cluster


def _protocol_options(
    one: Callable[..., Any], between: Callable[[int, int], int], protocol: str, workers: int
) -> dict[str, Any]:
    cut = one({}, {"clocks": "each", "cut": one("parts", "layers"), "overlap": one(False, False, True)})
    gates = one({"c_push": one(0.0, 0.2), "c_fetch": one(0.0, 0.3)}, {"k_push": between(1, 3), "k_fetch": between(1, 3)})
    gates |= one({}, {"stamp": "published"})
    return {
        "asynchronous": cut,
        "softsync": {"n": between(1, workers), "afterwards": one("wait", "go-on"), **cut},
        "gated": {**gates, **cut},
        "dispatcher": gates,
        "fixed-lag": {"lag": between(0, 9), "ramp": one(0, 15)},
        "partial": {"gradients": between(1, workers), "blocks_percent": one(40, 70, 100)},
        "synchronous": {"backup_workers": between(0, workers - 1)},
        "stale-synchronous": {"bound": between(0, 3), "cache": one(True, False), **cut},
        "cutoff": {"rule": one(*CUTOFF_RULES, {"name": "static", "workers": between(1, workers)})},
        "gossip": {
            **{"topology": one("ring", "complete", "star"), "order": one("mix-first", "update-first", "compute-first")},
            **one({}, {"exchanges": one(2, 7, "global")}, {"overlap": between(1, 3)}),
        },
        "pairwise": {"topology": one("bipartite", "hypercube", "star")},
        "local-steps": {"period": between(1, 5), "start_after": between(0, 3)},
        "eager": {"start_by": one("solo", "majority", "half"), "period": one(None, 2, 5)},
        "group-averaging": {"group_size": one(1, 2, 4), "period": between(1, 6)},
    }.get(protocol, {})
