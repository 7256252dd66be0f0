"""What `pip install` brings: the wheel has all that FRED needs away from its checkout, and runs there."""

import email
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from ruamel.yaml import YAML

from fred.specification import shipped
from tests.conftest import ROOT

pytest.importorskip(
    "setuptools", minversion="77", reason="builds the wheel with setuptools 77 or later: `make test` installs it"
)
pytestmark = pytest.mark.slow
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    copy = tmp_path_factory.mktemp("sources")
    for name in ("LICENSE", "docs/pypi.md", "pyproject.toml", "pytest_fred.py", "setup.cfg"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    for name in ("fred", "scenarios"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (file,) = (copy / "dist").iterdir()
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of a fresh environment with the wheel; the packages that FRED needs are those of the tests' environment."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, env=ENVIRONMENT)
    (packages,) = place.glob("lib/python3*/site-packages")
    site_packages = [
        path for path in sys.path if path.endswith("-packages")
    ]  # their own .pth files, FRED's too, do not count there
    (packages / "of_the_tests.pth").write_text("\n".join(site_packages))
    return place / "bin"


def output(place: Path, folder: Path, *arguments: str) -> str:
    command = [str(place / arguments[0]), *arguments[1:]]
    process = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_it_has_every_file_of_the_package_and_of_the_scenarios_and_no_other(wheel):
    with ZipFile(wheel) as opened:
        packed = {name: opened.read(name) for name in opened.namelist() if ".dist-info/" not in name}
    files = [path for folder in ("fred", "scenarios") for path in (ROOT / folder).rglob("*") if path.is_file()]
    names = [path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts]
    expected = {f"fred/{name.removeprefix('fred/')}": (ROOT / name).read_bytes() for name in names}
    expected["pytest_fred.py"] = (ROOT / "pytest_fred.py").read_bytes()
    assert packed.keys() == expected.keys() and [name for name in expected if packed[name] != expected[name]] == []


def test_its_metadata_and_its_citation_are_those_of_this_version(wheel):
    with ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(opened.read(name))
    assert metadata.get_payload(decode=True) == (ROOT / "docs" / "pypi.md").read_bytes()
    assert (metadata["Requires-Python"], metadata["License"]) == (">=3.11", "Apache-2.0")
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}, "without which it is not valid"
    assert wheel.name == f"fred_sim-{citation['version']}-py3-none-any.whl" and citation["license"] == "Apache-2.0"


def test_every_scenario_and_the_example_of_a_trace_can_be_read_there(installed, tmp_path):
    program = (
        "import fred\nfrom fred.specification import shipped\nfrom fred.traces.reading import read\n"
        "print(fred.__file__)\nprint(*read('example').seconds.shape)\n"
        "for name in shipped.names(): print(name, *fred.load(name).runs)"
    )
    file, shape, *lines = output(installed, tmp_path, "python", "-c", program).splitlines()
    assert file.startswith(str(installed.parent))
    assert shape == "240 8"  # iterations, workers
    names = [path.relative_to(ROOT / "scenarios").with_suffix("").as_posix() for path in (ROOT / "scenarios").rglob("*.yaml")]
    assert sorted(line.split()[0] for line in lines) == sorted(names)
    assert all(len(line.split()) > 1 for line in lines)


def test_it_runs_away_from_the_checkout(installed, tmp_path):
    brief = ("--seed", "1", "--set", "stop={updates: 20}", "--set", "evaluate={points: 2}")
    assert "results/quickstart.fasgd" in output(installed, tmp_path, "fred", "quickstart", "--only", "fasgd", *brief)
    assert (tmp_path / "results" / "quickstart.fasgd" / "figures" / "error.svg").is_file()
    listed = {line.split()[0] for line in output(installed, tmp_path, "fred", "scenarios").splitlines() if line}
    assert listed >= set(shipped.names())
    output(installed, tmp_path, "fred", "new", "mine.yaml")
    output(installed, tmp_path, "fred", "run", "mine.yaml", "--only", "wait-for-none", *brief, "--set", "task=null")
    assert (tmp_path / "results" / "mine.wait-for-none" / "summary.json").is_file()


def test_pytest_finds_the_plugin_and_a_pinned_scenario_is_a_test_there(installed, tmp_path):
    command = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "one.yaml", "--fred-update")
    (tmp_path / "one.yaml").write_text(
        "cluster: {workers: 2}\nalgorithm: {name: asgd, learning_rate: 0.1}\nstop: {updates: 4}\n"
    )
    assert "wrote one.pin.json" in output(installed, tmp_path, *command)
    assert "1 passed" in output(installed, tmp_path, *command[:-2])
