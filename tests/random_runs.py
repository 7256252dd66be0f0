"""Random runs whose parts fit together as a rule, of every kind that a scenario can describe; for the fuzzer of whole ones."""

from typing import Any

from fred.cluster.cluster import Cluster
from fred.components import registry
from tests.draws import Draws
from tests.random_clusters import COLLECTIVES, failures, latency, random_cluster

ALGORITHMS = tuple(registry.REGISTRY["algorithm"])
PROTOCOLS = tuple(registry.REGISTRY["protocol"])
CLOCKLESS = ("dispatcher", "fixed-lag")
GATED = ("gated", "dispatcher")
CUTOFF_RULES = (
    *(
        "all",
        "elfving",
        "empirical",
        "ewma",
        {"name": "ewma", "of": "worker"},
        {"name": "ewma", "by": "deadline"},
        "hmm",
        "backup",
    ),
    *("oracle", "auto", "mad-deadline", {"name": "deadline", "seconds": 1.2}),
)
MEASURED = {"name": "backup", "noise": "measured"}  # by algorithms that have a statistic
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
DECAY = {"name": "exponential_decay", "decay_rate": 0.9, "transition_steps": 7}
WARM_UP = {"name": "linear_schedule", "init_value": 0.1, "end_value": 1, "transition_steps": 5}


def random_specification(draws: Draws, task: dict[str, Any] | None) -> dict[str, Any]:
    """Return a run that learns this task, perhaps one that does not fit together."""
    gates = draws.has("gates")
    algorithm = _algorithm(draws, draws.one("b-fasgd", draws.one(*ALGORITHMS)) if gates and task else draws.one(*ALGORITHMS))
    server = registry.lookup("algorithm", algorithm["name"])
    protocol = draws.one(*PROTOCOLS) if draws.has("other protocols") else server.protocol
    protocol = draws.one(protocol, *GATED) if gates else protocol
    workers = draws.one(1, 2, 4, 8, 16) if protocol == "group-averaging" else draws.one(1, 2, 3, 4, 5, 8, 16)
    layout = registry.lookup("protocol", protocol).model_validate({}).layout(Cluster(workers=workers))
    cluster = random_cluster(draws, workers, bool(layout.on_servers), protocol not in CLOCKLESS)
    if layout.replicas == 1 and protocol not in CLOCKLESS and "faults" not in cluster and draws.has("failures"):
        cluster["failures"] = failures(draws, cluster)
        if task is None or task.get("sampling") != "sequential":
            cluster["failures"] |= draws.one({}, {"minibatches": "next"})
    held = server.has_statistic and task is not None
    run = {
        "cluster": cluster,
        "algorithm": algorithm,
        "protocol": {
            "name": protocol,
            **_protocol_options(draws, protocol, workers, _gates(draws, held) if gates else {}, task is not None, held),
        },
        "stop": _stop(draws, protocol not in CLOCKLESS, cluster),
        "evaluate": _evaluate(draws, protocol not in CLOCKLESS, task is not None),
    }
    if task is not None:
        run["task"] = dict(task)
        if draws.has("targets"):
            run["stop"] |= draws.one({}, {"target_loss": draws.one(0.5, 1.0)})
        if protocol in ("gossip", "pairwise", "local-steps", "group-averaging", "straggler-tolerant") and draws.has("examples"):
            run["task"]["replicas_start"] = "apart"
    return run


def _algorithm(draws: Draws, name: str) -> dict[str, Any]:
    algorithm: dict[str, Any] = {"name": name, "learning_rate": draws.one(0.003, 0.03, 0.1, 0.5, 1e6)}
    if draws.has("optimizers"):
        chain = [transformation(draws.one(*OPTIMIZERS))]
        algorithm["optimizer"] = [transformation(draws.one(*BEFORE)), *chain] if draws.one(True, False, False) else chain
    if draws.has("rates"):
        schedule = draws.one(DECAY, WARM_UP, [DECAY, WARM_UP])
        algorithm |= draws.one({}, {"schedule": schedule, "counts": draws.one("updates", "gradients")})
        algorithm |= draws.one({}, {"scaling": draws.one("none", "workers", "gradients")})
    if draws.has("averages"):
        algorithm["average"] = draws.one(0.0, 0.9)
    if draws.has("codecs"):
        algorithm |= draws.one({}, {"codec": _codec(draws)})
    if name in ("fasgd", "b-fasgd"):
        algorithm["variant"] = draws.one("std", "published-code", "literal")
    if name in ("sasgd", "fasgd"):
        algorithm |= draws.one({}, {"divisor": "tau + 1"})
    return algorithm | _answers(draws).get(name, {}) | _outer(draws).get(name, {})


