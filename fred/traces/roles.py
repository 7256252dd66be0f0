"""Roles of the columns of a trace, from their names; and units, which come from names only."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from fred.base.errors import FredError
from fred.base.words import listed
from fred.tables.quantities import WORDS, Unit
from fred.traces.refusal import UnclearTraceError

Role = Literal["iteration", "worker", "time", "node", "start", "end", "type"]
FILE = "FILE"  # instead of a column: the file that a row is from
AND = "+"  # joins columns that identify something together

_NAMES: dict[Role, str] = {  # the first that occurs is used
    "iteration": "iteration global_step iteration_id iter iter_id train_step training_step step step_id it batch batch_idx "
    "batch_id round training_iteration",
    "worker": "worker worker_id worker_name global_rank rank rank_id world_rank executor executor_id process process_id proc "
    "task task_id client client_id learner replica trainer",
    "node": "node node_id node_name hostname host host_name host_id machine machine_id machine_name instance server pod",
    "start": "start begin start_time begin_time start_timestamp started started_at start_at begin_at start_ts ts timestamp",
    "end": "end stop finish end_time stop_time finish_time end_timestamp ended ended_at finished finished_at end_at end_ts",
    "type": "type op operation op_type op_name kind category cat phase event event_name",
}
_NAMING, _JOINED = ("iteration", "worker", "node"), ("iteration", "worker", "node", "time")
_LOCAL = ("local_rank", "device", "device_id", "gpu", "gpu_id", "local_worker", "slot")  # number a worker within its node
_TIMES = (
    "seconds duration dur elapsed elapsed_time latency step_time iteration_time iter_time batch_time compute_time "
    "computation_time compute computing run_time runtime time took train_time"
)  # without units
_STEP, _TIME = "step|iteration|iter|it|batch|round|compute", "time|duration|latency|seconds|secs?|ms|elapsed"
_OF_A_STEP = re.compile(rf"(.*_)?({_STEP})_({_TIME})(_.*)?|(.*_)?({_TIME})_(per|this|of)_({_STEP})(_.*)?|({_TIME})_({_STEP})")
_NO_DURATION = re.compile(
    r"(^|_)(total|since|eta|remaining|cumulative|wall|stamp|timestamp|left|until|max|min|std|per_sec\w*)(_|$)"
)
_PATH = re.compile(r"^(?!.*/s(/|$)).*/")  # such as trainer/global_step, not TFLOP/s/device
_NO_WORKERS = (  # columns of a wide table that are not workers
    "loss accuracy acc error lr learning_rate epoch timestamp date datetime total mean avg average median min max std "
    "throughput tokens samples grad_norm step_time time usr sys idl wai stl iowait idle cpu read writ write recv send"
)
_METRIC = re.compile(  # a word in the name of what training measures, which is no worker
    r"(^|_)(loss\w*|acc|accuracy|error|lr|rate|epoch|timestamp|norm|tokens?|samples?|throughput|tps|flops?|tflops?|mfu|mem|memory|"
    r"util\w*|reward|return|perplexity|ppl|f1|auc|score|temp\w*|power|watts?|wall_time|eta|grad\w*|seen|consumed|batch_size|flos|(train|eval)_runtime|per_s(ec|econd)?)(_|$)"
)

_OF_RUNS = re.compile("(?:.*_)?(?:train|eval|test|val)_(?:steps|samples)_per_second")  # of the Hugging Face Trainer
_MEAN = re.compile(r"(?:^|_)(?:avg|average|running|mean|min|max|median|ema|smooth\w*|cum\w*)(?:_|$)")
STEP_RATE = re.compile(
    r"(?:.*_)?(?:it|its|iter|iters|iteration|iterations|step|steps|batch|batches)_(?:s|per_s|sec|per_sec|per_second)|ups"
)
WORK_RATE = re.compile(
    r"(?:.*_)?(?:(?:tok|tokens?|samples?|images?|imgs?|examples?|sequences?|seqs?|words?)_(?:s|per_s|sec|per_sec|per_second)(?:_.*)?"
    r"|tps|wps|tgs)(?:_.*)?|(?:.*_)?throughput(?:_tps)?"
)
_COMMUNICATION = re.compile(
    r"(?:^|_)(?:(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|broadcast|bcast|send|recv|receive|p2p|comms?|communicat\w*|"
    r"barrier|sync|synchroni[sz]\w*|wait|waiting|idle|c10d|gloo|mpi|record_param_comms)(?:_|$)|[nr]ccl)"
)


@dataclass(frozen=True)
class Says:
    """The user's options for a file.

    Args:
        columns: names of columns by role.
        unit: unit of the times, if given.
        mend: True if rows without an iteration or worker may be left out.
        name: short name of the file.
        only: values of columns, by their names, that the rows to read have.
    """

    columns: Mapping[Role, str]
    unit: Unit | None
    mend: bool
    name: str
    only: Mapping[str, str] = field(default_factory=dict)


class Roles(NamedTuple):
    """The columns of a file by role; several joined by `+` identify something together."""

    columns: dict[Role, str]

    def get(self, role: Role) -> str:
        """Return the column with this role, or an empty string.

        Args:
            role: role of the column.
        """
        return self.columns.get(role, "")

    def free(self, header: Sequence[str]) -> list[str]:
        """Return the columns without a role.

        Args:
            header: names of all columns.
        """
        used = {part for column in self.columns.values() for part in parts(column, header)}
        return [name for name in header if name not in used]


@lru_cache(4096)  # logs have the same names in each of a million lines
def plain(name: str) -> str:
    """Return a column's name in lower case, with words joined by underscores.

    Args:
        name: name of the column.

    >>> plain("Step Time (ms)"), plain("globalStep")
    ('step_time_ms', 'global_step')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def is_communication(name: str) -> bool:
    """Return True for the name of an operation that communicates or waits.

    Args:
        name: name of the operation, or of its type.

    >>> names = ("ncclDevKernel_AllReduce", "grads-reduce-scatter", "c10d::allreduce_", "forward-send", "forward-compute")
    >>> [is_communication(name) for name in names]
    [True, True, True, True, False]
    """
    return _COMMUNICATION.search(plain(name)) is not None


