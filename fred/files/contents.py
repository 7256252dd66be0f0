"""The names of what FRED writes into a result folder beside the runs' own folders, whose names runs therefore cannot have."""

MANIFEST = "manifest.json"  # written last, so that a folder with one is complete
SUMMARY, SUMMARY_TABLE = "summary.json", "summary.csv"
SWEEP, BEST, PAIRED = "sweep.csv", "best.csv", "paired.csv"
REPORT = "report.html"
FIGURES = "figures"  # folder
ASIDE = "set-aside"  # folder, or with a number behind it, for somebody's files whose names the result needs
WRITTEN = (MANIFEST, SUMMARY, SUMMARY_TABLE, SWEEP, BEST, PAIRED, REPORT, FIGURES, ASIDE)


def is_taken(name: str) -> bool:
    """Return True if no run can have the name, also where a file system ignores case; FRED's other files begin with a dot.

    >>> is_taken("Report.HTML"), is_taken("set-aside-2"), is_taken(".hidden"), is_taken("asgd")
    (True, True, True, False)
    """
    return name.casefold() in WRITTEN or name.casefold().startswith(f"{ASIDE}-") or name.startswith(".")
