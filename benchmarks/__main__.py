"""`python -m benchmarks [NAME ...] [--long]`: print every figure beside its limit; exit code 1 if one is missed.

The figures of `rows` take about ten minutes in all, those of `long_rows` more than an hour. Limits near what was measured are
ratios within one run, so that a slow or busy machine decides none; limits in seconds are far from it.
"""

import argparse
import importlib
import sys
import time

NAMES = ("recording", "step_times", "replay", "clients", "whole", "scaling", "prediction", "communication", "cores", "shared")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"which, of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--long", action="store_true", help="also those that take minutes each, as for a NAME")
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