def unit_of(name: str) -> Unit | None:
    """Return the unit at the end of a column's name, or None.

    Args:
        name: name of the column.

    >>> unit_of("duration_ms"), unit_of("time (us)"), unit_of("items"), unit_of("seconds")
    ('ms', 'us', None, 's')
    """
    return _split(plain(name))[1]


def parts(column: str, header: Sequence[str]) -> list[str]:
    """Return the columns in one entry of `columns`: one, or several joined by `+`.

    Args:
        column: the entry.
        header: names of the file's columns.
    """
    return [column] if column in header else column.split(AND)


def roles_of(path: str, header: Sequence[str], given: Mapping[Role, str]) -> Roles:
    """Return the roles of the columns, as given by the user, otherwise from their names.

    Args:
        path: path of the file, for messages.
        header: names of its columns.
        given: columns by role, from the user.

    Raises FredError for columns that do not exist or have two roles, UnclearTraceError if several may be the times.

    >>> roles_of("a.csv", ["step", "host", "local_rank", "step_time_ms", "loss"], {}).columns
    {'iteration': 'step', 'worker': 'host+local_rank', 'node': 'host', 'time': 'step_time_ms'}
    """
    check_given(path, header, given)
    found = Roles({role: column for role, column in _named(header, given).items() if column})
    return Roles(found.columns | ({} if "time" in found.columns else _time(path, found, found.free(header))))


def is_wide(roles: Roles) -> bool:
    """Return True if no column names workers or has times, so each column may hold a worker's times.

    Args:
        roles: roles of the columns.
    """
    return not has_times(roles) and not roles.get("node") and roles.columns.get("worker", FILE).startswith(FILE)


def has_times(roles: Roles) -> bool:
    """Return True if the columns give the duration of each row.

    Args:
        roles: roles of the columns.
    """
    return "time" in roles.columns or {"start", "end"} <= roles.columns.keys()


def has_operations(roles: Roles) -> bool:
    """Return True if several rows may belong to one gradient.

    Args:
        roles: roles of the columns.
    """
    spans = "start" in roles.columns and bool({"time", "end"} & roles.columns.keys())
    return spans or "type" in roles.columns


def is_of_a_node(name: str) -> bool:
    """Return True for a column that numbers the workers within a node, such as `local_rank`.

    Args:
        name: name of the column.
    """
    return plain(name) in _LOCAL


def is_of_nodes(name: str) -> bool:
    """Return True for a column that names nodes, such as `hostname`.

    Args:
        name: name of the column.
    """
    return plain(name) in _NAMES["node"].split()


def is_time(name: str) -> bool:
    """Return True for a column whose name says that it holds the time of a step.

    Args:
        name: name of the column; `perf/step_time` counts as `step_time`.

    >>> [is_time(name) for name in ("perf/step_time", "Step Time (ms)", "time_per_iteration", "time_total_s", "loss")]
    [True, True, True, False, False]
    """
    full, last = _split(plain(name))[0], _split(plain(re.split(r"[/.]| - ", name)[-1]))[0]
    if {full, last} & set(_TIMES.split()):
        return True
    return bool(_OF_A_STEP.fullmatch(plain(name))) and not _NO_DURATION.search(plain(name))


def is_metric(name: str) -> bool:
    """Return True for a column that is known not to hold a worker's times, such as `train/loss`.

    Args:
        name: name of the column.
    """
    return _METRIC.search(plain(name)) is not None


def is_mean(name: str) -> bool:
    """Return True for a mean over steps, which hides single steps.

    Args:
        name: name of a column.
    """
    return _MEAN.search(plain(name)) is not None


def is_rate(name: str) -> bool:
    """Return True for a column of steps per second, or of work per second, whose inverse is proportional to a step's time.

    Args:
        name: name of the column.

    >>> [is_rate(name) for name in ("it/s", "perf/tokens_per_sec", "throughput", "time_per_step", "time_this_iter_s")]
    [True, True, True, False, False]
    """
    words = plain(name)
    if _OF_RUNS.fullmatch(words):
        return False
    is_clear = re.search("/ ?s|per_s|ups", f"{name} {words}") is not None  # `iter_s` may be s of an iteration
    return (is_clear and STEP_RATE.fullmatch(words) is not None) or WORK_RATE.fullmatch(words) is not None


