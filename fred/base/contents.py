"""The names of files and folders that FRED writes into a result folder. Runs cannot have these names."""

MANIFEST = "manifest.json"  # written last: a folder that has one is complete
SUMMARY, SUMMARY_TABLE = "summary.json", "summary.csv"
SWEEP, BEST, PAIRED = "sweep.csv", "best.csv", "paired.csv"
REPORT = "report.html"
FIGURES = "figures"  # folder
ASIDE = "set-aside"  # folder (or set-aside-2, ...) for the user's files whose names the result needs
WRITTEN = (MANIFEST, SUMMARY, SUMMARY_TABLE, SWEEP, BEST, PAIRED, REPORT, FIGURES, ASIDE)


def is_taken(name: str) -> bool:
    """Return True if the name is reserved, so that no run can have it. Case is ignored, as some file systems do.

    FRED's other files begin with a dot, so such names are reserved too.
    >>> is_taken("Report.HTML"), is_taken("set-aside-2"), is_taken(".hidden"), is_taken("asgd")
    (True, True, True, False)
    """
    return name.casefold() in WRITTEN or name.casefold().startswith(f"{ASIDE}-") or name.startswith(".")
