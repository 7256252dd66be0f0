"""`python -m reproductions [--timing | --add | --report] [NAME ...]`: measure the named papers or all, or only report."""

import argparse
import importlib
import sys
import textwrap

from fred.base.errors import FredError

PAGES = {  # quick ones first
    "psp": "PSP-SGD: table 1, figures 3 and 4",
    "measured": "times of communication, measured by others",
    "questions": "twenty questions about the speed of training, predicted before the answers were read",
    "fitted": "clusters that `fred fit` makes of generated and recorded traces, beside these",
    "wagma": "WAGMA-SGD: figures 4, 5, 7, 8, 10, ablations",
    "backup_workers": "Revisiting distributed synchronous SGD: figures 2 to 6 and 8, table 1",
    "cutoff": "Cutoff SGD: figures 2 to 4",
    "predictors": "every rule for the cutoff, on synthetic clusters and recorded traces",
    "changes": "rules for the cutoff when a cluster does what training had not seen",
    "asynchronous": "Ringmaster, Rennala, m-sync: a quadratic with 6,174 workers, and tuned",
    "birch": "Birch SGD: eight methods where gradients, or messages, are slow or unequal",
    "clipped": "clipped asynchronous SGD: a quadratic with heavy-tailed noise",
    "fasgd": "FASGD: figures 1 to 3, and what else it says",
    "index": "results/README.md: all papers and studies in two tables, from their pages",
}


def main() -> int:
    """Measure, and write the pages; the exit code."""
    pages = "\n".join(f"  {name:<16}{title}" for name, title in PAGES.items())
    parser = argparse.ArgumentParser(
        prog="python -m reproductions",
        description=f"The papers' figures and tables, measured again, into results/reproductions:\n\n{pages}",
        epilog=textwrap.fill("Pages are made from the measurements (CSV files) that lie beside them.", 100),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which pages (default: all)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--timing", action="store_true", help="measure only what needs no training: minutes")
    mode.add_argument("--add", action="store_true", help="measure only the seeds that the files lack, where a page can")
    mode.add_argument("--report", action="store_true", help="measure nothing: pages from the last measurements")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PAGES]:
        parser.error(f"no page `{unknown[0]}`; expected some of {', '.join(PAGES)}")
    try:
        for name in options.names or PAGES:
            module = importlib.import_module(f"reproductions.{name}")
            for step in _steps(options):
                getattr(module, step, lambda: None)()
            print(f"wrote {module.report()}")
    except FredError as error:
        print(f"reproductions: {error}", file=sys.stderr)
        return 2
    return 0


def _steps(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the functions that measure, of which a page has those that it needs."""
    if options.report:
        return ()
    if options.add:
        return ("add_seeds",)
    return ("timing",) if options.timing else ("timing", "training")


if __name__ == "__main__":
    sys.exit(main())
