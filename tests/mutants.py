"""The power of the tests: how many small mistakes in FRED they catch (`python -m tests.mutants`, hours).

`mutants.yaml` lists changes of one place each, of all rooms. They were frozen before the tests were shortened, by people who had
not read the tests. For each mutant the command runs the tests that execute the changed line, and stops at the first that fails.
So it first runs all tests once, on a copy of the tree that has a probe before each of these lines.

A mutant is caught by a ring (`default`: `make test`, `slow`: `make slow`) if a test of that ring fails. A test that takes longer
than `TEST_SECONDS` fails. Of the tests that execute a line, those are tried first that are quick and execute few other lines of
mutants, up to `--seconds` in all.
"""

import argparse
import ast
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "mutants.yaml"
TEST_SECONDS, MUTANT_SECONDS = 120, 300
_FIRST = 40  # tests that are collected and tried before the others
RINGS = {"default": "not slow and not nightly", "slow": "slow and not nightly"}
PYTEST = (sys.executable, "-m", "pytest", "-p", "tests.mutants", "-o", "addopts=-q --strict-markers")
PROBE = '''
import os

_met = set()


def hit(number):
    """Note that a test executes the line of a mutant."""
    test = os.environ._data.get(b"PYTEST_CURRENT_TEST", b"")
    if (number, test) not in _met:
        _met.add((number, test))
        with open(os.path.join(os.environ["FRED_REACH"], str(os.getpid())), "ab") as file:
            file.write(b"%d %s\\n" % (number, test.rpartition(b" ")[0]))
'''


class Mutant(NamedTuple):
    """One small mistake: `old`, which occurs once in the file, becomes `new`."""

    file: str
    kind: str
    old: str
    new: str

    def source(self, root: Path) -> str:
        """Return the file's text without the mistake."""
        text = (root / self.file).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.file}: {self.old!r} occurs {text.count(self.old)} times, not once"
        return text

    def statement(self, root: Path) -> ast.stmt:
        """Return the statement of a block in which the mistake is made."""
        text = self.source(root)
        line = text[: text.index(self.old)].count("\n") + 1
        blocks = [block for node in ast.walk(ast.parse(text)) for block in _blocks(node)]
        enclosing = [
            statement for block in blocks for statement in block if statement.lineno <= line <= (statement.end_lineno or 0)
        ]
        return min(enclosing, key=lambda statement: (statement.end_lineno or 0) - statement.lineno)


def mutants() -> list[Mutant]:
    """Return the frozen list."""
    return [Mutant(**row) for row in YAML(typ="safe").load(LIST)]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        is_elif = (
            field == "orelse" and isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        )
        if isinstance(block, list) and not is_elif:
            yield block


def copy_tree(target: Path) -> Path:
    """Copy the files under version control, and link what lies beside the checkout."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).exists():
            (target / "main" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / "main" / name, follow_symlinks=False)
    if (ROOT.parent / "shared").exists():
        (target / "shared").symlink_to(ROOT.parent / "shared")
    (target / "main" / ".git").mkdir()
    return target / "main"


def insert_probes(root: Path, listed: list[Mutant]) -> None:
    """Let each mutant's statement tell that it is executed."""
    (root / "fred" / "probe_of_mutants.py").write_text(PROBE, encoding="utf-8")
    places = defaultdict(list)
    for number, mutant in enumerate(listed):
        statement = mutant.statement(root)
        first = min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", []))])
        places[mutant.file].append((first, statement.col_offset, number))
    for file, probes in places.items():
        lines = (root / file).read_text(encoding="utf-8").splitlines(keepends=True)
        for line, column, number in sorted(probes, reverse=True):
            probe = f'__import__("fred.probe_of_mutants").probe_of_mutants.hit({number})'
            lines.insert(line - 1, " " * column + probe + "\n")
        (root / file).write_text("".join(lines), encoding="utf-8")


def environment(root: Path) -> dict[str, str]:
    """Return the environment in which FRED is imported from a copy."""
    compiled = {"JAX_COMPILATION_CACHE_DIR": str(root.parent / "compiled")}
    return os.environ | compiled | {"PYTHONPATH": str(root), "FRED_DATA": str(ROOT.parent / "shared" / "data")}


def measure_reach(listed: list[Mutant], ring: str) -> dict[str, Any]:
    """Run a ring with probes; return each test's seconds, and the tests that execute each mutant's line."""
    with tempfile.TemporaryDirectory(prefix="fred-mutants-") as folder:
        root, reach = copy_tree(Path(folder)), Path(folder) / "reach"
        reach.mkdir()
        insert_probes(root, listed)
        parallel = ("-n", "2", "--dist", "worksteal", "-m", RINGS[ring], "--durations", "40")
        report = {"FRED_REACH": str(reach), "FRED_SECONDS": str(reach.parent / "seconds.json")}
        subprocess.run([*PYTEST, *parallel], cwd=root, env=environment(root) | report, check=False)
        reached: dict[int, set[str]] = defaultdict(set)
        for file in reach.iterdir():
            for row in file.read_text(encoding="utf-8").splitlines():
                number, _, test = row.partition(" ")
                reached[int(number)].add(test)
        seconds = json.loads((reach.parent / "seconds.json").read_text(encoding="utf-8"))
    passed = seconds["passed"]
    tests = [[test for test in sorted(reached[number]) if test in passed] for number in range(len(listed))]
    return {"seconds": passed, "failed": seconds["failed"], "tests": tests}


