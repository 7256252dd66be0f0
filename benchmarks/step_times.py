"""What the recorder of step times adds to a step of a training loop."""

import tempfile
from collections.abc import Iterator

from benchmarks.common import Row, medians
from fred.record import StepRecorder

STEPS = 20_000


def rows() -> Iterator[Row]:
    """Compare a recorded loop of empty steps, with a wait in each, with the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        recorders = [StepRecorder(f"{folder}/{number}", rank=0) for number in range(6)]

        def recorded() -> None:
            recorder = recorders.pop()
            for _ in recorder.steps(range(STEPS)):
                with recorder.wait():
                    pass
            recorder.close()

        def bare() -> None:
            for _ in range(STEPS):
                pass

        recorded_seconds, bare_seconds = medians([recorded, bare])
    yield Row("recording a step and a wait", (recorded_seconds - bare_seconds) / STEPS * 1e6, "us", 20)