def rate_of(columns: Sequence[str]) -> tuple[str, bool]:
    """Return a column of steps per second, or of work per second, and True for steps; empty if there is none.

    Args:
        columns: names of columns.

    >>> rate_of(["loss", "tps", "it/s"]), rate_of(["RunningAvgSamplesPerSec", "CurrSamplesPerSec"])
    (('it/s', True), ('CurrSamplesPerSec', False))
    """
    for pattern in (STEP_RATE, WORK_RATE):
        rates = [name for name in columns if pattern.fullmatch(plain(name)) and not is_mean(name)]
        if rates:
            return rates[0], pattern is STEP_RATE
    return "", False


def stands_beside_times(name: str) -> bool:
    """Return True for a column that is known not to hold a worker's times, such as `loss`.

    Args:
        name: name of the column.
    """
    return _split(plain(name))[0] in _NO_WORKERS.split() or is_metric(name)


def workers_of(header: Sequence[str], iteration: str) -> tuple[list[str], list[str]]:
    """Return the columns of a wide table that are workers, and the other columns.

    Args:
        header: names of its columns.
        iteration: column of iterations, if there is one.
    """
    others = [name for name in header if name not in parts(iteration, header)]
    workers = [name for name in others if not stands_beside_times(name)]
    return workers, [name for name in others if name not in workers]


def check_given(path: str, header: Sequence[str], given: Mapping[Role, str]) -> None:
    """Raise FredError for columns that do not exist, and for a column in two roles.

    Args:
        path: path of the file.
        header: names of its columns.
        given: columns by role, from the user.
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
                raise FredError(f"{path}: column `{name}` cannot be both `{roles[name]}` and `{role}`; correct `columns`")
            roles[name] = role


def _named(header: Sequence[str], given: Mapping[Role, str]) -> dict[Role, str]:
    """Return the columns given by the user or identified by name, except times."""
    found = dict(given)
    for role, names in _NAMES.items():
        if role not in found:
            found[role] = _first(names.split(), header, found, without_unit=role in ("start", "end"))
    epoch = _first(["epoch"], header, found)
    if "iteration" not in given and epoch and plain(found["iteration"]) not in ("", "global_step"):
        found["iteration"] = f"{epoch}{AND}{found['iteration']}"  # steps may restart in each epoch
    if found["worker"]:
        found["type"] = found["type"] or _first(["name"], header, found)
    elif local := _first(_LOCAL, header, found):
        found["worker"] = f"{found['node']}{AND}{local}" if found["node"] else local
    return found


def _first(names: Sequence[str], header: Sequence[str], found: Mapping[Role, str], without_unit: bool = False) -> str:
    """Return the first column without a role whose name is in `names`, in their order."""
    used = {part for column in found.values() for part in parts(column, header)}
    free = [name for name in reversed(header) if name not in used]
    called = {plain(re.split("[/.]", name)[-1]): name for name in free if _PATH.search(name)}
    called |= {_split(plain(name))[0] if without_unit else plain(name): name for name in free}
    return next((called[name] for name in names if name in called), "")


def _time(path: str, found: Roles, free: Sequence[str]) -> dict[Role, str]:
    """Return the column of times or else of rates, if a name identifies one. Raises UnclearTraceError if several may be."""
    rates, free = [name for name in free if is_rate(name)], [name for name in free if not is_rate(name)]
    times = [name for name in free if name == "seconds"] or [name for name in free if is_time(name) and not is_metric(name)]
    best = [name for name in times if _OF_A_STEP.fullmatch(plain(name)) and not _NO_DURATION.search(plain(name))]
    times = best if len(best) == 1 and "worker" not in found.columns else times
    units = [name for name in free if unit_of(name) and not is_metric(name)]
    if not times and (len(units) == 1 or "worker" in found.columns):
        times = units
    if not (times or has_times(found)) and ("worker" in found.columns or all(map(stands_beside_times, free))):
        times = [name for name in rates if not is_mean(name)]
    if has_times(found) or len(times) < 2:
        return {"time": times[0]} if len(times) == 1 else {}
    phases = [name for name in times if not is_communication(name)]
    ways = [AND.join(phases), *times] if times == units and len(phases) > 1 else times
    raise UnclearTraceError(
        f"{path}: which columns have the times of iterations, {listed(times)}? Name them (`columns: {{time: {ways[0]}}}`); a "
        f"time that includes waiting for others hides who is slow, and `{AND}` adds columns up",
        remedies=[{"columns": {"time": name}} for name in ways],
    )


def _split(name: str) -> tuple[str, Unit | None]:
    """Return a plain name without its unit, and the unit."""
    for unit, words in WORDS.items():
        match = re.fullmatch(rf"(?:(.+)_)?(?:{words})", name)
        if match and (match[1] or len(name) > 1):
            return (match[1] or "seconds").removesuffix("_in"), unit
    return name, None