def _codec(draws: Draws) -> dict[str, Any]:
    """Draw a codec."""
    chunk = {"chunk": draws.one("array", "message", 1, 5, 64)}
    share = {"share": draws.one(0.01, 0.3, 1.0)}
    codec = draws.one(
        {
            "name": "float",
            "format": draws.one("float32", "bfloat16", "float16", "e4m3", "e5m2"),
            "scaled": draws.one(True, False),
        },
        {"name": "low-bit", "bits": draws.one(2, 8), "zero": draws.one(True, False), **chunk},
        {"name": "qsgd", "levels": draws.one(1, 7), **chunk},
        {"name": "top-k", **share, **chunk, "values": draws.one(None, "sign", {"name": "low-bit", "bits": 2})},
        {"name": "random-k", **share, **chunk, "unbiased": draws.one(True, False)},
        {"name": draws.one("sign", "e3m0"), **chunk},
        {"name": "power-sgd", "rank": draws.one(1, 3)},
        {"name": "dct", "chunk": draws.one(4, 64), "kept": draws.one(1, 32)},
    )
    return codec | draws.one({}, {"error_feedback": draws.one(True, 0.9)})


def _answers(draws: Draws) -> dict[str, dict[str, Any]]:
    """Draw a server's correction for delays."""
    adaptive = {"compensation": 2.0, "adaptive": True, "decay": draws.one(0.0, 0.9)}
    return {
        "delay-adaptive": {"beyond": draws.one("n / tau", "1 / tau", "0")},
        "dc-asgd": draws.one({}, {"compensation": 0.5}, adaptive),
        "clipped-asgd": {"length": draws.one(0.01, 0.5, 1e6)},
        "dbw": draws.one({}, {"smoothness": 2.0, "decay": 0.0}),
        "picky-sgd": {"distance": draws.one(0.001, 0.3, 1e6)},
    }


def _outer(draws: Draws) -> dict[str, dict[str, Any]]:
    """Draw the treatment of averages and pseudo-gradients."""
    return {
        "bmuf": draws.one({}, {"block_momentum": 0.5, "block_rate": 0.8, "nesterov": True}),
        "slowmo": draws.one({}, {"slow_momentum": 0.4, "slow_rate": 0.5}),
        **{name: {"parts": draws.between(1, 30)} for name in ("sparta", "async-mesh", "loscar")},
        "des-loc": {
            "first_every": draws.between(1, 3),
            "second_every": draws.between(1, 4),
            "optimizer": draws.one("adam", "nadamw"),
        },
        "fadas": {"patience": draws.between(0, 3)},
        "diloco": draws.one({}, {"outer": transformation(draws.one(*OPTIMIZERS)), "outer_rate": 0.1}),
        "palsgd": {"strength": draws.one(0.0, 0.5)},
        "edit": draws.one({}, {"warm_up": 1, "temperature": 0.1, "longest": 0.1, "deviations": 0.5}),
        "delayed-nesterov": draws.one({}, {"gathered": draws.between(1, 3), "spread": 0.2}),
        **{name: {"exponent": draws.one(0.0, 0.5)} for name in ("fedasync", "fedcompass")},
        "cgad": {"cutoff": draws.between(1, 9)},
        "heloco": draws.one({}, {"agreeing": 0.9, "most": 0.2, "turn": 2.0}),
    }


def transformation(name: str) -> dict[str, Any]:
    """One of optax's, with the options that it needs."""
    return {"name": name, **OPTIONS.get(name, {})}


def seen(draws: Draws) -> dict[str, Any]:
    """Draw the division of examples among workers."""
    if not draws.has("examples"):
        return {}
    divided = {"division": draws.one("divided", "by-label", "dirichlet"), "sampling": draws.one("replacement", "shuffled")}
    return draws.one(divided, {"sampling": draws.one("replacement", "shuffled", "sequential")})


def _stop(draws: Draws, clocked: bool, cluster: dict[str, Any]) -> dict[str, Any]:
    """Limits; where somebody or something may be gone for good, one of time, so that the run ends."""
    limits: dict[str, Any] = {"updates": draws.between(1, 60), "gradients": draws.between(1, 60)}
    for_good = any("end" not in each and "again_after" not in each for each in cluster.get("faults", ()))
    if clocked and (for_good or draws.has("limits")):
        limits["seconds"] = draws.one(0.01, draws.real(0.1, 1), *[draws.real(0.5, 5)] * 3)
    kept = draws.some(*limits) if draws.has("limits") else [draws.one("updates", "gradients")]
    if for_good:
        kept = [*kept, "seconds"]
    return {name: limit for name, limit in limits.items() if name in kept}


