"""The kit of all studies: cases, runs that resume, one search for all systems, tables, claims with their rows, a figure.

A study is a folder of a few files and a `page.md`, at most 350 lines of code in all (blank ones do not count):

| part of the kit | for |
|---|---|
| `study.Study` | paths, `python -m studies.NAME [--report]`, the page from `page.md`, the figure |
| `runs.parts` | parts, a file each, in worker processes; an interrupted study goes on, and the seconds are recorded |
| `tuning.tuned`, `tuning.Geometric` | the search that all systems share; a geometric grid goes on beyond its ends |
| `comparison.Comparison` | systems in cases: each is tuned in each case, and measured there with other seeds |
| `difference.Difference` | differences seed by seed with intervals, as a family; missed targets; half widths |
| `claims.Claim` | sentences, each with the query for the rows that carry it, and its verdict |
| `pages.by_case`, `pages.count` | tables and words |
| `effort.block` | "how it was measured": hours, seeds, points, optima at an edge, power |
| `figure.panel`, `figure.intervals` | systems by case, with the range of the seeds; differences with their intervals |

`reproductions/common.py` has what reproductions use, too: CSV files, tables, seeds, templates of pages, progress lines.
"""
