"""Tables of events, with a row for the begin and one for the end of an operation: the command that writes them as durations."""

import re

from fred.base.errors import FredError
from fred.tables.columns import File
from fred.traces.roles import FILE, PLUS, Roles, is_communication

_BEGIN = re.compile(r"(.*?)[_ -]?(begin|start)", re.IGNORECASE)


def check_no_event_pairs(file: File, roles: Roles) -> None:
    """Raise FredError, with a command that was made for the file, if its rows are begins and ends of operations.

    Args:
        file: the table.
        roles: roles of its columns.
    """
    step, worker, event = (roles.get(role) for role in ("iteration", "worker", "type"))
    moment = next((name for name in file.header if file.has_moments(name)), "")
    if not (step and worker and event and moment) or "end" in roles.columns or PLUS in step + worker or FILE in (step, worker):
        return
    names = file.columns([event], [])[0][event].names
    pairs = [(name, end) for name in names if (match := _BEGIN.fullmatch(name)) for end in names if _ends(match, name, end)]
    pairs = [pair for pair in pairs if not is_communication(pair[0])]
    if not pairs:
        return
    begin, end = next((pair for pair in pairs if "comput" in pair[0].lower()), pairs[0])
    is_json = file.path.suffix in (".jsonl", ".ndjson", ".json")
    load = f"p.read_json('{file.path}', lines=True)" if is_json else f"p.read_csv('{file.path}', sep=None, engine='python')"
    command = (
        f"import pandas as p; t = {load}; t['{moment}'] = p.to_datetime(t['{moment}']); "
        f"w = t.pivot_table(index=['{step}', '{worker}'], columns='{event}', values='{moment}', aggfunc='first'); "
        f"w['seconds'] = (w['{end}'] - w['{begin}']).dt.total_seconds(); "
        "w['seconds'].reset_index().to_csv('durations.csv', index=False)"
    )
    raise FredError(
        f"{file.path}: its rows are events, such as `{begin}` and `{end}`, and FRED needs durations. Write them: "
        f'`python -c "{command}"`, and read `durations.csv`'
    )


def _ends(match: re.Match[str], begin: str, end: str) -> bool:
    """Return True if an event ends the operation that another one begins."""
    return any(end == begin[: match.start(2)] + word for word in ("end", "END", "End", "stop", "finish"))