def _case_of(test: str) -> tuple[str, str]:
    """Return the file and the case of a test; tests of one case share what one of them has computed."""
    file, case = test.partition("::")[0], test.rpartition("[")[2]
    return (file, case) if test.endswith("]") else ("", "")


def order(tests: list[str], reach: dict[str, Any], most: float) -> list[str]:
    """Return tests of these cases, up to `most` seconds in all: first the quick ones that execute few other mutants' lines."""
    seconds, total, selection = reach["seconds"], 0.0, list[str]()
    cases = {_case_of(test) for test in tests} - {("", "")}
    tests = [*tests, *(test for test in sorted(seconds.keys() - {*tests}) if _case_of(test) in cases)]
    lines = Counter(test for tests_of_line in reach["tests"] for test in tests_of_line)
    for test in sorted(tests, key=lambda test: lines[test] * (0.1 + seconds[test])):
        total += seconds[test]
        if total < most or not selection:
            selection.append(test)
    return selection


def preload() -> None:
    """Import the libraries, but not FRED, once for all mutants: each is tried in a fork of this process."""
    for name in (
        "fred",
        "fred.running.model_training",
        "fred.results.folder",
        "fred.prediction.deep.training",
        "flax.nnx",
        "equinox",
    ):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("fred", "tests")]:
        if name != "tests.mutants":
            del sys.modules[name]


def try_mutant(root: Path, mutant: Mutant, tests: list[str]) -> str:
    """Run tests with the mistake, in a fork of this process; return the first that fails, or nothing."""
    text, path, result = mutant.source(root), root / mutant.file, root.parent / "result"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    result.write_text("(pytest did not end)", encoding="utf-8")
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        _run_tests(root, tests, result)
        os._exit(0)
    begin = time.monotonic()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() - begin > 3 * MUTANT_SECONDS:
            result.write_text("(longer than allowed)", encoding="utf-8")
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.1)
    path.write_text(text, encoding="utf-8")
    return result.read_text(encoding="utf-8")


def _run_tests(root: Path, tests: list[str], result: Path) -> None:
    os.chdir(root)
    os.environ.update(environment(root))
    sys.path[:] = [str(root), *(place for place in sys.path if place not in ("", str(ROOT)))]
    output = os.open(root.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    first = _First()
    for batch in (tests[:_FIRST], tests[_FIRST:]):
        if batch and not first.failed:
            arguments = [
                "-x",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:terminal",
                "-o",
                "addopts=--strict-markers",
                "-m",
                "slow or not slow",
            ]
            code = pytest.main([*arguments, *batch], plugins=[sys.modules[__name__], first])
            if code not in (0, 1) and not first.failed:
                first.failed = f"(pytest ended with exit code {code})" if code == 2 else "(internal error of pytest)"
    result.write_text(first.failed, encoding="utf-8")


class _First:
    """The first test that fails, or the first file that cannot be imported."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test that fails."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a file that cannot be collected."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid} (collection)"


def main() -> None:
    """Report which mutants are caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", choices=RINGS, default="default")
    parser.add_argument("--reach", type=Path, help="file with the tests of each line: written if it is missing, read otherwise")
    parser.add_argument("--seconds", type=float, default=MUTANT_SECONDS, help="largest time of all tests of a mutant")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of mutants")
    options = parser.parse_args()
    listed = mutants()
    if options.reach and options.reach.exists():
        reach = json.loads(options.reach.read_text(encoding="utf-8"))
    else:
        reach = measure_reach(listed, options.ring)
        if options.reach:
            options.reach.write_text(json.dumps(reach), encoding="utf-8")
    numbers = range(len(listed)) if options.only is None else options.only
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="fred-mutants-") as folder:
        root = copy_tree(Path(folder))
        os.environ.update(environment(root))
        preload()
        for number in numbers:
            tests = order(reach["tests"][number], reach, options.seconds)
            failed = try_mutant(root, listed[number], tests) if tests else ""
            survivors += not failed
            answer = failed or f"survives {len(tests)} of {len(reach['tests'][number])} tests"
            print(f"{number:3} {listed[number].file} [{listed[number].kind}]: {answer}", flush=True)
    print(f"{len(numbers) - survivors} of {len(numbers)} mutants are caught by the {options.ring} ring")


_seconds: dict[str, dict[str, float]] = {"passed": {}, "failed": {}}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test takes, and keep whether it passes."""
    earlier = _seconds["failed"].pop(report.nodeid, None)
    group = _seconds["failed" if report.outcome == "failed" or earlier is not None else "passed"]
    before = _seconds["passed"].pop(report.nodeid, 0.0) if earlier is None else earlier
    if not report.skipped:
        group[report.nodeid] = before + report.duration


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that a mutant lets run for ever."""
    if "FRED_SECONDS" in os.environ:  # the run with probes, without mutants
        return (yield)

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {TEST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(TEST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what the tests take."""
    if "FRED_SECONDS" in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ["FRED_SECONDS"]).write_text(json.dumps(_seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
