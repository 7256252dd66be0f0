"""Drawings of configured clusters as SVG: servers, the network, and nodes with workers, one colour per kind of worker."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from fred.cluster.cluster import Cluster
from fred.cluster.network import Network
from fred.components.component import Component
from fred.components.input_path import UnreadError, name_alone
from fred.components.one_of import OneOf
from fred.outcomes.outcome import Outcome
from fred.views.view import COLOURS

_WIDTH, _SIDE, _GAP = 360, 14, 4  # width of the drawing, side of a worker, gap between workers; units of the drawing
_SPINE, _LEFT = 8, 18  # horizontal place of the line to the nodes, and left edge of the nodes
_ROW = (_WIDTH - _LEFT - 20) // (_SIDE + _GAP)  # workers in a row
_NODES, _WORKERS, _SERVERS, _CLUSTERS = 8, 216, 8, 6  # largest numbers drawn: the first three per cluster


class _Kind(NamedTuple):
    """The properties that workers of one kind share, in words."""

    speed: str
    compute: str


def machines(outcomes: Sequence[Outcome]) -> str:
    """Return HTML with a drawing of each different cluster, and the names of its runs.

    Args:
        outcomes: the outcomes of the runs; only the first six clusters are drawn.
    """
    sharing: dict[tuple[Cluster, bool], list[str]] = {}
    for name, outcome in {outcome.name: outcome for outcome in outcomes}.items():
        sharing.setdefault((outcome.run.cluster, _is_served(outcome)), []).append(name)
    figures = [
        _figure(cluster, served, names, is_named=len(sharing) > 1)
        for (cluster, served), names in list(sharing.items())[:_CLUSTERS]
    ]
    omitted = len(sharing) - _CLUSTERS
    return f'<div class="clusters">{"".join(figures)}</div>' + (
        f"<p>Not drawn: {count_noun(omitted, 'more cluster')}.</p>" if omitted > 0 else ""
    )


def _is_served(outcome: Outcome) -> bool:
    """Return True if the run has a model on a server."""
    try:
        return bool(outcome.run.protocol.layout(outcome.run.cluster).on_servers)
    except UnreadError:  # the protocol is the user's own, and was not imported
        return bool(outcome.schedule.on_servers)


def _figure(cluster: Cluster, served: bool, names: list[str], is_named: bool) -> str:
    """Return the drawing of a cluster and its explanation; `served`: with a model on a server."""
    computes = {compute: describe(compute, "latency") for compute in set(cluster.latencies())}
    workers = zip(_speeds(cluster), cluster.latencies(), strict=True)
    kinds = [_Kind(speed, computes[compute]) for speed, compute in workers]
    colours = dict(zip(dict.fromkeys(kinds), COLOURS * (1 + len(set(kinds)) // len(COLOURS)), strict=False))
    shapes, height = _cluster_shapes(cluster, kinds, colours, served)
    head = f"<figcaption>{escape(', '.join(names))}</figcaption>" if is_named else ""
    label = f"{cluster.size:,} workers on {count_noun(max(cluster.node_of) + 1, 'node')}"
    svg = f'<svg class="cluster" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">{shapes}</svg>'
    return f"<figure>{head}{svg}<ul class='kinds'>{_legend_items(cluster, kinds, colours, served)}</ul></figure>"


def _speeds(cluster: Cluster) -> list[str]:
    """Return the speed of each worker, in words; their common range if there are more different speeds than colours."""
    speeds = cluster.worker_speeds()
    if len(set(speeds)) > len(COLOURS):
        return [f" at speeds of {min(speeds):g} to {max(speeds):g}"] * len(speeds)
    return [f" at speed {speed:g}" if speed != 1 else "" for speed in speeds]


def _cluster_shapes(cluster: Cluster, kinds: list[_Kind], colours: dict[_Kind, str], served: bool) -> tuple[str, int]:
    """Return the SVG shapes of a cluster, from top to bottom, and their total height."""
    shapes, top, middle = list[str](), 4, _WIDTH / 2
    if served:
        shapes += [*_servers(cluster.servers, top), f'<path d="M{middle:g} {top + 26}v8" class="link"/>']
        top += 34
    words = "network" if cluster.network else "network: messages take no time"
    shapes.append(f'<rect x="2" y="{top}" width="{_WIDTH - 4}" height="24" rx="12" class="net"/>')
    shapes.append(f'<text x="{middle:g}" y="{top + 16}" text-anchor="middle">{words}</text>')
    top += 24
    speeds = cluster.worker_speeds()
    nodes = [
        [worker for worker, _ in members]
        for _, members in groupby(enumerate(cluster.node_of.tolist()), key=lambda pair: pair[1])
    ]
    most_workers = max(_ROW, _WORKERS // min(len(nodes), _NODES))  # of a node
    spine = top
    for number, members in enumerate(nodes[:_NODES]):
        words = f"{f'node {number}: ' if len(nodes) > 1 else ''}{count_noun(len(members), 'worker')}"
        properties = [(worker, speeds[worker], colours[kinds[worker]]) for worker in members[:most_workers]]
        node_shapes, node_height = _node(words, properties, overflow=len(members) > most_workers, top=top + 8)
        shapes.append(f'<path d="M{_SPINE} {spine}V{top + 8 + node_height / 2:g}H{_LEFT}" class="link"/>{node_shapes}')
        top += 8 + node_height
    if len(nodes) > _NODES:
        shapes.append(f'<text x="{_LEFT}" y="{top + 15}">and {len(nodes) - _NODES:,} more nodes</text>')
        top += 20
    return "".join(shapes), top + 4


def _node(words: str, workers: list[tuple[int, float, str]], overflow: bool, top: int) -> tuple[str, int]:
    """Return the SVG shapes of a node with its workers (number, speed, colour), and its height; dots stand for more workers."""
    height = -(-(len(workers) + overflow) // _ROW) * (_SIDE + _GAP) + 22
    shapes = [f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - 2}" height="{height}" rx="4" class="node"/>']
    shapes.append(f'<text x="{_LEFT + 8}" y="{top + 14}">{words}</text>')
    places = [
        (_LEFT + 9 + i % _ROW * (_SIDE + _GAP), top + 20 + i // _ROW * (_SIDE + _GAP)) for i in range(len(workers) + overflow)
    ]
    for (x, y), (worker, speed, colour) in zip(places, workers, strict=False):
        shapes.append(
            f'<rect x="{x}" y="{y}" width="{_SIDE}" height="{_SIDE}" rx="2" fill="{colour}">'
            f"<title>worker {worker}: speed {speed:g}</title></rect>"
        )
    if overflow:
        shapes.append(f'<text x="{places[-1][0]}" y="{places[-1][1] + 11}">…</text>')
    return "".join(shapes), height


def _servers(number: int, top: int) -> list[str]:
    """Return the SVG shapes of the servers, in a row in the middle; if they are too many, the last box stands for the rest."""
    count = min(number, _SERVERS)
    width = min(90, (_WIDTH - 8) // count - 4)
    left = (_WIDTH - count * (width + 4) + 4) / 2
    shapes = []
    for server in range(count):
        word = "server" if number == 1 else f"s{server}" if width < 60 else f"server {server}"
        if server == count - 1 and number > count:
            word = f"+ {number - count + 1:,}"
        x = left + server * (width + 4)
        shapes.append(f'<rect x="{x:g}" y="{top}" width="{width}" height="26" rx="4" class="server"/>')
        shapes.append(f'<text x="{x + width / 2:g}" y="{top + 17}" text-anchor="middle" class="on">{word}</text>')
    return shapes


def _legend_items(cluster: Cluster, kinds: list[_Kind], colours: dict[_Kind, str], served: bool) -> str:
    """Return list items that explain the drawing: the kinds of workers, the network, contention and faults."""
    lines = []
    for kind, number in list(Counter(kinds).items())[: len(COLOURS)]:
        text = f"{count_noun(number, 'worker')}{kind.speed}: {kind.compute}, s per gradient"
        lines.append(f'<li><i style="background:{colours[kind]}"></i>{escape(text)}</li>')
    if len(colours) > len(COLOURS):
        lines.append(f"<li>and {len(colours) - len(COLOURS):,} more kinds of workers</li>")
    sentences = [f"network: {_describe_network(cluster.network)}"] if cluster.network else []
    sentences += [f"contention: {describe(part, 'contention')}" for part in cluster.contention]
    sentences += [f"fault: {describe(part, 'fault')}" for part in cluster.faults]
    if not served:
        sentences.append("no server: workers send to each other, or average together")
    return "".join(lines + [f"<li>{escape(sentence)}</li>" for sentence in sentences])


def _describe_network(network: Network) -> str:
    """Return the options of a network in words."""
    options = network.model_dump(mode="json", exclude_defaults=True, context={"paths": name_alone})
    return "; ".join(f"{key.replace('_', ' ')} {_value(value)}" for key, value in options.items()) or "messages take no time"


def describe(part: Component, kind: str) -> str:
    """Return a component in words: its name, and the options that differ from their defaults.

    Args:
        part: the component, such as a latency.
        kind: its kind in the registry.

    >>> from fred.cluster.latency import Constant
    >>> describe(Constant(seconds=0.5), "latency")
    'constant (seconds 0.5)'
    """
    return _value(to_jsonable_python(OneOf(kind).dump(part, briefly=True, context={"paths": name_alone})))


def _value(value: Any) -> str:
    """Return the value of an option in words; of a list, the first eight items and their number."""
    if isinstance(value, dict):
        options = ", ".join(f"{key.replace('_', ' ')} {_value(option)}" for key, option in value.items() if key != "name")
        return f"{value['name']} ({options})" if "name" in value and options else str(value.get("name", options))
    if isinstance(value, list):
        return ", ".join(map(_value, value[:8])) + (f", … ({len(value):,})" if len(value) > 8 else "")
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as 1 worker, 1,000 workers.

    Args:
        number: the number.
        noun: the noun in the singular.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
