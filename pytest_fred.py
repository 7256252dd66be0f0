"""FRED's plugin for pytest: the fixture `fred_pin`, and scenario files with a pin as tests (docs/how-to/ci.md).

pytest imports this file in every project that has FRED installed. So it stands outside the package, and imports FRED only when
a pin is used: `import fred` sets options of jax for the whole process.
"""

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

_PIN = ".pin.json"  # ending of the pin of a scenario file
_LONGEST = 150  # characters of a pin's name
_SECTIONS = {"setup.cfg": "tool:pytest", "pyproject.toml": "tool.pytest.ini_options"}  # of other files: pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the settings."""
    group = parser.getgroup("fred", "FRED: pins of simulated runs")
    group.addoption("--fred-update", action="store_true", help="write the pins of the tests that run")
    parser.addini("fred_first", "import FRED before all tests, because it sets options of jax", type="bool", default=False)
    tolerance = "relative difference that losses may have in another numeric environment"
    parser.addini("fred_tolerance", tolerance, default="0.001")
    parser.addini("fred_import", "modules of your own that scenario files may name", type="args", default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import FRED before conftest.py and tests, if `fred_first` is set."""
    if early_config.getini("fred_first"):
        import fred  # noqa: F401


def pytest_configure(config: pytest.Config) -> None:
    """Raise UsageError if `fred_tolerance` is not a number."""
    try:
        float(config.getini("fred_tolerance"))
    except ValueError as error:
        raise pytest.UsageError(f"fred_tolerance: {error}; expected a number, such as 0.001") from None


@pytest.fixture
def fred_pin(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that compares a result of FRED with its pin, in the folder `pins` next to the test.

    `fred_pin(result, name="", tolerance=None)`: `name` distinguishes several pins of one test; `tolerance` is the relative
    difference that losses may have in another numeric environment, by default the setting `fred_tolerance`. Without a pin the
    test fails; `--fred-update` writes it.
    """
    files = set[Path]()

    def compare_with_pin(result: Any, name: str = "", tolerance: float | None = None) -> None:
        names = [node.name for node in request.node.listchain() if isinstance(node, (pytest.Class, pytest.Function))]
        file = _pin_of(request.path, [*names, name] if name else names)
        if file in files:
            pytest.fail(f"{file.name} is the pin of two results: give each a name: fred_pin(result, name=...)", pytrace=False)
        files.add(file)
        _check(request.node, file, "::".join([_shown(request.config, request.path), *names]), result, tolerance)

    return compare_with_pin


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Collect scenario files that have a pin, pins without a scenario and, with `--fred-update`, files that are arguments."""
    if file_path.name.endswith(_PIN):
        scenario = file_path.with_name(f"{file_path.name.removesuffix(_PIN)}.yaml")
        return None if scenario.exists() else ScenarioFile.from_parent(parent, path=file_path)
    if file_path.suffix != ".yaml":
        return None
    is_argument = parent.config.getoption("fred_update") and parent.session.isinitpath(file_path)
    return ScenarioFile.from_parent(parent, path=file_path) if is_argument or file_path.with_suffix(_PIN).exists() else None


class ScenarioFile(pytest.File):
    """A scenario file with a pin."""

    def collect(self) -> Iterator["ScenarioTest"]:
        """Yield its test."""
        yield ScenarioTest.from_parent(self, name="pin")


class ScenarioTest(pytest.Item):
    """The comparison of all runs of a scenario file with its pin."""

    def runtest(self) -> None:
        """Run the scenario and compare."""
        import fred

        if self.path.name.endswith(_PIN):
            pytest.fail(f"{_shown(self.config, self.path)} has no scenario: restore that, or remove the pin", pytrace=False)
        result = fred.run(fred.load(self.path, imports=self.config.getini("fred_import")))
        _check(self, self.path.with_suffix(_PIN), _shown(self.config, self.path), result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message of FRED's errors, and the traceback of others from FRED on."""
        from fred import FredError

        if isinstance(excinfo.value, FredError):
            return str(excinfo.value).replace("`--import ", "pytest's setting `fred_import = ")
        excinfo.traceback = excinfo.traceback.cut(path=__file__)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the place of the test, and its name."""
        return self.path, None, f"scenario {self.path.name}"


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Print which pins were written, and which were compared in another environment."""
    reports = [report for group in terminalreporter.stats.values() for report in group if getattr(report, "when", "") == "call"]
    remarks = [text for report in reports for name, text in report.user_properties if name == "fred"]
    if remarks:
        terminalreporter.section("FRED")
        terminalreporter.write_line("\n".join(remarks))


def _check(node: pytest.Item, file: Path, test: str, result: Any, tolerance: float | None = None) -> None:
    """Compare a result with its pin, or write it; fail the test, or leave a remark for the summary."""
    from fred import FredError
    from fred.results import pins

    words = pins.Words(_shown(node.config, file), f"pytest --fred-update {shlex.quote(test)}", _cure_of_order(node.config))
    try:
        if node.config.getoption("fred_update"):
            is_same, remark = True, f"wrote {words.file}" if pins.write_pin(file, result, words) else ""
        else:
            tolerance = float(node.config.getini("fred_tolerance")) if tolerance is None else tolerance
            is_same, remark = pins.compare_with_pin(file, result, words, tolerance)
    except FredError as error:
        is_same, remark = False, str(error)
    if not is_same:
        pytest.fail(remark, pytrace=False)
    if remark:
        node.user_properties.append(("fred", remark))


def _pin_of(module: Path, names: list[str]) -> Path:
    """Return the file of a pin, from the module of the test and the names of its class, itself and its result."""
    name = quote(".".join([module.stem, *names]), safe="[],=+")
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return module.parent / "pins" / f"{name}.json"


def _shown(config: pytest.Config, path: Path) -> str:
    """Return a path relative to the folder in which pytest was started, if it lies in there."""
    start = config.invocation_params.dir
    return os.path.relpath(path, start) if path.is_relative_to(start) else str(path)


def _cure_of_order(config: pytest.Config) -> str:
    """Return the way to import FRED before jax."""
    file = config.inipath
    if config.getini("fred_first"):
        start = 'python -c "import sys, fred, pytest; sys.exit(pytest.main())"'
        return f"another plugin of pytest imports jax, so write `{start}` instead of `pytest`"
    if file is None:
        new = _shown(config, config.rootpath / "pytest.ini")
        return f"write the two lines `[pytest]` and `fred_first = true` to a new file {new}"
    section = _SECTIONS.get(file.name, "pytest")
    if file.name == "pyproject.toml" and "[tool.pytest]" in file.read_text(encoding="utf-8"):
        section = "tool.pytest"
    return f"write the line `fred_first = true` below `[{section}]` in {_shown(config, file)}"
