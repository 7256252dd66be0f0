"""Recorder of step times in a training loop, without the time in which a rank waits for other ranks.

This file needs Python's standard library only. `fred record > fred_record.py` copies it next to a training program, which
then imports it from there; `import fred` is not for training loops, because it changes options of JAX.

Step times around `optimizer.step()` are equal on all ranks, because all ranks wait for the slowest one. A `StepRecorder`
subtracts the waits from the step times and writes a file for each rank, which `fred diagnose FOLDER` reads:

| column      | content                                                                                           |
|-------------|---------------------------------------------------------------------------------------------------|
| `iteration` | number of the step, the same on all ranks; the first two steps are not written                    |
| `worker`    | the rank                                                                                          |
| `node`      | name of the host                                                                                  |
| `start`     | start of the step, s since 1970                                                                   |
| `seconds`   | the rank's compute time, s: the step without its waits                                            |
| `data`      | part of `seconds` in which the loop waited for its next batch, s                                  |
| `wait`      | time in which the rank waited for other ranks, s                                                  |

Example: a loop without a framework.
    >>> import fred
    >>> recorder = fred.StepRecorder("times", rank=0)
    >>> for batch in recorder.steps(range(4)):
    ...     gradient = 2 * batch
    ...     with recorder.wait():
    ...         pass  # an allreduce
    >>> recorder.close()
    >>> [line.split(",")[:2] for line in open("times/rank-0000.csv")]
    [['iteration', 'worker'], ['2', '0'], ['3', '0']]
"""

import atexit
import contextlib
import functools
import importlib
import math
import os
import re
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Batch = TypeVar("Batch")
_HEADER = "iteration,worker,node,start,seconds,data,wait\n"
_WARM_UP = 2  # steps: the first compiles and allocates; in the second DDP rebuilds its buckets
_VARIABLES = {  # of launchers: the rank, and the number of ranks
    **{"RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"},
    **{"OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"},
}
_COLLECTIVES = re.compile(  # functions of torch.distributed that wait for other ranks, in all of its versions
    r"_?(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|reduce|gather|scatter)"
    r"(_coalesced|_into_tensor|_tensor|_single|_base|_object|_object_list)?|recv|(monitored_)?barrier"
)
_FSDP_METHODS = ("unshard", "wait_for_unshard", "post_backward", "finalize_backward")  # of a group of sharded parameters


