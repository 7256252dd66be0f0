"""Interpretation of a recorded schedule, row by row: for runs of which only the finished recording tells what survives."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fred.learning.server import State
from fred.replay.interpreter import Interpreter
from fred.running.problem import Problem
from fred.schedule.schedule import Ints, Schedule, message_key


def interpreted(problem: Problem, schedule: Schedule, marks: Ints) -> Iterator[list[State]]:
    """Yield the states of the replicas that are the answer at each mark.

    Args:
        problem: the run's data and arithmetic.
        schedule: the whole run.
        marks: rows before which the states are read, ascending: [marks].
    """
    interpreter = Interpreter(problem.arithmetic, problem.models, problem.layout.replicas, problem.examples, problem.batches)
    schedule = schedule.by_minibatch()
    mailboxes, messages = _last_uses(schedule)
    rows, done = iter(schedule), 0
    for mark in marks.tolist():
        for number in range(done, mark):
            interpreter.execute(next(rows))
            for mailbox in mailboxes.get(number, ()):
                interpreter.forget_mailbox(mailbox)
            for message in messages.get(number, ()):
                interpreter.forget_message(message)
        done = mark
        yield interpreter.states(problem.layout.answer)


def _last_uses(schedule: Schedule) -> tuple[dict[int, list[int]], dict[int, list[tuple[int, ...]]]]:
    """Return the mailboxes, and the messages, that each row is the last to use."""
    mailboxes, messages = dict[int, int](), dict[tuple[int, ...], int]()
    for number, row in enumerate(schedule):
        mailboxes[row.mailbox] = mailboxes[row.source] = number
        messages[message_key(row.worker, row.step, row.source, row.mailbox)] = number
    return _by_row(mailboxes), _by_row(messages)


def _by_row(last: dict[Any, int]) -> dict[int, list[Any]]:
    found = defaultdict[int, list[Any]](list)
    for each, row in last.items():
        found[row].append(each)
    return found
