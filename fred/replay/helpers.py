"""One replay on several cores: helper processes compute gradients, or the replicas of some workers, with the same bits.

The replay starts alone. If its first gradients take long enough, helper processes start next to it, each with its compiled
functions. Once all are ready, `division.py` divides the rest among them. If one of them ends, or is stopped, the replay goes
on alone from its last mark.
"""

import mmap
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fred.base import environment
from fred.components import own_code
from fred.learning.loss import Arrays
from fred.learning.models.model import Params
from fred.replay.arithmetic import Arithmetic
from fred.replay.division import Plan, plan_of
from fred.replay.executor import Executor, Reached, Side
from fred.replay.interpreter import jitted
from fred.replay.machine import Loop, Mark
from fred.replay.memory import Snapshot
from fred.replay.phases import How, Op, Program
from fred.replay.shared_values import SharedValues, clear_memory, new_memory
from fred.replay.tasks import MESSAGES, Tasks, tasks_of
from fred.schedule.minibatches import Minibatches

LEAST_GRADIENT = 0.002  # seconds; handing over parameters and a gradient takes about 1 ms
LEAST_SPEED_UP = 1.1  # of a plan
LEAST_REST = 20.0  # seconds that the rest takes alone; a helper starts in about 5 s
FORCE_HELPERS = False  # True to wait for helpers before the first instruction, for tests
STRETCH = 20_000  # instructions that are planned at a time
_SLICE = 0.3  # seconds between two looks at helpers that start
_PROGRAM = """
import ctypes, os, sys, threading, time
if {main}:  # the system ends this process with the thread that has started it, even if this process is stopped
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
def end_with_the_run():  # even while this process imports, compiles or computes
    while os.getppid() == {run}:
        time.sleep(0.3)
    os._exit(1)
threading.Thread(target=end_with_the_run, daemon=True).start()
sys.path[:] = {path!r}
from fred.replay.helpers import help_out
help_out{numbers}
"""


class LostError(Exception):
    """An error: another process of the replay has ended, or is stopped."""


def replay(
    program: Program,
    arithmetic: Arithmetic,
    models: Sequence[Params],
    examples: Arrays,
    batches: Minibatches,
    resumed: Snapshot | None = None,
    passed: int = 0,
    cores: int = 1,
) -> Generator[Mark | Reached, None, None]:
    """Execute the program from these models on, and yield each of its marks; or resume another replay that `passed` some.

    Up to `cores` processes take part if that saves time. A mark's arrays are donated when the next one is requested: take a
    snapshot to keep them.
    """
    loop, pace = Loop(program, arithmetic, examples, batches), _Pace(program)
    at: Mark | Reached = loop.start(models, resumed)
    number = passed
    with Helpers(cores - 1, Side(program, arithmetic, models[0], examples, batches)) as helpers:
        while number < len(program.marks):
            at, mark = at.full_mark(), int(program.marks[number])
            if at.phase < mark and helpers.all_idle():
                for reached in helpers.work(at, number):
                    at = reached  # and the earlier one is released
                    if reached.number is not None:
                        number = reached.number + 1
                        yield reached
                continue
            at = pace.advance(loop, at, mark) if helpers.number else loop.run_to(at, mark)
            if pace.is_measured and helpers.number and not helpers.running:
                helpers.start() if pace.slow(at.phase) and helpers.gain(at.phase, number) else helpers.end()
            if at.phase >= mark:
                number += 1
                yield at


class _Pace:
    """The speed of a replay by one process, measured until the helpers are ready."""

    def __init__(self, program: Program):
        self._gradients = gradients_before(program)
        self._number, self.seconds = 1, 0.0  # of gradients in the next slice; of each
        self._elapsed, self._count = 0.0, 0  # time and gradients of all slices
        self._compiled = False

    @property
    def is_measured(self) -> bool:
        """Return True if the slices took long enough to be measured, or helpers are needed at once."""
        return self.seconds > 0 or FORCE_HELPERS

    def advance(self, loop: Loop, at: Mark, end: int) -> Mark:
        """Execute some of the phases before `end`, and measure them; the first time, only compile them."""
        if not self._compiled:
            self._compiled = True
            return at if FORCE_HELPERS else jax.block_until_ready(loop.compile(at))
        stop = int(np.searchsorted(self._gradients, self._gradients[at.phase] + self._number))
        stop, began = min(end, max(at.phase + 1, stop)), time.perf_counter()
        after = jax.block_until_ready(loop.run_to(at, stop))
        self._elapsed += time.perf_counter() - began
        self._count += int(self._gradients[stop] - self._gradients[at.phase])
        if self._elapsed < _SLICE:
            self._number = 1 + self._count
        else:
            self.seconds = self._elapsed / max(1, self._count)
            self._number = max(1, round(_SLICE / self.seconds))
        return after

    def slow(self, phase: int) -> bool:
        """Return True if the rest, from this phase on, takes long enough to start helpers."""
        return FORCE_HELPERS or is_worthwhile(self.seconds, int(self._gradients[-1] - self._gradients[phase]))


