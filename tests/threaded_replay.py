"""Replays by several executors in threads of one process, which take no time to start, for tests of `fred.replay.helpers`."""

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from fred.replay import helpers
from fred.replay.executor import Executor, Reached, Side
from fred.replay.machine import Loop, Mark
from fred.replay.shared_values import SharedValues, clear_memory, new_memory


class ThreadedReplay:
    """A function like `fred.replay.helpers.replay`, for a fixed number of executors.

    `counts`: gradients, and those that an executor other than the first computes.
    """

    def __init__(self, processes: int, stretch: int = 10**9):
        self.processes, self.stretch = processes, stretch
        self.counts = [0, 0]

    def __call__(
        self, program, arithmetic, models, examples, batches, resumed=None, passed=0, _=1
    ) -> Generator[Mark | Reached, None, None]:
        side, loop = Side(program, arithmetic, models[0], examples, batches), Loop(program, arithmetic, examples, batches)
        at, number, instructions = loop.start(models, resumed), passed, program.offsets.sum(axis=1)
        while number < len(program.marks):
            end = max(at.phase + 1, int((instructions <= instructions[at.phase] + self.stretch).sum()) - 1)
            stretch = at.phase, min(len(instructions) - 1, end), number
            for reached in self._stretch(side, stretch, at):
                if reached.number is not None:
                    number = reached.number + 1
                    yield reached
            at = reached.full_mark()

    def _stretch(self, side: Side, stretch: Sequence[int], at: Mark) -> Iterator[Reached]:
        plan, shapes, memory = helpers.plan_stretch(side, stretch, self.processes), side.shapes(), new_memory()
        gradients = [plan.process[n] for n, task in enumerate(plan.tasks.tasks) if task.action.name in ("GRADIENT", "FINISH")]
        self.counts[0] += len(gradients)
        self.counts[1] += sum(process > 0 for process in gradients)
        clear_memory(memory, plan, shapes)
        broken: list[Any] = []

        def check() -> None:
            if broken:
                raise broken[0]

        def help_out(index: int) -> None:
            try:
                assert not list(Executor(side, plan, SharedValues(plan, shapes, memory, index), index, check).run())
            except BaseException as error:
                broken.append(error)

        threads = [threading.Thread(target=help_out, args=(index,), daemon=True) for index in range(1, self.processes)]
        for thread in threads:
            thread.start()
        yield from Executor(side, plan, SharedValues(plan, shapes, memory, 0), 0, check).run(at.carry)
        for thread in threads:
            thread.join()
        os.close(memory)
        check()
