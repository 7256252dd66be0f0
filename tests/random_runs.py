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
    gates = draws.covers("gates")
    algorithm = draws.choose("b-fasgd", draws.choose(*ALGORITHMS)) if gates and task else draws.choose(*ALGORITHMS)
    server = registry.lookup("algorithm", algorithm)
    protocol = draws.choose(*PROTOCOLS) if draws.covers("other protocols") else server.protocol
    protocol = draws.choose(protocol, *GATED) if gates else protocol
    workers = draws.choose(1, 2, 4, 8, 16) if protocol == "group-averaging" else draws.choose(1, 2, 3, 4, 5, 8, 16)
    layout = registry.lookup("protocol", protocol).model_validate({}).layout(Cluster(workers=workers))
    clocked = protocol not in CLOCKLESS
    cluster = random_cluster(draws, workers, bool(layout.on_servers), clocked)
    if (
        layout.replicas == 1
        and clocked
        and draws.covers("failures")
        and ("failures" in draws.forced or "faults" not in cluster)
    ):
        cluster.pop("faults", None)
        cluster["failures"] = failures(draws, cluster)
        if task is None or task.get("sampling") != "sequential":
            cluster["failures"] |= draws.choose({}, {"minibatches": "next"})
    likely = {name for family, names in OPTIONS_OF_FAMILIES.items() if draws.covers(family) for name in names}
    excluded = {name for names in OPTIONS_OF_FAMILIES.values() for name in names} - likely
    if task is None:
        excluded.add("adapt_every")
    rate = {"learning_rate": draws.choose(0.003, 0.03, 0.1, 0.5, 1e6)}
    run = {
        "cluster": cluster,
        "algorithm": draw_options(draws, "algorithm", algorithm, draws.choose(0.0, 0.1, 0.3), likely, excluded) | rate,
        "protocol": draw_options(draws, "protocol", protocol, draws.choose(0.0, 0.3, 0.6), {*likely, *NAMED}, excluded),
        "stop": _stop(draws, clocked, cluster),
        "evaluate": _evaluate(draws, clocked, task is not None),
    }
    for gate in GATES:
        option = run["protocol"].get(gate)  # a dictionary, a name alone, or None
        name = option.get("name") if isinstance(option, dict) else option
        if name == "statistical" and not (server.has_statistic and task):
            run["protocol"][gate] = {"name": "periodic", "k": draws.integer(1, 5)}
    if task is not None:
        run["task"] = dict(task)
        if draws.covers("targets"):
            run["stop"] |= draws.choose({}, {"target_loss": draws.choose(0.5, 1.0)})
        if layout.replicas >= workers and draws.covers("examples"):
            run["task"]["replicas_start"] = "apart"
    return run


def _stop(draws: Draws, clocked: bool, cluster: dict[str, Any]) -> dict[str, Any]:
    """Limits; one of time where the run might not end: somebody or something may be gone for good, or rounds may be empty."""
    limits: dict[str, Any] = {"updates": draws.integer(1, 60), "gradients": draws.integer(1, 60)}
    is_permanent = any("end" not in fault and "again_after" not in fault for fault in cluster.get("faults", ()))
    if clocked and (is_permanent or draws.covers("limits")):
        limits["seconds"] = draws.choose(0.01, draws.real(0.1, 1), *[draws.real(0.5, 5)] * 3)
    names = draws.choose_some(*limits) if draws.covers("limits") else [draws.choose("updates", "gradients")]
    if is_permanent:
        names = [*names, "seconds"]
    never = {"seconds": 60.0} if clocked and "seconds" not in names and draws.choose(True, True, False) else {}
    return {name: limit for name, limit in limits.items() if name in names} | never


def _evaluate(draws: Draws, clocked: bool, learns: bool) -> dict[str, Any]:
    often: dict[str, Any] = {"points": draws.choose(1, 3, 6, 100)}
    if draws.covers("cadences"):
        often = draws.choose({"every_updates": draws.integer(1, 20)}, {"every_gradients": draws.integer(1, 20)})
        often = draws.choose(often, {"every_seconds": draws.real(0.2, 2)}) if clocked else often
    if learns and draws.covers("targets"):
        norms = {"target_gradient_norm": draws.choose(0.2, 0.5)}, {"gradient_norm": True}
        often |= draws.choose({"target_loss": draws.choose(0.5, 1.0)}, {"target_error": draws.choose(0.2, 0.5)}, *norms)
    return often