class Helpers:
    """The other processes of a replay; none at first, and none after one of them has ended.

    Args:
        number: number of processes to start.
        side: the run.
    """

    def __init__(self, number: int, side: Side):
        self.number, self._side = number, side
        self.running: list[_Helper] = []
        self._idle = 0  # processes that are ready
        self._files: list[int] = []  # shared memory, and the run as the processes receive it

    def __enter__(self) -> "Helpers":
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def gain(self, phase: int, mark: int) -> bool:
        """Keep as many processes as get gradients, and return True if together they are faster than one.

        A round that is computed as one batch has nothing to share.
        """
        if FORCE_HELPERS:
            return True
        plan = plan_stretch(self._side, stretch(self._side.program, phase, mark), 1 + self.number)
        computing = {process for process, task in zip(plan.process, plan.tasks.tasks, strict=True) if task.action in MESSAGES}
        self.number = len(computing - {0})
        return plan.speed_up >= LEAST_SPEED_UP

    def start(self) -> None:
        """Start the processes, unless the run cannot be sent to them, or the system starts none."""
        import cloudpickle

        try:
            self._start(cloudpickle.dumps(((own_code.local_facts(), own_code.facts()), self._side)))
        except Exception:  # a user's class may raise anything
            self.end()

    def _start(self, packed: bytes) -> None:
        memory, run = self._files = [new_memory(), new_memory()]
        os.ftruncate(run, len(packed))
        with open(run, "wb", closefd=False) as file:
            file.write(packed)
        for number in range(1, self.number + 1):
            main = threading.current_thread() is threading.main_thread()
            program = _PROGRAM.format(run=os.getpid(), main=main, path=sys.path, numbers=(memory, run, number))
            self.running.append(_Helper([sys.executable, "-c", program], self._files))

    def all_idle(self) -> bool:
        """Return True if all processes wait for work."""
        try:
            while self._idle < len(self.running) and self.running[self._idle].answered():
                self._idle += 1
        except LostError:
            self.end()
        return bool(self.running) and self._idle == len(self.running)

    def work(self, at: Mark, number: int) -> Iterator[Reached]:
        """Execute the next stretch of the program together, and yield each mark. Stop if one of the processes has ended."""
        phases = stretch(self._side.program, at.phase, number)
        plan, shapes = plan_stretch(self._side, phases, 1 + self.number), self._side.shapes()
        clear_memory(self._files[0], plan, shapes)
        self._idle = 0
        try:
            for helper in self.running:
                helper.send_order((*phases, 1 + self.number))
            executor = Executor(self._side, plan, SharedValues(plan, shapes, self._files[0], 0), 0, self._check)
            marks = executor.run(at.carry)
            del at  # the caller holds it, until the first mark
            yield from marks
            while not self.all_idle() and self.running:
                time.sleep(0.001)
                self._check()
        except LostError:
            self.end()

    def end(self) -> None:
        """End all processes, whatever they do."""
        for helper in self.running:
            helper.end()
        for file in self._files:
            os.close(file)
        self.number, self.running, self._files = 0, [], []

    def _check(self) -> None:
        if any(helper.is_dead or helper.is_suspended for helper in self.running):
            raise LostError


