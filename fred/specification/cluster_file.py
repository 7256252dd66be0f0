"""Clusters in files of their own, as `fred diagnose` and `fred fit` write them."""

from pathlib import Path

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.specification.loading import validated
from fred.specification.source import Source
from fred.specification.text import parse

_KEY = "cluster"
_STUB = {"algorithm": {"name": "asgd", "learning_rate": 1.0}, "stop": {"updates": 1}}  # the rest of a scenario


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a YAML file with the key `cluster`, as `fred diagnose` and `fred fit` write it (`cluster.yaml`).

    Args:
        path: the file. Paths in it, such as that of a trace, are relative to its folder.

    Raises FredError for a file that cannot be read or holds anything else, with file, line and key.

    >>> import fred
    >>> from pathlib import Path
    >>> _ = Path("cluster.yaml").write_text("cluster: {workers: 8, compute: {name: lognormal, median: 0.1, sigma: 0.3}}")
    >>> cluster = fred.load_cluster("cluster.yaml")
    >>> scenario = fred.scenario(cluster=cluster, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"updates": 100})
    >>> scenario.runs["ssgd"].cluster == cluster
    True
    """
    path = Path(path)
    document, lines, _ = parse(path)
    if set(document) != {_KEY}:
        keys = ", ".join(f"`{key}`" for key in document) or "nothing"
        raise FredError(
            f"{path}: found {keys}; expected only `{_KEY}`, as in a file of `fred fit` or `fred diagnose`; "
            f"for the cluster of a scenario: `fred.load({str(path)!r}).runs[NAME].cluster`"
        )
    source = Source(path, _STUB | document, lines, [])
    (run,) = validated(source.specification(), source.locate, folder=path.parent).runs.values()
    return run.cluster