class StepRecorder:
    """A recorder of this rank's step times, without the time in which it waits for other ranks.

    With PyTorch, two lines are enough: `recorder.watch(model)` finds the waits of DistributedDataParallel, of `fully_shard`
    and of the collectives in `torch.distributed`, and `for batch in recorder.steps(loader)` marks the steps. On a GPU the
    times are those of CUDA events, which the recorder reads when they have happened, without waiting for them.

    A step of a DDP model ends when its gradients have been averaged, so micro steps in `no_sync()` are parts of one step.

    Args:
        folder: folder for the files, `rank-0000.csv` and so on. An earlier file of a rank is renamed to `.csv.old`.
        rank: this process's number. Default: the rank in `torch.distributed`, else in the variables RANK, SLURM_PROCID,
            OMPI_COMM_WORLD_RANK or PMI_RANK, else JAX's process index, else 0; determined when the first step begins.

    Raises OSError if the folder cannot be created. Later errors of the file system end the recording with a warning, and
    the training goes on.

        >>> import fred
        >>> recorder = fred.StepRecorder("times", rank=3)
        >>> for batch in recorder.steps(range(10)):
        ...     pass
        >>> recorder.close()
        >>> len(open("times/rank-0003.csv").readlines())
        9
    """

    def __init__(self, folder: str | os.PathLike[str], rank: int | None = None):
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rank = rank
        self._file: int | None = None
        self._cuda: Any = None
        self._step: _Step | None = None
        self._unwritten: deque[_Step] = deque()
        self._number = 0
        self._prefix = ""
        self._boundary = 0.0
        self._replicas: list[Any] = []
        self._interval: list[Any] = []
        self._averaged = False
        self._region = _Region(self)
        atexit.register(self.close)

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, and record a step for each: from the request of a batch to the request of the next one.

        Args:
            batches: a data loader, or any other iterable, such as `range(steps)`.

        A step that the loop leaves with `break` is not written.
        """
        iterator = iter(batches)
        self._begin()
        try:
            for batch in iterator:
                self._load()
                yield batch
                self._end()
        finally:
            self._abandon()

    def wait(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the rank waits for others, such as a barrier: its time is subtracted.

        `watch` finds the waits of PyTorch; this is for other libraries, and for waits that `watch` does not find.
        """
        return self._region

    @contextlib.contextmanager
    def data(self) -> Iterator[None]:
        """Count the time of a context as loading of data; `steps` does so while it waits for the next batch."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            if self._step is not None:
                self._step.data += time.perf_counter() - begin

    def watch(self, model: Any, hook: Callable[[Any, Any], Any] | None = None, state: Any = None) -> None:
        """Find the waits of a PyTorch model that is trained by several processes.

        - DistributedDataParallel: a communication hook marks when this rank's last gradients are ready, and when their
          average arrives. Without a `hook`, averages keep their bits, except with both `gradient_as_bucket_view` and
          `zero_grad(set_to_none=False)`, where DDP divides instead of multiplying.
        - `fully_shard` (FSDP2): the methods that wait for parameters and gradients of other ranks.
        - Any model: the collectives that are called as `torch.distributed.all_reduce(...)`, such as those of SyncBatchNorm.

        Args:
            model: the wrapped model, also if it is a part of another module or compiled.
            hook: your communication hook for DDP, instead of `model.register_comm_hook(state, hook)`.
            state: first argument of the hook.

        Raises ValueError for a model whose waits are unknown, and for a DDP model that has a communication hook.
        """
        distributed: Any = importlib.import_module("torch.distributed")
        ddp: Any = importlib.import_module("torch.nn.parallel").DistributedDataParallel
        modules = list(getattr(model, "_orig_mod", model).modules())
        groups = [group for module in modules for group in _sharded_groups(module)]
        replicas = [module for module in modules if isinstance(module, ddp)]
        if not groups and not replicas and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError(
                f"recorder.watch({type(model).__name__}): found neither DistributedDataParallel nor fully_shard; expected the "
                "model that one of them returned. For another library, leave out `watch` and put `with recorder.wait():` "
                "around every operation that waits for other ranks"
            )
        for name in filter(_COLLECTIVES.fullmatch, dir(distributed)):
            setattr(distributed, name, self._timed(getattr(distributed, name)))
        for group in groups:
            for name in _FSDP_METHODS:
                setattr(group, name, self._timed(getattr(group, name)))
        for replica in replicas:
            if replica not in self._replicas:
                self._watch_replica(replica, hook, state)
                self._replicas.append(replica)

    def lightning(self) -> Any:
        """Return a callback for Lightning: `Trainer(callbacks=[recorder.lightning()])`. It watches the model, too.

        Validation counts as waiting.
        """
        try:
            base = importlib.import_module("lightning.pytorch").Callback
        except ImportError:
            base = importlib.import_module("pytorch_lightning").Callback
        methods = {
            "on_train_start": lambda trainer, _: self.watch(trainer.strategy.model),
            "on_train_epoch_start": lambda *_: self._begin(),
            "on_train_batch_start": lambda *_: self._load(),
            "on_train_batch_end": lambda *_: self._end(),
            "on_train_epoch_end": lambda *_: self._abandon(),
            "on_validation_start": lambda *_: self._region.__enter__(),
            "on_validation_end": lambda *_: self._region.__exit__(),
        }
        return type("StepTimes", (base,), {name: staticmethod(method) for name, method in methods.items()})()

    def transformers(self, trainer: Any) -> Any:
        """Return a callback for Hugging Face's Trainer: `trainer.add_callback(recorder.transformers(trainer))`.

        It watches the model, too. Times of logging, evaluation and saving are not counted.

        Args:
            trainer: the `transformers.Trainer`, whose wrapped model is watched when the training begins.
        """
        base = importlib.import_module("transformers").TrainerCallback
        methods = dict.fromkeys(("on_epoch_begin", "on_log", "on_evaluate", "on_save"), lambda *_, **__: self._begin())
        methods |= {
            "on_train_begin": lambda *_, **__: self.watch(trainer.model_wrapped),
            "on_step_begin": lambda *_, **__: self._load(),
            "on_step_end": lambda *_, **__: self._end(),
            "on_train_end": lambda *_, **__: self._abandon(),
        }
        return type("StepTimes", (base,), {name: staticmethod(method) for name, method in methods.items()})()

    def close(self) -> None:
        """Write the steps that a GPU has not yet finished, and close the file. Python calls it when the process ends."""
        atexit.unregister(self.close)
        self._abandon()
        self._write(finish=True)
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if self._number <= _WARM_UP:
                why = "no gradients of a watched model were averaged" if self._replicas and not self._number else "too few"
                warnings.warn(f"{self._folder}: no steps recorded: {why}; the first {_WARM_UP} are never written", stacklevel=2)

    def _begin(self) -> None:
        """Begin a step now."""
        if not self._prefix:
            self._open()
        self._step = _Step(self._mark(), time.time())
        self._boundary = time.perf_counter()
        self._averaged = False

    def _abandon(self) -> None:
        """Forget the step that has begun."""
        self._step = None
        self._write()

    def _load(self) -> None:
        """Count the time since the last batch as loading of data."""
        if self._step is not None:
            self._step.data += time.perf_counter() - self._boundary

    def _end(self) -> None:
        """End the step now, unless it is one without an average of gradients, and begin the next."""
        step = self._step
        self._boundary = time.perf_counter()
        if step is None or (self._replicas and not self._averaged):
            return
        self._averaged = False
        step.end = self._mark()
        step.number = self._number
        self._number += 1
        self._step = _Step(step.end, time.time())
        self._unwritten.append(step)
        self._write()

    def _mark(self) -> Any:
        """Return this moment: the processor's time, s, or a CUDA event, which happens when the GPU has done all before it."""
        if self._cuda is None:
            return time.perf_counter()
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, begin: Any, end: Any) -> float:
        return float(end - begin if self._cuda is None else begin.elapsed_time(end) / 1e3)

    def _write(self, finish: bool = False) -> None:
        """Write the steps that are over; `finish`: wait for the last ones."""
        while self._unwritten:
            step = self._unwritten[0]
            if self._cuda is not None and finish:
                step.end.synchronize()
            if self._cuda is not None and not step.end.query():
                return  # the GPU is still at work: ask again after the next step
            self._unwritten.popleft()
            wait = sum([max(0.0, *[self._seconds(begin, end) for end in ends]) for begin, *ends in step.waits if ends])
            seconds = max(self._seconds(step.begin, step.end) - wait, 1e-7)
            if step.number >= _WARM_UP and self._file is not None:
                row = f"{step.number},{self._prefix},{step.start:.6f},{seconds:.7f},{step.data:.7f},{wait:.7f}\n"
                try:
                    os.write(self._file, row.encode())  # at once, so that a killed process loses no finished step
                except OSError as error:
                    self._give_up(error)

    def _open(self) -> None:
        """Choose the clock, and open the file of this rank; set aside files of an earlier run."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            self._cuda = torch.cuda
        rank, size = _place()
        rank = rank if self._rank is None else self._rank
        self._prefix = f"{rank},{socket.gethostname() or 'localhost'}"
        files = {int(file.stem[5:]): file for file in self._folder.glob("rank-*.csv") if file.stem[5:].isdecimal()}
        try:
            for number, file in files.items():
                if number == rank or (rank == 0 and number >= (size or math.inf)):  # ranks that this run does not have
                    file.replace(file.with_suffix(".csv.old"))
            path = self._folder / f"rank-{rank:04d}.csv"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(self._file, _HEADER.encode())
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """End the recording, with a warning: a full disk must not end the training."""
        self._file = None
        warnings.warn(f"step times are no longer recorded: {self._folder}: {error.strerror or error}", stacklevel=2)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that counts its time as waiting; asynchronous operations return at once."""
        original = getattr(function, "_untimed", function)
        region = self._region
        is_compiling = getattr(getattr(sys.modules.get("torch"), "compiler", None), "is_compiling", bool)

        @functools.wraps(original)
        def timed(*arguments: Any, **options: Any) -> Any:
            with contextlib.nullcontext() if is_compiling() else region:  # a compiler traces the original alone
                return original(*arguments, **options)

        timed._untimed = original  # type: ignore[attr-defined]
        return timed

    def _watch_replica(self, replica: Any, hook: Callable[[Any, Any], Any] | None, state: Any) -> None:
        if getattr(replica, "_comm_hooks", None):
            raise ValueError(
                "recorder.watch(model): the model has a communication hook; expected none, because DDP accepts only one. Pass "
                "yours to the recorder: `recorder.watch(model, hook, state)` instead of `model.register_comm_hook(state, hook)`"
            )
        communicate = hook or _averaging(replica)

        def marking(state, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations
            future = communicate(state, bucket)
            if bucket.index() == 0:
                self._interval = []
                if self._step:
                    self._step.waits.append(self._interval)
            interval = self._interval
            interval[:1] = [self._mark()]  # this rank has done its part of all buckets up to this one
            self._averaged = True

            def arrive(future: Any) -> Any:
                interval.append(self._mark())
                value = future.value()
                return value[0] if isinstance(value, (list, tuple)) else value

            return future.then(arrive)

        replica.register_comm_hook(state, marking)
        if hasattr(replica, "_sync_buffers"):  # before a forward pass, all ranks wait for the buffers of rank 0
            replica._sync_buffers = self._timed(replica._sync_buffers)


class _Step:
    """Marks of one step: its begin and end, and for each wait a begin and one end or several, of which the last counts."""

    __slots__ = ("begin", "data", "end", "number", "start", "waits")

    def __init__(self, begin: Any, start: float):
        self.begin, self.start = begin, start
        self.end: Any = begin
        self.number = 0
        self.data = 0.0
        self.waits: list[list[Any]] = []


class _Region(contextlib.AbstractContextManager[None]):
    """A context whose time is a wait of the current step; regions inside others count once."""

    def __init__(self, recorder: StepRecorder):
        self._recorder = recorder
        self._depth = 0
        self._begin: Any = None

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin = self._recorder._mark()

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        step = self._recorder._step
        if self._depth == 0 and step is not None:
            step.waits.append([self._begin, self._recorder._mark()])
            self._recorder._boundary = time.perf_counter()


def _place() -> tuple[int, int]:
    """Return the rank of this process, and the number of processes, 0 if it is unknown."""
    distributed, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    numbers = {name: int(value) for name, value in os.environ.items() if value.isdecimal()}
    for rank, size in _VARIABLES.items():
        if rank in numbers:
            return numbers[rank], numbers.get(size, 0)
    return (jax.process_index(), jax.process_count()) if jax is not None and distributed is None else (0, 0)


def _averaging(replica: Any) -> Callable[[Any, Any], Any]:
    """Return the hook that DDP would use by itself: it multiplies gradients by 1 / size, then sums them, for the same bits."""
    distributed: Any = importlib.import_module("torch.distributed")
    all_reduce = getattr(distributed.all_reduce, "_untimed", distributed.all_reduce)
    group = replica.process_group

    def average(_: Any, bucket: Any) -> Any:
        return all_reduce(bucket.buffer().mul_(1 / group.size()), group=group, async_op=True).get_future()

    return average


def _sharded_groups(module: Any) -> list[Any]:
    """Return the groups of parameters of a module to which `fully_shard` was applied; of another, none."""
    if not hasattr(module, "_get_fsdp_state"):
        return []
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    groups = [getattr(state, "_fsdp_param_group", None)] if groups is None else groups  # until PyTorch 2.9
    return [group for group in groups if group is not None]