class _Helper:
    """One helper process, with a pipe in each direction."""

    def __init__(self, command: list[str], files: list[int]):
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, pass_fds=files, start_new_session=True)
        assert self.process.stdin and self.process.stdout
        self._orders, self._reports = self.process.stdin, self.process.stdout

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_suspended(self) -> bool:
        """Return True if a signal has stopped the process; it may never continue."""
        return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def answered(self) -> bool:
        """Return True if the process has reported that it is ready, and take its report."""
        if not select.select([self._reports], [], [], 60.0 if FORCE_HELPERS else 0.0)[0]:
            return False
        if not self._reports.read(1):
            raise LostError
        return True

    def send_order(self, order: tuple[int, ...]) -> None:
        """Send the process the stretch of the program to execute next."""
        try:
            pickle.dump(order, self._orders)
            self._orders.flush()
        except OSError as error:
            raise LostError from error

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._orders, self._reports):
            with suppress(OSError):
                pipe.close()


def help_out(memory: int, run: int, number: int) -> None:
    """Run a helper process: report that it is ready, receive a stretch of the program, do its tasks; until the run ends.

    It ends at once if it would compute other bits than the run, whose files may have changed since it began.

    Args:
        memory: descriptor of the shared memory.
        run: descriptor of a file with the pickled run.
        number: number of this process, from 1.
    """
    reports = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a user's own code may print
    environment.check()  # the program of a gradient, which is compiled first here, is then in the cache for the parent, too
    facts, side = pickle.loads(mmap.mmap(run, 0, access=mmap.ACCESS_READ))
    if own_code.objection(*facts):
        return
    shapes = side.shapes()
    _warm_up(side)

    while True:
        os.write(reports, b".")
        try:
            *phases, processes = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        plan = plan_stretch(side, phases, processes)
        for _ in Executor(side, plan, SharedValues(plan, shapes, memory, number), number, check=lambda: None).run():
            pass


def is_worthwhile(seconds: float, gradients: int) -> bool:
    """Return True if each gradient, and all of them together, take long enough to start helpers.

    Args:
        seconds: time of a gradient, s.
        gradients: number of gradients.
    """
    return seconds >= LEAST_GRADIENT and gradients * seconds >= LEAST_REST


def stretch(program: Program, phase: int, mark: int) -> tuple[int, int, int]:
    """Return the next stretch of the program to plan: its first phase, the phase after the last one, and its first mark.

    Args:
        program: the program.
        phase: first phase.
        mark: number of the first mark.
    """
    instructions = program.offsets.sum(axis=1)
    end = int(np.searchsorted(instructions, instructions[phase] + STRETCH))
    return phase, min(len(instructions) - 1, max(phase + 1, end)), mark


def gradients_before(program: Program) -> NDArray[np.int64]:
    """Return the number of gradients before each phase [phases + 1]."""
    counts = [kind.members * (kind.op in (Op.BEGIN, Op.TURN) or kind.how == How.GRADIENT) for kind in program.kinds]
    return program.offsets @ np.array(counts, np.int64)


def plan_stretch(side: Side, phases: Sequence[int], processes: int) -> Plan:
    """Return the plan of a stretch of the program.

    Args:
        side: the run.
        phases: first phase, the phase after the last one, and number of the first mark.
        processes: number of processes, with the run's own.
    """
    return plan_of(tasks_of_stretch(side, phases), processes)


def tasks_of_stretch(side: Side, phases: Sequence[int]) -> Tasks:
    """Return the tasks of a stretch of the program; see `plan_stretch`."""
    return tasks_of(side.program, side.arithmetic.blocks.count, side.arithmetic.hooks, *phases)


def seconds_of_a_gradient(side: Side, models: Sequence[Params]) -> float:
    """Return the time of a gradient as a replay measures it, s; 0 if the run ends before.

    Args:
        side: the run.
        models: initial models.
    """
    loop, pace = Loop(side.program, side.arithmetic, side.examples, side.batches), _Pace(side.program)
    at, end = loop.start(models, None), len(side.program.offsets) - 1
    while not pace.is_measured and at.phase < end:
        at = pace.advance(loop, at, end)
    return pace.seconds


def _warm_up(side: Side) -> None:
    """Compile a gradient, which takes longest, before the process is needed."""
    arithmetic = side.arithmetic
    sources = [state.params for state in arithmetic.start([side.model], 1)]
    memory = arithmetic.remember(side.model) if arithmetic.hooks.remembers else ()
    jax.block_until_ready(
        jitted(arithmetic)["message"](sources, side.examples, np.zeros(arithmetic.width, np.int32), memory, 1)
    )