def _evaluate(draws: Draws, clocked: bool, learns: bool) -> dict[str, Any]:
    often: dict[str, Any] = {"points": draws.one(1, 3, 6, 100)}
    if draws.has("cadences"):
        often = draws.one({"every_updates": draws.between(1, 20)}, {"every_gradients": draws.between(1, 20)})
        often = draws.one(often, {"every_seconds": draws.real(0.2, 2)}) if clocked else often
    if learns and draws.has("targets"):
        norms = {"target_gradient_norm": draws.one(0.2, 0.5)}, {"gradient_norm": True}
        often |= draws.one({"target_loss": draws.one(0.5, 1.0)}, {"target_error": draws.one(0.2, 0.5)}, *norms)
    return often


def _protocol_options(
    draws: Draws, protocol: str, workers: int, gates: dict[str, Any], learns: bool, held: bool
) -> dict[str, Any]:
    cut: dict[str, Any] = {}
    if draws.has("clocks"):
        cut = {"clocks": "each", "cut": draws.one("parts", "layers"), "pulls": draws.one("in-turn", "at-once")}
        cut |= draws.one({}, {"cut": "layers", "overlap": True})
    options: dict[str, Any] = {
        "asynchronous": cut,
        "softsync": {
            **draws.one({"n": draws.between(1, workers)}, {"gradients": draws.between(1, workers)}),
            **{"afterwards": draws.one("wait", "go-on"), **cut},
        },
        "fresh-batch": {"batch": draws.between(1, 2 * workers), "late": draws.one("interrupt", "finish")},
        "fresh-from-all": {"batch": draws.one(0, 2 * workers), "late": draws.one("interrupt", "finish")},
        "time-limited": {"trials": draws.between(1, 3), "limit": draws.one(None, 1.0)},
        "bandit": {"gradients": draws.between(1, 2 * workers), "width": draws.one(0.05, 10.0), "scale": draws.one(None, 0.1)},
        "bounded-delay": {
            **{"threshold": draws.one(1, 2, workers, 3 * workers, "sqrt")},
            **{"late": draws.one("interrupt", "finish")},
        },
        "gated": {**gates, **cut},
        "dispatcher": {**gates, "selection": _selection(draws, workers)},
        "fixed-lag": _lag(draws),
        "partial": {
            **{"gradients": draws.between(1, workers), "blocks_percent": draws.one(40, 70, 100)},
            **draws.one({}, {"late_blocks": "keep"}) | draws.one({}, {"push_timeout": 0.05}, {"pull_timeout": 0.05}),
        },
        "synchronous": {
            **{"backup_workers": draws.between(0, workers - 1), "timeout": draws.one(None, 0.0, 0.3)},
            **draws.one({}, {"late": "interrupt"}),
        },
        "stale-synchronous": {"bound": draws.one(0, 1, 2, 3, None), "cache": draws.one(True, False), **cut},
        "cutoff": {
            "rule": draws.one(
                *CUTOFF_RULES,
                {"name": "count", "workers": draws.between(1, workers)},
                {"name": "count-or-deadline", "workers": 1, "seconds": 1.3},
                *([MEASURED] * 3 if held else []),
            ),
            **draws.one({}, {}, {"deciding": latency(draws, 0.02)}),
        },
        "gossip": _gossip(draws, workers),
        "late-averaging": {"every": draws.between(1, 3), "delay": draws.one(None, 0, 1, 4)},
        "choco": {"topology": draws.one("ring", "complete", "star", "hypercube"), "consensus": draws.one(0.1, 1.0)},
        "pairwise": {"topology": draws.one("bipartite", "hypercube", "star", _chain(workers))},
        "elastic": {"period": draws.between(1, 5), **draws.one({}, {"elasticity": 0.3})},
        "accumulating": {"n_push": draws.between(1, 4), "n_fetch": draws.between(1, 4)},
        "buffered": {
            **{"period": draws.between(1, 5), "buffer": draws.between(1, workers + 1)},
            **{"paced": draws.one(True, False), "grace": draws.one(None, None, 0.05)},
        },
        "arrival-groups": {
            **{"period": draws.between(1, 9), "lateness": draws.one(1.0, 1.5, 3.0), "decay": draws.one(0.0, 0.1, 0.9)},
            **draws.one({}, {"least": 1}, {"first": draws.between(1, 9)}, {"speeds": "known"}),
        },
        "outer-steps": {
            **{"period": draws.between(1, 5), "pulls": draws.one(0.0, 0.0, 0.5)},
            **draws.one({}, {}, {"every": 0.3}, {"paced": True}, {"paced": True, "pace_seconds": 0.2}),
        },
        "streaming": _streaming(draws),
        "overlapped-steps": {"period": draws.between(1, 5), "eager": draws.one(True, False)},
        "local-servers": {
            **{"period": draws.between(1, 5), "paced": draws.one(True, False)},
            **{"pushes": draws.between(1, 6), "mixing": draws.one(0.25, 1.0)},
        },
        "in-pairs": {"period": draws.between(1, 5)},
        "quorum": {
            **{"period": draws.between(1, 5), "quorum": draws.between(1, workers), "overlap": draws.one(0.0, 2.0)},
            **draws.one({}, {"fragments": 2}),
        },
        "local-sums": {"steps": draws.between(1, 4), "bound": draws.one(None, draws.between(1, 20))},
        "batch-sums": {"steps": draws.between(1, 4), "bound": draws.one(None, draws.between(1, 20))},
        "local-total": {"total": draws.one(None, draws.between(1, 4 * workers))},
        "in-turn": {"group_size": draws.one(None, draws.between(1, workers + 1))},
        "local-steps": {
            **{"period": draws.between(1, 5), "start_after": draws.between(0, 3)},
            **{"adapt_every": draws.one(None, 0.1, 1.0) if learns else None},
        },
        "drop-compute": {
            **{"micro_batches": draws.between(1, 4), "average": draws.one("planned", "done")},
            **draws.one({"measured": draws.between(1, 4)}, {"threshold": draws.real(0.01, 1)}),
        },
        "straggler-tolerant": {"period": draws.between(1, 5), **draws.one({}, {"enough": draws.between(1, workers)})},
        "eager": {"start_by": draws.one("solo", "majority", "half"), "period": draws.one(None, 2, 5)},
        "group-averaging": {
            **{
                "group_size": min(workers, draws.one(1, 2, 4)),
                "period": draws.one(None, draws.between(1, 6), draws.between(1, 6)),
                "groups": draws.one("dynamic", "fixed"),
                "group_waits": draws.one(False, True),
            },
            **draws.one({}, {"group_collective": draws.one(*COLLECTIVES)}),
        },
    }.get(protocol, {})
    return options


