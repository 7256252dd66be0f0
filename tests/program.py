"""The command line, called in the tests' process: starting Python and JAX for one message takes seconds."""

import contextlib
import io
import os
from pathlib import Path
from typing import NamedTuple

from fred.commands import cli


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def fred_command(*arguments: str | Path | float, columns: int = 250) -> Answer:
    """Run a command in the current folder."""
    out, err = io.StringIO(), io.StringIO()
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(columns)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:  # of argparse
        code = int(ended.code or 0)
    finally:
        if width is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = width
    return Answer(code, out.getvalue(), err.getvalue())


def refusal(*arguments: str | Path | float) -> str:
    """Return the one line with which a command refuses what a user can mend; it writes nothing else."""
    answer = fred_command(*arguments)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.count("\n") == 1, answer.err
    return answer.err
