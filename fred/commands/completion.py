"""`fred completion`: what a shell needs to complete FRED's commands, options, files, and the scenarios that come with it.

The shell asks `fred` itself, through argcomplete, so that nothing has to be written anew when commands change.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import argcomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from fred.components import registry
from fred.errors import FredError
from fred.specification import shipped

_HOW = """add to your shell's start-up file:
  bash  ~/.bashrc                   eval "$(fred completion bash)"
  zsh   ~/.zshrc, after compinit    eval "$(fred completion zsh)"
  fish  ~/.config/fish/config.fish  fred completion fish | source
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _HOW
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(options: argparse.Namespace) -> int:
    """Print what that shell evaluates."""
    print(shellcode(["fred"], shell=options.shell))
    return 0


def answer(parser_for: Callable[[Sequence[str]], argparse.ArgumentParser]) -> int:
    """Answer a shell that asks what may come next.

    Args:
        parser_for: the parser of a command line's words.
    """
    words = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])].split(" ")[1:-1]  # the last one is being written
    with suppress(FredError):  # after a word that is no command there is nothing to complete
        argcomplete.autocomplete(parser_for(words), default_completer=_Expected())
    return 0


class _Expected(BaseCompleter):
    """Files; where they are asked for, the scenarios that come with FRED, and what a scenario can name."""

    def __call__(self, *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        files = list(FilesCompleter()(prefix))
        components = list(registry.REGISTRY.get(getattr(parsed_args, "kind", ""), ()))
        known = {"scenario": [*files, *shipped.names()], "name": shipped.names(), "kind": list(registry.REGISTRY)}
        return {**known, "component": components}.get(action.dest, files)