def _lag(draws: Draws) -> dict[str, Any]:
    """Draw the age of gradients, always or on average."""
    lag = draws.between(0, 9)
    return {"lag": lag, "ramp": draws.one(0, 15), "drawn_from": draws.one(1, draws.between(1, lag + 1))}


def _streaming(draws: Draws) -> dict[str, Any]:
    """Fragments that fit into a period."""
    fragments, between = draws.between(1, 3), draws.between(1, 4)
    return {
        **{"period": fragments * between, "fragments": fragments, "delay": draws.between(0, between - 1)},
        **{"mixing": draws.one(0.0, 0.5, 1.0), "elastic": draws.one(True, False)},
    }


def _gates(draws: Draws, held: bool) -> dict[str, Any]:
    """Return options of gates: periods, and what the gradients say where they may (`held`); by short options or by name."""
    every = {"k_push": draws.between(1, 3), "k_fetch": draws.between(1, 3)}
    asked = [{"c_push": 0.2, "c_fetch": draws.one(0.0, 0.3)}, {"c_fetch": 0.3, "k_push": draws.one(1, 2)}] if held else []
    named = {f"{way}_gate": _gate(draws, held) for way in draws.some("push", "fetch")}
    unsent = draws.one({}, {"unsent": draws.one("apply-again", "sum", "mean")})
    return {**draws.one(every, *asked, named), **unsent, **draws.one({}, {"stamp": "published"})}


def _gate(draws: Draws, held: bool) -> Any:
    gates: list[Any] = [{"name": "periodic", "k": draws.between(1, 4)}]
    gates += [{"name": "statistical", "c": draws.one(0.05, 0.3)}] if held else []
    return draws.one(*gates)


def _selection(draws: Draws, workers: int) -> Any:
    priorities = [draws.real(-1, 1) for _ in range(workers)]
    return draws.one(
        "uniform", {"name": "softmax", "priorities": priorities}, {"name": "shifting", "change": draws.one(-1, 0.5)}
    )


def _chain(workers: int) -> dict[str, Any]:
    """Each worker linked to the next one."""
    return {"name": "edges", "edges": [[worker, worker + 1] for worker in range(workers - 1)]}


def _gossip(draws: Draws, workers: int) -> dict[str, Any]:
    graphs = ("ring", "complete", "star", "bipartite", "hypercube", _chain(workers))
    options = {"topology": draws.one(*graphs, {"name": "exponential", "neighbours": draws.one(1, 2)})}
    if draws.one(True, False, False):
        return {**options, "overlap": draws.between(1, 3), "order": "update-first"}
    options["order"] = draws.one("mix-first", "update-first", "compute-first")
    return options | draws.one({}, {"exchanges": draws.one(2, 7, "global")}) | draws.one({}, {"weights": "metropolis"})
