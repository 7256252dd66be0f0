"""Roles of the columns of a trace, from their names; units, which come from names only; and the error for unclear traces."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fred.base.errors import FredError, listed
from fred.tables.quantities import WORDS, Unit, to_snake_case

Options = Mapping[str, Any]  # of `fred.traces.reading.read`: columns, unit, mend


class UnclearTraceError(FredError):
    """A trace that is unreadable without further options.

    Args:
        problems: unclear points, one sentence each.
        remedies: sets of options of `read` that would resolve them, most probable first.
        works: True if the first remedy was tried and gives a plausible trace.

    `options` is the first remedy, `fix` the same as words of a command line. The program prints the whole command.

    >>> UnclearTraceError("which unit?", remedies=[{"columns": {"iteration": "it"}, "unit": "ms"}]).fix
    ('--columns', 'iteration=it', '--unit', 'ms')
    """

    def __init__(self, *problems: str, remedies: Sequence[Options], works: bool = False):
        super().__init__(*problems)
        self.remedies, self.works = remedies, works

    @property
    def options(self) -> Options:
        """Return the options of `read` that make the trace readable."""
        return self.remedies[0]

    @property
    def fix(self) -> tuple[str, ...]:
        """Return these options as words of a command line."""
        return tuple(word for name, value in self.options.items() for word in (f"--{name}", _option_text(value)))


def _option_text(value: Any) -> str:
    return ",".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, Mapping) else str(value)


Role = Literal["iteration", "worker", "time", "node", "start", "end", "type"]
FILE = "FILE"  # instead of a column: the file that a row is from
PLUS = "+"  # joins columns that identify something together

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
_NAMED_ROLES, _COMBINABLE_ROLES = ("iteration", "worker", "node"), ("iteration", "worker", "node", "time")
_LOCAL_RANKS = ("local_rank", "device", "device_id", "gpu", "gpu_id", "local_worker", "slot")  # number a worker within its node
_TIMES = (
    "seconds duration dur elapsed elapsed_time latency step_time iteration_time iter_time batch_time compute_time "
    "computation_time compute computing run_time runtime time took train_time"
)  # without units
_STEP, _TIME = "step|iteration|iter|it|batch|round|compute", "time|duration|latency|seconds|secs?|ms|elapsed"
_STEP_TIME = re.compile(rf"(.*_)?({_STEP})_({_TIME})(_.*)?|(.*_)?({_TIME})_(per|this|of)_({_STEP})(_.*)?|({_TIME})_({_STEP})")
_NOT_A_DURATION = re.compile(
    r"(^|_)(total|since|eta|remaining|cumulative|wall|stamp|timestamp|left|until|max|min|std|per_sec\w*)(_|$)"
)
_PATH = re.compile(r"^(?!.*/s(/|$)).*/")  # such as trainer/global_step, not TFLOP/s/device
_NOT_WORKERS = (  # columns of a wide table that are not workers
    "loss accuracy acc error lr learning_rate epoch timestamp date datetime total mean avg average median min max std "
    "throughput tokens samples grad_norm step_time time usr sys idl wai stl iowait idle cpu read writ write recv send"
)
_METRIC = re.compile(  # a word in the name of what training measures, which is no worker
    r"(^|_)(loss\w*|acc|accuracy|error|lr|rate|epoch|timestamp|norm|tokens?|samples?|throughput|tps|flops?|tflops?|mfu|mem|memory|"
    r"util\w*|reward|return|perplexity|ppl|f1|auc|score|temp\w*|power|watts?|wall_time|eta|grad\w*|seen|consumed|batch_size|flos|(train|eval)_runtime|per_s(ec|econd)?)(_|$)"
)

_THROUGHPUT_GROUP = re.compile(r"^(?:[\w.]+/)*throughput/")  # such as throughput/duration, a time

_RUN_RATE = re.compile("(?:.*_)?(?:train|eval|test|val)_(?:steps|samples)_per_second")  # of a whole run, by Hugging Face
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
_NOT_A_WAIT = re.compile(  # in the name of a time that leaves communication out, or of a step measured with a synchronised GPU
    r"(?:^|_)(?:comput\w*|own|self|busy|without|no|excl\w*|before|until)(?:_|$)"
    r"|(?:^|_)(?:step|iter|iteration|batch)_(?:time_)?sync(?:_|$)|(?:^|_)sync_(?:step|iter|iteration|batch)(?:_|$)"
)


@dataclass(frozen=True)
class FileOptions:
    """The user's options for one file.

    Args:
        columns: names of columns by role.
        unit: unit of the times; None: from the file.
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

    def unassigned(self, header: Sequence[str]) -> list[str]:
        """Return the columns without a role.

        Args:
            header: names of all columns.
        """
        used = {part for column in self.columns.values() for part in split_columns(column, header)}
        return [name for name in header if name not in used]


