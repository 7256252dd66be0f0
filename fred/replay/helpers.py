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
if {is_main_thread}:  # the system ends this process with the thread that has started it, even if this process is stopped
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
def end_with_the_run():  # even while this process imports, compiles or computes
    while os.getppid() == {parent}:
        time.sleep(0.3)
    os._exit(1)
threading.Thread(target=end_with_the_run, daemon=True).start()
sys.path[:] = {path!r}
from fred.replay.helpers import help_out
help_out{arguments}
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
    progress: Mark | Reached = loop.start(models, resumed)
    mark_number = passed  # of the next mark
    with Helpers(cores - 1, Side(program, arithmetic, models[0], examples, batches)) as helpers:
        while mark_number < len(program.marks):
            progress, mark_phase = progress.full_mark(), int(program.marks[mark_number])
            if progress.phase < mark_phase and helpers.all_idle():
                for reached in helpers.work(progress, mark_number):
                    progress = reached  # and the earlier one is released
                    if reached.number is not None:  # None: it only closes a stretch of the program
                        mark_number = reached.number + 1
                        yield reached
                continue
            progress = pace.advance(loop, progress, mark_phase) if helpers.number else loop.run_to(progress, mark_phase)
            if pace.is_measured and helpers.number and not helpers.running:  # decided once: `end` sets the number to 0
                is_faster = pace.is_rest_long(progress.phase) and helpers.reduce_to_gain(progress.phase, mark_number)
                helpers.start() if is_faster else helpers.end()
            if progress.phase >= mark_phase:
                mark_number += 1
                yield progress


