"""Help with command lines: `fred completion`, and the corrected version of a command line that was refused.

The completion offers FRED's commands, options and files, and the scenarios that come with it. The shell calls `fred` itself
through argcomplete, so the completion never gets out of date.
"""

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import argcomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from fred.base.errors import FredError
from fred.components import registry
from fred.specification import shipped

_SETUP = """add to your shell's start-up file:
  bash  ~/.bashrc                   eval "$(fred completion bash)"
  zsh   ~/.zshrc, after compinit    eval "$(fred completion zsh)"
  fish  ~/.config/fish/config.fish  fred completion fish | source
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "print a script with which a shell completes FRED's commands"
    parser.epilog = _SETUP
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(options: argparse.Namespace) -> int:
    """Print the script that the shell evaluates."""
    print(shellcode(["fred"], shell=options.shell))
    return 0


def answer(parser_for: Callable[[Sequence[str]], argparse.ArgumentParser]) -> int:
    """Answer a shell that asks for completions of the current command line. Return the exit code.

    Args:
        parser_for: function that returns the parser for the words of a command line.
    """
    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")[1:-1]  # without the last, unfinished word
    with suppress(FredError):  # nothing can be completed after an unknown command
        argcomplete.autocomplete(parser_for(words), default_completer=_Completer())
    return 0


class _Completer(BaseCompleter):
    """A completer of file names and, depending on the argument, of shipped scenarios, kinds and components."""

    def __call__(self, *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        files = list(FilesCompleter()(prefix))
        kinds = {word: kind for kind, word in registry.NAMESPACES.items()}
        # The argument before names the kind of components in `fred list KIND NAME`.
        components = list(registry.REGISTRY.get(kinds.get(getattr(parsed_args, "kind", ""), ""), ()))
        choices = {"scenario": [*files, *shipped.names()], "name": shipped.names(), "kind": list(kinds)}
        return {**choices, "component": components}.get(action.dest, files)


def command(arguments: Sequence[str], fix: Sequence[str]) -> str:
    """Return the command line with some options replaced or added.

    Args:
        arguments: the words after `fred`.
        fix: the new options, each followed by its value.

    >>> command(["fit", "my times.csv", "--unit", "s"], ["--unit", "ms", "--mend", "drop"])
    "fred fit 'my times.csv' --unit ms --mend drop"
    """
    new_options = fix[::2]
    remaining: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name.startswith("--") and len(name) > 2 and any(option.startswith(name) for option in new_options):
            if not equals:
                next(words, None)  # its value
        else:
            remaining.append(word)
    return shlex.join(["fred", *remaining, *fix])
