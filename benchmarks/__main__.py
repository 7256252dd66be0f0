"""Print figures next to their limits: `python -m benchmarks [NAME ...] [--long]`; the exit code is 1 if a limit is missed.

The figures of `rows` take about ten minutes in all, those of `long_rows` more than an hour. Tight limits are on ratios within
one run, because a slow or busy machine does not change these. Limits in seconds are loose.
"""

import argparse
import importlib
import sys
import time

NAMES = ("recording", "step_times", "replay", "clients", "whole", "scaling", "prediction", "communication", "cores", "shared")


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"benchmarks to run, of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--long", action="store_true", help="also figures that take minutes each, as for a NAME")
    options, missed, start = parser.parse_args(), 0, time.perf_counter()
    for name in options.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        for part in ("rows", "long_rows") if options.long or options.names else ("rows",):
            for row in getattr(module, part, tuple)():
                print(row, flush=True)
                missed += row.verdict == "MISSED"
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes; ", end="")
    print(f"{missed} limits missed" if missed else "all limits kept")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
