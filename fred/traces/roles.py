"""What the columns of a trace are, by their names; and units, which are taken from a name or not at all."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fred.errors import FredError
from fred.traces.refusal import UnclearTraceError
from fred.traces.words import listed

Role = Literal["iteration", "worker", "time", "node", "start", "end", "type"]
Unit = Literal["s", "ms", "us", "ns"]
PER_SECOND: dict[Unit, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
FILE = "FILE"  # in the place of a column: which of several files a row is from
AND = "+"  # between columns that name something together

_UNITS: dict[Unit, str] = {
    "s": "s|secs?|seconds?",
    "ms": "ms|msecs?|millis|milliseconds?",
    "us": "us|µs|μs|usecs?|micros|microseconds?",
    "ns": "ns|nsecs?|nanos|nanoseconds?",
}
_NAMES: dict[Role, str] = {  # the first that is there is taken
    "iteration": "iteration global_step iteration_id iter iter_id train_step training_step step step_id it batch batch_idx "
    "batch_id round",
    "worker": "worker worker_id worker_name global_rank rank rank_id world_rank process process_id proc task task_id client "
    "client_id learner replica trainer executor",
    "node": "node node_id node_name hostname host host_name host_id machine machine_id machine_name instance server pod",
    "start": "start begin start_time begin_time start_timestamp started start_ts ts timestamp",
    "end": "end stop finish end_time stop_time finish_time end_timestamp ended finished end_ts",
    "type": "type op operation op_type op_name kind category cat phase event event_name",
}
_NAMING, _JOINED = ("iteration", "worker", "node"), ("iteration", "worker", "node", "time")
_LOCAL = ("local_rank", "device", "device_id", "gpu", "gpu_id", "local_worker", "slot")  # workers of a node
_TIMES = (
    "seconds duration dur elapsed elapsed_time latency step_time iteration_time iter_time batch_time compute_time "
    "computation_time compute computing run_time runtime time took train_time"
)  # without their unit
_NO_WORKERS = (  # columns that stand beside workers' times
    "loss accuracy acc error lr learning_rate epoch timestamp date datetime total mean avg average median min max std "
    "throughput tokens samples grad_norm step_time time"
)

_COMMUNICATION = re.compile(
    r"(?:^|_)(?:(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|broadcast|bcast|send|recv|receive|p2p|comms?|communicat\w*|"
    r"barrier|sync|synchroni[sz]\w*|wait|waiting|idle|c10d|gloo|mpi|record_param_comms)(?:_|$)|[nr]ccl)"
)


@dataclass(frozen=True)
class Says:
    """What the user says of a file.

    Args:
        columns: what it calls its columns.
        unit: of its times, if it is said.
        mend: whether rows that name no iteration or worker may be left out.
        name: a short name of the file.
    """

    columns: Mapping[Role, str]
    unit: Unit | None
    mend: bool
    name: str


class Roles(NamedTuple):
    """The columns of a file by what they are; several joined by `+` name something together."""

    columns: dict[Role, str]

    def get(self, role: Role) -> str:
        """Return the column, or an empty string.

        Args:
            role: what it is.
        """
        return self.columns.get(role, "")

    def free(self, header: Sequence[str]) -> list[str]:
        """Return the columns of which nothing is known.

        Args:
            header: names of all columns.
        """
        used = {part for column in self.columns.values() for part in parts(column, header)}
        return [name for name in header if name not in used]


def plain(name: str) -> str:
    """Return a column's name in lower case, its words joined by underscores.

    Args:
        name: of the column.

    >>> plain("Step Time (ms)"), plain("globalStep")
    ('step_time_ms', 'global_step')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def is_communication(name: str) -> bool:
    """Return True for the name of an operation that communicates, or waits.

    Args:
        name: of the operation, or of its type.

    >>> names = ("ncclDevKernel_AllReduce", "grads-reduce-scatter", "c10d::allreduce_", "forward-send", "forward-compute")
    >>> [is_communication(name) for name in names]
    [True, True, True, True, False]
    """
    return _COMMUNICATION.search(plain(name)) is not None


def unit_of(name: str) -> Unit | None:
    """Return the unit that a column's name ends with, if it does.

    Args:
        name: of the column.

    >>> unit_of("duration_ms"), unit_of("time (us)"), unit_of("items"), unit_of("seconds")
    ('ms', 'us', None, 's')
    """
    return _split(plain(name))[1]


def parts(column: str, header: Sequence[str]) -> list[str]:
    """Return the columns that one word of `columns` names: one, or several joined by `+`.

    Args:
        column: the word.
        header: names of the file's columns.
    """
    return [column] if column in header else column.split(AND)


def roles_of(path: str, header: Sequence[str], given: Mapping[Role, str]) -> Roles:
    """Return what the columns are, as the user says or else by their names.

    Args:
        path: of the file, for messages.
        header: names of its columns.
        given: columns by role, as the user says.

    Raises FredError for columns that are not there or have two roles, UnclearTraceError where several may be the times.

    >>> roles_of("a.csv", ["step", "host", "local_rank", "step_time_ms", "loss"], {}).columns
    {'iteration': 'step', 'worker': 'host+local_rank', 'node': 'host', 'time': 'step_time_ms'}
    """
    check_given(path, header, given)
    found = Roles({role: column for role, column in _named(header, given).items() if column})
    return Roles(found.columns | ({} if "time" in found.columns else _time(path, found, found.free(header))))