def is_communication(name: str) -> bool:
    """Return True for the name of an operation that communicates or waits.

    Args:
        name: name of the operation, or of its type.

    >>> names = ("ncclDevKernel_AllReduce", "grads-reduce-scatter", "c10d::allreduce_", "forward-send", "forward-compute")
    >>> [is_communication(name) for name in names]
    [True, True, True, True, False]
    """
    return _COMMUNICATION.search(to_snake_case(name)) is not None


def is_waiting_time(name: str) -> bool:
    """Return True for the name of a time of communication or waiting, which is no compute time.

    Args:
        name: name of a column of times.

    >>> [is_waiting_time(name) for name in ("allreduce_ms", "comm_time", "time_without_sync", "step_time_sync", "step_time")]
    [True, True, False, False, False]
    """
    return is_communication(name) and _NOT_A_WAIT.search(to_snake_case(name)) is None


def unit_of(name: str) -> Unit | None:
    """Return the unit at the end of a column's name, or None.

    Args:
        name: name of the column.

    >>> unit_of("duration_ms"), unit_of("time (us)"), unit_of("items"), unit_of("seconds")
    ('ms', 'us', None, 's')
    """
    return _split_unit(to_snake_case(name))[1]


def split_columns(column: str, header: Sequence[str]) -> list[str]:
    """Return the columns in one entry of `columns`: one, or several joined by `+`.

    Args:
        column: the entry.
        header: names of the file's columns.
    """
    return [column] if column in header else column.split(PLUS)


def find_roles(
    path: str, header: Sequence[str], columns: Mapping[Role, str], holds_dates: Callable[[str], bool] = lambda _: False
) -> Roles:
    """Return the roles of the columns, from the user or else from their names.

    Args:
        path: path of the file, for messages.
        header: names of its columns.
        columns: columns by role, from the user.
        holds_dates: function that returns True for a column of dates, which are no durations.

    Raises FredError for columns that do not exist or have two roles, UnclearTraceError if several may be the times.

    >>> find_roles("a.csv", ["step", "host", "local_rank", "step_time_ms", "loss"], {}).columns
    {'iteration': 'step', 'worker': 'host+local_rank', 'node': 'host', 'time': 'step_time_ms'}
    """
    check_columns(path, header, columns)
    roles = Roles({role: column for role, column in _name_roles(header, columns).items() if column})
    if "time" in roles.columns:
        return roles
    return Roles(roles.columns | _find_time(path, roles, roles.unassigned(header), holds_dates))


def is_wide(roles: Roles) -> bool:
    """Return True if no column names workers or nodes or has times, so each column may hold a worker's times.

    `FILE` names no column: as `worker` it puts the file's name before those of the columns, as `node` it is the node of all
    of them (`wide_tables.py`).

    Args:
        roles: roles of the columns.
    """
    return not has_times(roles) and roles.get("node") in ("", FILE) and roles.columns.get("worker", FILE).startswith(FILE)


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


def is_local_rank(name: str) -> bool:
    """Return True for a column that numbers the workers within a node, such as `local_rank`.

    Args:
        name: name of the column.
    """
    return to_snake_case(name) in _LOCAL_RANKS


def is_node_column(name: str) -> bool:
    """Return True for a column that names nodes, such as `hostname`.

    Args:
        name: name of the column.
    """
    return to_snake_case(name) in _NAMES["node"].split()