class _Pace:
    """The speed of a replay by one process, measured until the helpers are ready."""

    def __init__(self, program: Program):
        self._gradients_before = gradients_before(program)  # each phase
        self._slice_gradients = 1  # number of gradients in the next slice
        self.seconds = 0.0  # time of a gradient; 0 until it is measured
        self._elapsed, self._computed = 0.0, 0  # seconds and gradients of all slices
        self._compiled = False

    @property
    def is_measured(self) -> bool:
        """Return True if the slices took long enough to be measured, or helpers are needed at once."""
        return self.seconds > 0 or FORCE_HELPERS

    def advance(self, loop: Loop, progress: Mark, end: int) -> Mark:
        """Execute some of the phases before `end`, and measure them; the first time, only compile them."""
        if not self._compiled:
            self._compiled = True
            return progress if FORCE_HELPERS else jax.block_until_ready(loop.compile(progress))
        stop = int(np.searchsorted(self._gradients_before, self._gradients_before[progress.phase] + self._slice_gradients))
        stop, start_time = min(end, max(progress.phase + 1, stop)), time.perf_counter()
        after = jax.block_until_ready(loop.run_to(progress, stop))
        self._elapsed += time.perf_counter() - start_time
        self._computed += int(self._gradients_before[stop] - self._gradients_before[progress.phase])
        if self._elapsed < _SLICE:
            self._slice_gradients = 1 + self._computed  # they double, until the time can be measured
        else:
            self.seconds = self._elapsed / max(1, self._computed)
            self._slice_gradients = max(1, round(_SLICE / self.seconds))
        return after

    def is_rest_long(self, phase: int) -> bool:
        """Return True if the rest, from this phase on, takes long enough to start helpers."""
        return FORCE_HELPERS or is_worthwhile(self.seconds, int(self._gradients_before[-1] - self._gradients_before[phase]))


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

    def reduce_to_gain(self, phase: int, mark: int) -> bool:
        """Keep as many processes as get gradients, and return True if together they are faster than one.

        A round that is computed as one batch has nothing to share.
        """
        if FORCE_HELPERS:
            return True
        plan = plan_stretch(self._side, stretch(self._side.program, phase, mark), 1 + self.number)
        gradient_processes = {
            process for process, task in zip(plan.process, plan.tasks.tasks, strict=True) if task.action in MESSAGES
        }
        self.number = len(gradient_processes - {0})  # 0: the run's own
        return plan.speed_up >= LEAST_SPEED_UP

    def start(self) -> None:
        """Start the processes, unless the run cannot be sent to them, or the system starts none."""
        import cloudpickle

        try:
            facts = own_code.local_facts(), own_code.facts()  # a helper with other code or another environment ends at once
            self._start(cloudpickle.dumps((facts, self._side)))
        except Exception:  # a user's class may raise anything
            self.end()

    def _start(self, pickled_run: bytes) -> None:
        memory, run_file = self._files = [new_memory(), new_memory()]
        os.ftruncate(run_file, len(pickled_run))
        with open(run_file, "wb", closefd=False) as file:
            file.write(pickled_run)
        for number in range(1, self.number + 1):
            is_main = threading.current_thread() is threading.main_thread()
            arguments = memory, run_file, number
            program = _PROGRAM.format(is_main_thread=is_main, parent=os.getpid(), path=sys.path, arguments=arguments)
            self.running.append(_Helper([sys.executable, "-c", program], self._files))

    def all_idle(self) -> bool:
        """Return True if all processes wait for work."""
        try:
            while self._idle < len(self.running) and self.running[self._idle].answered():  # one after the other
                self._idle += 1
        except LostError:
            self.end()
        return bool(self.running) and self._idle == len(self.running)

    def work(self, at: Mark, number: int) -> Iterator[Reached]:
        """Execute the next stretch of the program together, and yield each mark. Stop if one of the processes has ended."""
        bounds = stretch(self._side.program, at.phase, number)  # two phases and a mark, as `plan_stretch` takes them
        plan, shapes = plan_stretch(self._side, bounds, 1 + self.number), self._side.shapes()
        clear_memory(self._files[0], plan, shapes)
        self._idle = 0
        try:
            for helper in self.running:
                helper.send_order((*bounds, 1 + self.number))
            executor = Executor(self._side, plan, SharedValues(plan, shapes, self._files[0], 0), 0, self._check)
            marks = executor.run(at.carry)
            del at  # the caller holds it, until the first mark
            yield from marks
            while not self.all_idle() and self.running:  # before the shared memory is cleared for the next stretch
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
        timeout = 60.0 if FORCE_HELPERS else 0.0
        if not select.select([self._reports], [], [], timeout)[0]:
            return False
        if not self._reports.read(1):  # at its end: the process has ended
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
            *bounds, processes = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        plan = plan_stretch(side, bounds, processes)
        for _ in Executor(side, plan, SharedValues(plan, shapes, memory, number), number, check=lambda: None).run():
            pass  # never reached: the run's own process does all marks


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
    instructions_before = program.offsets.sum(axis=1)  # each phase
    end = int(np.searchsorted(instructions_before, instructions_before[phase] + STRETCH))
    return phase, min(len(instructions_before) - 1, max(phase + 1, end)), mark


def gradients_before(program: Program) -> NDArray[np.int64]:
    """Return the number of gradients before each phase [phases + 1]."""
    # of one instruction of each kind; a gradient that is begun and later finished counts at its beginning
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
    """Return the time of a gradient as a replay measures it, s; 0 if the run ends before it is measured.

    Args:
        side: the run.
        models: initial models.
    """
    loop, pace = Loop(side.program, side.arithmetic, side.examples, side.batches), _Pace(side.program)
    progress, end = loop.start(models, None), len(side.program.offsets) - 1
    while not pace.is_measured and progress.phase < end:
        progress = pace.advance(loop, progress, end)
    return pace.seconds


def _warm_up(side: Side) -> None:
    """Compile a gradient, which takes longest, before the process is needed."""
    arithmetic = side.arithmetic
    sources = [state.params for state in arithmetic.start([side.model], 1)]
    memory = arithmetic.remember(side.model) if arithmetic.hooks.remembers else ()
    jax.block_until_ready(
        jitted(arithmetic)["message"](sources, side.examples, np.zeros(arithmetic.width, np.int32), memory, 1)
    )
