"""Digests pinned for the locked environment. `make golden` (python -m tests.golden) writes them anew, after an intended change."""

import json
from pathlib import Path

import fred
from fred import environment

GOLDEN = Path(__file__).parent / "golden.json"
_SCENARIO = Path(__file__).parent.parent / "scenarios" / "quickstart.yaml"


def digests() -> dict[str, dict[str, str]]:
    """Of a short quickstart with one seed: a schedule and a parameter digest for each run."""
    summary = fred.run(fred.load(_SCENARIO, ["seeds=[1]", "stop.seconds=5"])).summary
    return {
        row["name"]: {"schedule": row["digests_schedule"], "params": row["digests_params"]} for _, row in summary.iterrows()
    }


def locked(recorded: dict[str, str]) -> list[str]:
    """How this environment differs from the recorded one."""
    here = environment.describe()
    names = sorted(here.keys() | recorded.keys())
    return [f"{name} {recorded.get(name)} -> {here.get(name)}" for name in names if here.get(name) != recorded.get(name)]


if __name__ == "__main__":
    content = {"environment": environment.describe(), "digests": digests()}
    GOLDEN.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}")
