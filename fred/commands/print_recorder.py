"""`fred record`: print the recorder of step times, a file without dependencies for a training loop."""

import argparse
from pathlib import Path

from fred import record

_STEPS = """\
next to your training program:
  fred record > fred_record.py

in it:
  from fred_record import StepRecorder
  recorder = StepRecorder("times")
  recorder.watch(model)                  # PyTorch: DDP or fully_shard
  for batch in recorder.steps(loader):
      ...                                # your step

afterwards, with the files of all ranks in one folder:
  fred diagnose times
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the use of the file."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _STEPS


def run(options: argparse.Namespace) -> int:
    """Print the file."""
    print(Path(record.__file__).read_text(encoding="utf-8"), end="")
    return 0