def is_time(name: str) -> bool:
    """Return True for a column whose name says that it holds the time of a step.

    Args:
        name: name of the column; `perf/step_time` counts as `step_time`.

    >>> [is_time(name) for name in ("perf/step_time", "Step Time (ms)", "time_per_iteration", "time_total_s", "loss")]
    [True, True, True, False, False]
    """
    last_part = re.split(r"[/.]| - ", name)[-1]
    if {_split_unit(to_snake_case(part))[0] for part in (name, last_part)} & set(_TIMES.split()):
        return True
    return _is_step_time(name)


def _is_step_time(name: str) -> bool:
    words = to_snake_case(name)
    return _STEP_TIME.fullmatch(words) is not None and not _NOT_A_DURATION.search(words)


def is_metric(name: str) -> bool:
    """Return True for a column that is known not to hold a worker's times, such as `train/loss`.

    Args:
        name: name of the column.
    """
    return _METRIC.search(to_snake_case(_THROUGHPUT_GROUP.sub("", name))) is not None


def is_mean(name: str) -> bool:
    """Return True for a mean over steps, which hides single steps.

    Args:
        name: name of a column.
    """
    return _MEAN.search(to_snake_case(name)) is not None


def is_rate(name: str) -> bool:
    """Return True for a column of steps per second, or of work per second, whose inverse is proportional to a step's time.

    Args:
        name: name of the column.

    >>> [is_rate(name) for name in ("it/s", "perf/tokens_per_sec", "throughput", "time_per_step", "time_this_iter_s")]
    [True, True, True, False, False]
    """
    words = to_snake_case(name)
    if _RUN_RATE.fullmatch(words):
        return False
    is_clear = re.search("/ ?s|per_s|ups", f"{name} {words}") is not None  # `iter_s` may be s of an iteration
    return (is_clear and STEP_RATE.fullmatch(words) is not None) or WORK_RATE.fullmatch(words) is not None


def find_rate(columns: Sequence[str]) -> tuple[str, bool]:
    """Return a column of steps per second, or of work per second, and True for steps; empty if there is none.

    Args:
        columns: names of columns.

    >>> find_rate(["loss", "tps", "it/s"]), find_rate(["RunningAvgSamplesPerSec", "CurrSamplesPerSec"])
    (('it/s', True), ('CurrSamplesPerSec', False))
    """
    for pattern in (STEP_RATE, WORK_RATE):
        rates = [name for name in columns if pattern.fullmatch(to_snake_case(name)) and not is_mean(name)]
        if rates:
            return rates[0], pattern is STEP_RATE
    return "", False


def holds_no_times(name: str) -> bool:
    """Return True for a column that is known not to hold a worker's times, such as `loss`.

    Args:
        name: name of the column.
    """
    return _split_unit(to_snake_case(name))[0] in _NOT_WORKERS.split() or is_metric(name)


def split_workers(header: Sequence[str], iteration: str) -> tuple[list[str], list[str]]:
    """Return the columns of a wide table that are workers, and the other columns.

    Args:
        header: names of its columns.
        iteration: column of iterations, if there is one.
    """
    columns = [name for name in header if name not in split_columns(iteration, header)]
    workers = [name for name in columns if not holds_no_times(name)]
    return workers, [name for name in columns if name not in workers]


def check_columns(path: str, header: Sequence[str], columns: Mapping[Role, str]) -> None:
    """Raise FredError for columns that do not exist, and for a column in two roles.

    Args:
        path: path of the file.
        header: names of its columns.
        columns: columns by role, from the user.
    """
    roles: dict[str, Role] = {}
    for role, column in columns.items():
        names = split_columns(column, header)
        if role not in _COMBINABLE_ROLES and len(names) > 1:
            raise FredError(f"{path}: `{column}` are several columns; expected one that is the `{role}`")
        for name in names:
            if name not in (*header, *([FILE] if role in _NAMED_ROLES else [])):
                raise FredError(f"{path} has no column `{name}` ({role}); it has {listed(header)}")
            if name in roles and name != FILE:
                raise FredError(f"{path}: column `{name}` cannot be both `{roles[name]}` and `{role}`; correct `columns`")
            roles[name] = role


