"""`python -m benchmarks [NAME ...]`: print every figure beside its limit; exit code 1 if one is missed."""

import argparse
import importlib
import sys

NAMES = ("recording", "step_times", "replay", "clients", "whole", "scaling", "prediction", "communication", "cores", "shared")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help=f"which, of {', '.join(NAMES)} (default: all)")
    missed = 0
    for name in parser.parse_args().names or NAMES:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print(row, flush=True)
            missed += row.verdict == "MISSED"
    print(f"{missed} limits missed" if missed else "all limits kept")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
