"""Random runs whose parts fit together as a rule, of every kind that a scenario can describe; for the fuzzers."""

from typing import Any

from fred.cluster.cluster import Cluster
from fred.components import registry
from tests.draws import Draws
from tests.from_schema import draw_options
from tests.random_clusters import failures, random_cluster

ALGORITHMS = tuple(registry.REGISTRY["algorithm"])
PROTOCOLS = tuple(registry.REGISTRY["protocol"])
CLOCKLESS = ("dispatcher", "fixed-lag")
GATED = ("gated", "dispatcher")
OPTIONS_OF_FAMILIES = {
    "optimizers": ("optimizer", "outer"),
    "rates": ("schedule", "counts", "scaling"),
    "averages": ("average",),
    "codecs": ("codec",),
    "clocks": ("clocks", "cut", "pulls", "overlap"),
}
GATES = ("push_gate", "fetch_gate")
NAMED = ("rule", "topology", "selection", *GATES)  # options of protocols whose values are components


def random_specification(draws: Draws, task: dict[str, Any] | None) -> dict[str, Any]:
    """Return a run that learns this task, perhaps one that does not fit together."""
    gates = draws.has("gates")
    algorithm = draws.one("b-fasgd", draws.one(*ALGORITHMS)) if gates and task else draws.one(*ALGORITHMS)
    server = registry.lookup("algorithm", algorithm)
    protocol = draws.one(*PROTOCOLS) if draws.has("other protocols") else server.protocol
    protocol = draws.one(protocol, *GATED) if gates else protocol
    workers = draws.one(1, 2, 4, 8, 16) if protocol == "group-averaging" else draws.one(1, 2, 3, 4, 5, 8, 16)
    layout = registry.lookup("protocol", protocol).model_validate({}).layout(Cluster(workers=workers))
    clocked = protocol not in CLOCKLESS
    cluster = random_cluster(draws, workers, bool(layout.on_servers), clocked)
    if layout.replicas == 1 and clocked and draws.has("failures") and ("failures" in draws.forced or "faults" not in cluster):
        cluster.pop("faults", None)
        cluster["failures"] = failures(draws, cluster)
        if task is None or task.get("sampling") != "sequential":
            cluster["failures"] |= draws.one({}, {"minibatches": "next"})
    likely = {name for family, names in OPTIONS_OF_FAMILIES.items() if draws.has(family) for name in names}
    without = {name for names in OPTIONS_OF_FAMILIES.values() for name in names} - likely
    if task is None:
        without.add("adapt_every")
    rate = {"learning_rate": draws.one(0.003, 0.03, 0.1, 0.5, 1e6)}
    run = {
        "cluster": cluster,
        "algorithm": draw_options(draws, "algorithm", algorithm, draws.one(0.0, 0.1, 0.3), likely, without) | rate,
        "protocol": draw_options(draws, "protocol", protocol, draws.one(0.0, 0.3, 0.6), {*likely, *NAMED}, without),
        "stop": _stop(draws, clocked, cluster),
        "evaluate": _evaluate(draws, clocked, task is not None),
    }
    for gate in GATES:
        if run["protocol"].get(gate, {}).get("name") == "statistical" and not (server.has_statistic and task):
            run["protocol"][gate] = {"name": "periodic", "k": draws.between(1, 5)}
    if task is not None:
        run["task"] = dict(task)
        if draws.has("targets"):
            run["stop"] |= draws.one({}, {"target_loss": draws.one(0.5, 1.0)})
        if layout.replicas >= workers and draws.has("examples"):
            run["task"]["replicas_start"] = "apart"
    return run


def _stop(draws: Draws, clocked: bool, cluster: dict[str, Any]) -> dict[str, Any]:
    """Limits; one of time where the run might not end: somebody or something may be gone for good, or rounds may be empty."""
    limits: dict[str, Any] = {"updates": draws.between(1, 60), "gradients": draws.between(1, 60)}
    for_good = any("end" not in fault and "again_after" not in fault for fault in cluster.get("faults", ()))
    if clocked and (for_good or draws.has("limits")):
        limits["seconds"] = draws.one(0.01, draws.real(0.1, 1), *[draws.real(0.5, 5)] * 3)
    chosen = draws.some(*limits) if draws.has("limits") else [draws.one("updates", "gradients")]
    if for_good:
        chosen = [*chosen, "seconds"]
    never = {"seconds": 60.0} if clocked and "seconds" not in chosen and draws.one(True, True, False) else {}
    return {name: limit for name, limit in limits.items() if name in chosen} | never


def _evaluate(draws: Draws, clocked: bool, learns: bool) -> dict[str, Any]:
    often: dict[str, Any] = {"points": draws.one(1, 3, 6, 100)}
    if draws.has("cadences"):
        often = draws.one({"every_updates": draws.between(1, 20)}, {"every_gradients": draws.between(1, 20)})
        often = draws.one(often, {"every_seconds": draws.real(0.2, 2)}) if clocked else often
    if learns and draws.has("targets"):
        norms = {"target_gradient_norm": draws.one(0.2, 0.5)}, {"gradient_norm": True}
        often |= draws.one({"target_loss": draws.one(0.5, 1.0)}, {"target_error": draws.one(0.2, 0.5)}, *norms)
    return often