def is_wide(roles: Roles) -> bool:
    """Return True where no column names workers or is of times, so that each column may be a worker's.

    Args:
        roles: of the columns.
    """
    return not has_times(roles) and not roles.get("node") and roles.columns.get("worker", FILE).startswith(FILE)


def has_times(roles: Roles) -> bool:
    """Return True where the columns say how long each row lasted.

    Args:
        roles: of the columns.
    """
    return "time" in roles.columns or {"start", "end"} <= roles.columns.keys()


def has_operations(roles: Roles) -> bool:
    """Return True where several rows may be of one gradient.

    Args:
        roles: of the columns.
    """
    spans = "start" in roles.columns and bool({"time", "end"} & roles.columns.keys())
    return spans or "type" in roles.columns


def is_of_a_node(name: str) -> bool:
    """Return True for a column that numbers the workers of one node, such as `local_rank`.

    Args:
        name: of the column.
    """
    return plain(name) in _LOCAL


def stands_beside_times(name: str) -> bool:
    """Return True for a column that is known not to be a time of a worker, such as `loss`.

    Args:
        name: of the column.
    """
    return _split(plain(name))[0] in _NO_WORKERS.split()


def workers_of(header: Sequence[str], iteration: str) -> tuple[list[str], list[str]]:
    """Return the columns of a wide table that are workers, and those that are not.

    Args:
        header: names of its columns.
        iteration: that of iterations, if there is one.
    """
    others = [name for name in header if name not in parts(iteration, header)]
    workers = [name for name in others if not stands_beside_times(name)]
    return workers, [name for name in others if name not in workers]


def check_given(path: str, header: Sequence[str], given: Mapping[Role, str]) -> None:
    """Refuse columns that are not there, and one column in two roles. Raises FredError.

    Args:
        path: of the file.
        header: names of its columns.
        given: columns by role, as the user says.
    """
    roles: dict[str, Role] = {}
    for role, column in given.items():
        names = parts(column, header)
        if role not in _JOINED and len(names) > 1:
            raise FredError(f"{path}: `{column}` are several columns; expected one that is the `{role}`")
        for name in names:
            if name not in (*header, *([FILE] if role in _NAMING else [])):
                raise FredError(f"{path} has no column `{name}` ({role}); it has {listed(header)}")
            if name in roles and name != FILE:
                raise FredError(f"{path}: column `{name}` cannot be both `{roles[name]}` and `{role}`; mend `columns`")
            roles[name] = role


def _named(header: Sequence[str], given: Mapping[Role, str]) -> dict[Role, str]:
    """Return the columns that the user or their names tell, but for times."""
    found = dict(given)
    for role, names in _NAMES.items():
        if role not in found:
            found[role] = _first(names.split(), header, found, without_unit=role in ("start", "end"))
    epoch = _first(["epoch"], header, found)
    if "iteration" not in given and epoch and plain(found["iteration"]) not in ("", "global_step"):
        found["iteration"] = f"{epoch}{AND}{found['iteration']}"  # steps may begin again in each epoch
    if found["worker"]:
        found["type"] = found["type"] or _first(["name"], header, found)
    elif local := _first(_LOCAL, header, found):
        found["worker"] = f"{found['node']}{AND}{local}" if found["node"] else local
    return found


def _first(names: Sequence[str], header: Sequence[str], found: Mapping[Role, str], without_unit: bool = False) -> str:
    """Return the column whose name comes first among `names`, of those that have no role yet."""
    used = {part for column in found.values() for part in parts(column, header)}
    called = {_split(plain(name))[0] if without_unit else plain(name): name for name in reversed(header) if name not in used}
    return next((called[name] for name in names if name in called), "")


def _time(path: str, found: Roles, free: Sequence[str]) -> dict[Role, str]:
    """Return the column of times, if one is known by its name. Raises UnclearTraceError where several may be."""
    times = [name for name in free if name == "seconds"] or [name for name in free if _split(plain(name))[0] in _TIMES.split()]
    units = [name for name in free if unit_of(name)]
    if not times and (len(units) == 1 or "worker" in found.columns):
        times = units
    if has_times(found) or len(times) < 2:
        return {"time": times[0]} if len(times) == 1 else {}
    phases = [name for name in times if not is_communication(name)]
    ways = [AND.join(phases), *times] if times == units and len(phases) > 1 else times
    raise UnclearTraceError(
        f"{path}: which columns have the times of iterations, {listed(times)}? Say it (`columns: {{time: {ways[0]}}}`); a time "
        f"that includes waiting for others hides who is slow, and `{AND}` adds up",
        remedies=[{"columns": {"time": name}} for name in ways],
    )


def _split(name: str) -> tuple[str, Unit | None]:
    """Return a plain name without its unit, and the unit."""
    for unit, words in _UNITS.items():
        match = re.fullmatch(rf"(?:(.+)_)?(?:{words})", name)
        if match and (match[1] or len(name) > 1):
            return (match[1] or "seconds").removesuffix("_in"), unit
    return name, None