def _name_roles(header: Sequence[str], columns: Mapping[Role, str]) -> dict[Role, str]:
    """Return the columns from the user or identified by name, except times; an empty text for a role without a column."""
    roles = dict(columns)
    for role, names in _NAMES.items():
        if role not in roles:
            roles[role] = _first_match(names.split(), header, roles, without_unit=role in ("start", "end"))
    epoch = _first_match(["epoch"], header, roles)
    if "iteration" not in columns and epoch and to_snake_case(roles["iteration"]) not in ("", "global_step"):
        roles["iteration"] = f"{epoch}{PLUS}{roles['iteration']}"  # steps may restart in each epoch; global steps do not
    if roles["worker"]:  # then `name` is not the worker's, but may be the operation's
        roles["type"] = roles["type"] or _first_match(["name"], header, roles)
    elif local_rank := _first_match(_LOCAL_RANKS, header, roles):
        roles["worker"] = f"{roles['node']}{PLUS}{local_rank}" if roles["node"] else local_rank
    return roles


def _first_match(names: Sequence[str], header: Sequence[str], roles: Mapping[Role, str], without_unit: bool = False) -> str:
    """Return the column without a role that has the first possible one of some names; empty if there is none.

    Args:
        names: names in snake case, most probable first.
        header: names of all columns.
        roles: columns that have a role already.
        without_unit: True to ignore a unit at the end of a column's name.
    """
    used = {part for column in roles.values() for part in split_columns(column, header)}
    # Later entries replace earlier ones: the first of several columns counts, and a whole name before the end of a path.
    unassigned = [column for column in reversed(header) if column not in used]
    by_name = {to_snake_case(re.split("[/.]", column)[-1]): column for column in unassigned if _PATH.search(column)}
    by_name |= {
        _split_unit(to_snake_case(column))[0] if without_unit else to_snake_case(column): column for column in unassigned
    }
    return next((by_name[name] for name in names if name in by_name), "")


def _find_time(path: str, roles: Roles, unassigned: Sequence[str], holds_dates: Callable[[str], bool]) -> dict[Role, str]:
    """Return the column of times or else of rates, if a name identifies one. Raises UnclearTraceError if several may be.

    Names that say that they are times count first, then a unit in a name, then rates.
    """
    has_workers = "worker" in roles.columns  # without workers, each of several columns may be a worker's: a wide table
    rates = list(filter(is_rate, unassigned))
    unassigned = [name for name in unassigned if name not in rates]
    times = ["seconds"] if "seconds" in unassigned else [name for name in unassigned if is_time(name) and not is_metric(name)]
    step_times = list(filter(_is_step_time, times))
    times = step_times if len(step_times) == 1 and not has_workers else times
    with_unit = [name for name in unassigned if unit_of(name) and not is_metric(name)]
    if not times and (len(with_unit) == 1 or has_workers):
        times = with_unit
    if not (times or has_times(roles)) and (has_workers or all(map(holds_no_times, unassigned))):
        times = [name for name in rates if not is_mean(name)]
    if len(times) > 1:
        times = [name for name in times if not holds_dates(name)] or times
    if has_times(roles) or len(times) < 2:  # start and end suffice where several names may be times
        return {"time": times[0]} if len(times) == 1 else {}
    phases = [name for name in times if not is_communication(name)]
    # Columns known by their units alone, such as `forward_ms`, are probably parts that add up to a step.
    proposals = [PLUS.join(phases), *times] if times == with_unit and len(phases) > 1 else times
    raise UnclearTraceError(
        f"{path}: which columns have the times of iterations, {listed(times)}? Name them "
        f"(`columns: {{time: {proposals[0]}}}`); a time that includes waiting for others hides who is slow, and `{PLUS}` adds "
        "columns up",
        remedies=[{"columns": {"time": name}} for name in proposals],
    )


def _split_unit(name: str) -> tuple[str, Unit | None]:
    """Return a name in snake case without its unit, and the unit; a name that is only a unit becomes `seconds`."""
    for unit, words in WORDS.items():
        match = re.fullmatch(rf"(?:(.+)_)?(?:{words})", name)
        if match and (match[1] or len(name) > 1):  # a column called `s` alone may be anything
            return (match[1] or "seconds").removesuffix("_in"), unit  # `time_in_ms` is `time`
    return name, None
