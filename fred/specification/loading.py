"""Scenarios: named runs with seeds, loaded from a file or from mappings and validated as a whole."""

import html
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from fred.base.errors import FredError, quoted
from fred.cluster.cluster import Cluster
from fred.components import own_code, registry
from fred.components.component import Component, Object, checked_as, objects_of, options_of, own_classes, settings_of
from fred.components.problems import problems
from fred.specification import shipped
from fred.specification.effects import check_effects
from fred.specification.run_names import Name
from fred.specification.shape import Run
from fred.specification.source import Setting, Source, keys_of, put_back, setting
from fred.specification.stopping import Until
from fred.specification.sweep import Best, Criterion, Point, swept_again
from fred.specification.text import Keys, as_yaml, parse

_NOTEBOOK_LETTERS = 20_000  # letters of a scenario in a notebook
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode categories that control a terminal or the text direction
_TEXT_CONTROLS = "\n\t\u200c\u200d"  # exceptions that text needs: line breaks, tabs, and letter joiners
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(min_length=1)]


class Scenario(Component):
    """One experiment: named runs, each repeated with every seed.

    Example: `fred.scenario` and `fred.load` return one:
        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster=fred.Cluster(workers=2),
        ...     algorithm=fred.systems.ASGD(learning_rate=0.1),
        ...     stop=fred.Stop(updates=4),
        ...     seeds=(1, 2),
        ... )
        >>> isinstance(scenario, fred.Scenario), list(scenario.runs), scenario.seeds
        (True, ['asgd'], (1, 2))
    """

    title: str = Field(default="", description="what the experiment shows")
    comment: str = Field(default="", description="what to look for; absent: the comment at the start of the file")
    seeds: Seeds = Field(default=(0,), description="seeds; each run is repeated with every seed")
    report_seeds: Seeds | None = Field(
        default=None,
        description="other seeds for the reported numbers: sweeps choose their best points on `seeds`, then these points and "
        "all runs without a sweep run on `report_seeds`",
        examples=[[11, 12, 13, 14, 15]],
    )
    runs: dict[Name, Annotated[Run, checked_as(Run)]] = Field(min_length=1, description="the runs, by name")
    points: dict[str, Point] = Field(default={}, description="the runs that are points of a sweep; written by `sweep`")
    best: Best | None = Field(default=None, description="the criterion for the best point of a sweep")
    baseline: str | None = Field(
        default=None,
        description="the run that all others are compared with, seed by seed; absent: the first run",
        examples=["ssgd"],
    )
    until: Until | None = Field(
        default=None,
        description="add seeds to those that are reported until the runs are compared precisely, or to a limit",
        examples=[{"within": 0.05, "seeds": 50}],
    )

    @property
    def reported_seeds(self) -> tuple[int, ...]:
        """Return the seeds of the reported runs.
        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     cluster={"workers": 4},
        ...     stop={"updates": 8},
        ...     seeds=[1, 2],
        ...     sweep={"over": {"cluster.workers": [2, 4]}},
        ... )
        >>> scenario.reported_seeds
        (1, 2)
        """
        return self.report_seeds or self.seeds

    def with_seeds(self, number: int) -> "Scenario":
        """Return a copy with more reported seeds: the next unused ones after the largest.

        Args:
            number: of reported seeds.
        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 4}, stop={"updates": 8}, seeds=[5, 2]
        ... )
        >>> scenario.with_seeds(4).seeds
        (5, 2, 6, 7)
        """
        reported, used = self.reported_seeds, {*self.seeds, *self.reported_seeds}
        free_seeds = (seed % 2**32 for seed in itertools.count(max(used) + 1) if seed % 2**32 not in used)
        all_seeds = (*reported, *itertools.islice(free_seeds, max(0, number - len(reported))))
        return self.model_copy(update={"report_seeds" if self.report_seeds else "seeds": all_seeds})

    def replace(self, settings: Mapping[str, Any] | None = None, /, **more: Any) -> "Scenario":
        """Return a copy with some settings replaced. Raises FredError.

        Args:
            settings: values by path, as in a file: `key.path` for all runs or `runs.NAME.key.path` for one. A path may also
                lead to a whole part, such as `cluster`.
            more: the same as keyword arguments; they take precedence over `settings`.
        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 4}, stop={"updates": 8}
        ... )
        >>> changed = scenario.replace({"cluster.workers": 16}, seeds=[1, 2])
        >>> changed.runs["asgd"].cluster.workers, changed.seeds
        (16, (1, 2))
        >>> scenario.runs["asgd"].cluster.workers
        4

        A sweep is changed as in its file:
        >>> swept = scenario.replace(sweep={"over": {"cluster.workers": [2, 8]}}).replace({"stop.updates": 9})
        >>> list(swept.runs), list(swept.replace({"sweep.over": {"cluster.workers": [3]}}).runs)
        (['asgd,workers=2', 'asgd,workers=8'], ['asgd,workers=3'])
        """
        document = settings_of(self)
        del document["points"], document["best"]
        for name, run in self.runs.items():
            if run.has_usual_protocol:
                del document["runs"][name]["protocol"]  # so that another algorithm gets its own protocol
        runs: dict[str, Any] = {}
        for name, run in document["runs"].items():
            runs.setdefault(self.run_of(name), run)  # of a swept run the settings of its first point, without its name
        for name, sweep in swept_again(self.points, [*self.runs]).items():
            points = [point for point in self.runs if self.run_of(point) == name]
            # A key of the first point that another point lacks is swept only in some points: the run has the other's value.
            for key in self.points[points[0]].values:
                if unset := [point for point in points if key not in self.points[point].values]:
                    put_back(runs[name], document["runs"][unset[0]], keys_of(key))
            runs[name]["sweep"] = {**sweep, "best": self.best}
        document["runs"] = runs
        source = Source(None, document, {}, _changes({**(settings or {}), **more}))
        return _checked(validated(source.specification(), source.locate), source)

    def run_of(self, name: str) -> str:
        """Return the name of the swept run that a point belongs to; the name itself for any other run.

        Args:
            name: name of a run or a point.
        """
        return self.points[name].of if name in self.points else name

    def to_yaml(self, path: str | Path | None = None) -> str:
        """Return the scenario as YAML, all settings except defaults, and write it to a file if a path is given.

        Args:
            path: the file; an existing one is replaced.

        Raises FredError for what a file cannot name: classes of a notebook or program, and objects of other libraries.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 4}, stop={"updates": 8}
        ... )
        >>> _ = scenario.to_yaml("mine.yaml")
        >>> fred.load("mine.yaml") == scenario
        True
        """
        program_classes = sorted(
            name for run in self.runs.values() for name in own_classes(run) if name.startswith(own_code.MAIN)
        )
        if path is not None and (objects := objects_of(self.runs)):
            # `optimizer` is the last kind: optimizers are no table of the registry
            kind = next(
                kind for kind in registry.FOR_FILES if kind == "optimizer" or isinstance(objects[0], registry.base(kind))
            )
            raise FredError(f"a file cannot hold `{objects[0].kind}`, an object of a program: {registry.FOR_FILES[kind]}")
        if path is not None and program_classes:
            cls = program_classes[0].partition(":")[2]
            raise FredError(
                f"a file cannot name `{cls}`, a class of a notebook or program: move it to a module, such as `mine.py`, and "
                f"import it from there; then `fred.load(path, imports=['mine'])` reads the file"
            )
        text = as_yaml(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        number, seeds = len(self.runs), ", ".join(map(str, self.seeds))
        return f"<Scenario of {number} run{'s' * (number > 1)} with seeds {seeds}; `print(scenario.to_yaml())` shows it>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(as_yaml(self, _NOTEBOOK_LETTERS))}</pre>"

    def _instead_of_setting(self, name: str) -> str:
        path = f"cluster.{name}" if name in Cluster.model_fields else name
        return f"a scenario does not change; `.replace({{'{path}': ...}})` returns a changed copy"

    @property
    def criterion(self) -> Criterion:
        """Return the criterion for the best point of a sweep, or the default if the scenario names none.
        >>> import fred
        >>> scenario = fred.scenario(
        ...     cluster={"workers": 4},
        ...     algorithm={"name": "asgd", "learning_rate": 0.1},
        ...     stop={"seconds": 8},
        ...     sweep={"over": {"cluster.workers": [2, 4]}},
        ... )
        >>> scenario.criterion.column, scenario.criterion.way
        ('throughput', 'highest')
        """
        return Criterion.from_name(self.best, [self.runs[name] for name in self.points if name in self.runs])

    @field_validator("title", "comment")
    @classmethod
    def _printable(cls, text: str) -> str:
        for character in text:
            if unicodedata.category(character) in _CONTROL_CATEGORIES and character not in _TEXT_CONTROLS:
                raise ValueError(f"expected text that can be printed; it has the control character U+{ord(character):04X}")
        return text

    @field_validator("seeds", "report_seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        if seeds and len(set(seeds)) < len(seeds):
            twice = next(seed for seed in seeds if seeds.count(seed) > 1)
            raise ValueError(f"`{info.field_name}` must differ from each other; {twice} is given twice")
        return seeds

    @field_validator("report_seeds")
    @classmethod
    def _not_those_that_choose(cls, seeds: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        shared = sorted({*(seeds or ())} & {*info.data.get("seeds", ())})
        if shared:
            raise ValueError(
                f"{', '.join(map(str, shared))} also in `seeds`, on which the best points are chosen; expected other seeds"
            )
        return seeds

    @field_validator("baseline")
    @classmethod
    def _one_of_the_runs(cls, baseline: str | None, info: ValidationInfo) -> str | None:
        runs = info.data.get("runs")
        if baseline is None or runs is None:
            return baseline
        points = info.data.get("points", {})
        names = list(dict.fromkeys(points[name].of if name in points else name for name in runs))
        if baseline not in names:
            raise ValueError(f"expected one of {', '.join(names)}{registry.nearest(baseline, names)}")
        return baseline

    @field_validator("until")
    @classmethod
    def _check_until(cls, until: Until | None, info: ValidationInfo) -> Until | None:
        runs, points = info.data.get("runs"), info.data.get("points", {})
        if until is None or runs is None:
            return until
        if len({points[name].of if name in points else name for name in runs}) < 2:
            raise ValueError("one run has nothing to compare with; expected two runs or more")
        if points and not info.data.get("report_seeds"):
            raise ValueError("a sweep must not choose on the seeds that are added; expected `report_seeds` as well")
        return until


def load(path: str | Path, settings: Iterable[str] | Mapping[str, Any] = (), imports: Iterable[str] = ()) -> Scenario:
    r"""Read a scenario file and return its scenario.

    Args:
        path: the YAML file, or the name of a scenario that comes with FRED. Paths in the file are relative to its folder.
        settings: overrides as after `--set` on the command line: `key.path=value` for all runs, or
            `runs.NAME.key.path=value` for one; or a mapping of these paths to values.
        imports: names of the user's modules; the file can name their classes as `module:Class`.

    Raises FredError that lists every mistake with its file, line, key, value and the expected value.

    >>> import fred
    >>> from pathlib import Path
    >>> lines = ["algorithm: {name: asgd, learning_rate: 0.1}", "cluster: {workers: 4}", "stop: {updates: 8}"]
    >>> _ = Path("mine.yaml").write_text("\n".join(lines))
    >>> fred.load("mine.yaml", ["cluster.workers=16", "seeds=[1, 2]"]).runs["asgd"].cluster.workers
    16
    >>> fred.load("mine.yaml", ["cluster.worker=16"])
    Traceback (most recent call last):
    ...
    fred.FredError: --set cluster.worker=16: unknown key `worker`; did you mean `workers`?...
    """
    changes = [setting(text) for text in settings] if not isinstance(settings, Mapping) else _changes(settings)
    registry.allow_import(imports)
    path = shipped.located(Path(path))
    document, lines, comment = parse(path)
    source = Source(path, document, lines, changes, comment)
    return _checked(validated(source.specification(), source.locate, folder=path.parent), source)


def _changes(settings: Mapping[str, Any]) -> list[Setting]:
    """Return values by path as settings, in the form that `setting` returns for a text."""
    return [(keys_of(path), settings_of(value, keys_of(path)), _brief(path, value)) for path, value in settings.items()]


def _brief(path: str, value: Any) -> str:
    """Return a setting in words: its path alone, unless its value is a number or a short text."""
    return f"{path}={value}" if value is None or isinstance(value, str | int | float) else path


def validated(specification: Any, locate: Callable[[Keys], str], folder: Path = Path(), recorded: bool = False) -> Scenario:
    """Return the scenario of a complete specification. Raises FredError that lists every mistake.

    Args:
        specification: the settings as mappings, with named `runs` that are complete.
        locate: function from the keys of a value to its place in words, such as `mine.yaml:3: stop.updates`.
        folder: folder that relative paths start from.
        recorded: True for the specification in a manifest: its input files are not read.
    """
    try:
        return Scenario.model_validate(specification, context={"folder": folder, "recorded": recorded})
    except ValidationError as error:
        lines = [f"{locate(keys)}: {problem}" for keys, problem in problems(error.errors(), Scenario)]
        raise FredError(*dict.fromkeys(lines)) from None


def revalidated(part: Any, keys: Keys = ()) -> Any:
    """Return a scenario, or a part of one, after validating it again in depth. Raises FredError.

    This catches values that were set without validation, such as by `model_copy`. Defaults are not validated, as at first.

    Args:
        part: a component, or a mapping or tuple of components; anything else is returned as it is.
        keys: the keys that lead to the part, for messages.
    """
    if isinstance(part, Mapping):
        return {key: revalidated(value, (*keys, key)) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(revalidated(value, (*keys, number)) for number, value in enumerate(part))
    if not isinstance(part, Component) or (isinstance(part, Object) and part.content is not None):
        return part
    fields = type(part).model_fields
    options = {
        name: revalidated(option, (*keys, name))
        for name, option in options_of(part).items()
        if name not in fields or option is not part.default_of(name)
    }
    try:
        return type(part).model_validate(options)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, where))}: {problem}" for where, problem in problems(error.errors(), type(part), keys)]
        raise FredError(*dict.fromkeys(lines)) from None


def scenario(settings: "Mapping[str, Any] | Scenario | None" = None, **more: Any) -> Scenario:
    """Make a scenario from Python values: `fred.scenario(algorithm="asgd", cluster={"workers": 4}, ...)`.

    Parts can be mappings, as in a file, or objects of FRED's classes. A model can be a module of Flax or Equinox, data can be
    arrays `(X, y)`, and an optimizer can be an object of optax, such as `optax.adam(1e-3)`. Raises FredError that lists every
    mistake with its key, value and the expected value.

    Args:
        settings: the top-level keys of a file (`title`, `seeds`, `runs`, `sweep`, and the parts that all runs share) with
            their values; or a scenario, of which `more` replaces settings.
        more: the same as keyword arguments; they take precedence over `settings`.
    >>> import fred
    >>> both = fred.scenario(
    ...     cluster={"workers": 4, "compute": {"name": "constant", "seconds": 0.5}},
    ...     stop={"updates": 8},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ... )
    >>> list(both.runs), both.runs["ssgd"].protocol
    (['asgd', 'ssgd'], Synchronous(backup_workers=0, late='finish', timeout=None))
    >>> fred.scenario(both.model_dump(mode="json", exclude={"points", "best"})) == both
    True
    """
    if isinstance(settings, Scenario):
        return settings.replace(more)
    if not isinstance(settings, Mapping | None):
        raise FredError(f"found {quoted(settings)[:80]}; expected a mapping of settings; `fred.load` reads a file")
    document = {key: settings_of(value, (key,)) for key, value in {**(settings or {}), **more}.items()}
    source = Source(None, document, {}, [])
    return _checked(validated(source.specification(), source.locate), source)


def _checked(scenario: Scenario, source: Source) -> Scenario:
    """Return the scenario, if its options have an effect and its sweeps measure their criterion. Raises FredError."""
    check_effects(scenario.runs, source.locate)
    if scenario.report_seeds and not scenario.points:
        raise FredError(
            f"{source.locate(('report_seeds',))}: without a `sweep`, no best point is chosen on `seeds`; give these seeds as "
            "`seeds`, and leave out `report_seeds`"
        )
    if scenario.points and scenario.criterion.missing:
        name, missing = scenario.criterion.name, scenario.criterion.missing
        raise FredError(
            f"{source.locate(source.best_at)}: found '{name}'; it needs {missing}. Without one there are throughput, seconds, "
            "workers_time_waiting and other columns of the summary"
        )
    return scenario


def as_scenario(value: Any) -> Scenario:
    """Return a scenario that is given as such, by the name or path of its file, or by its settings. Raises FredError.

    Args:
        value: what `fred.run` received.
    """
    if isinstance(value, Scenario):
        return value
    if isinstance(value, str | Path):
        return load(value)
    if isinstance(value, Mapping):
        return scenario(value)
    raise FredError(
        f"found {quoted(value)[:80]}; expected a scenario: what `fred.scenario` or `fred.load` returns, a name such as "
        "'quickstart', the path of a file, or a mapping of settings"
    )


def checked_again(value: Any, seeds: Iterable[int] | None = None) -> Scenario:
    """Return the scenario that `fred.run` received, validated again: loading a result skips checks of inputs. Raises FredError.

    Args:
        value: what `fred.run` received.
        seeds: other seeds than the scenario's, which `until` does not extend; None: the scenario's.
    """
    checked: Scenario = revalidated(as_scenario(value))
    check_effects(checked.runs, lambda keys: ".".join(map(str, keys)))
    if seeds is None:
        return checked
    return checked.replace(seeds=[*seeds] if isinstance(seeds, Iterable) else seeds, until=None)


_KEY = "cluster"
_STUB = {"algorithm": {"name": "asgd", "learning_rate": 1.0}, "stop": {"updates": 1}}  # what else a valid scenario needs


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a YAML file with the key `cluster`, as `fred diagnose` and `fred fit` write it (`cluster.yaml`).

    Args:
        path: the file. Paths in it, such as that of a trace, are relative to its folder.

    Raises FredError for a file that cannot be read or holds anything else, with file, line and key.

    >>> import fred
    >>> from pathlib import Path
    >>> _ = Path("cluster.yaml").write_text("cluster: {workers: 8, compute: {name: lognormal, median: 0.1, sigma: 0.3}}")
    >>> cluster = fred.load_cluster("cluster.yaml")
    >>> scenario = fred.scenario(cluster=cluster, algorithm={"name": "ssgd", "learning_rate": 0.1}, stop={"updates": 100})
    >>> scenario.runs["ssgd"].cluster == cluster
    True
    """
    path = Path(path)
    document, lines, _ = parse(path)
    if set(document) != {_KEY}:
        keys = ", ".join(f"`{key}`" for key in document) or "nothing"
        raise FredError(
            f"{path}: found {keys}; expected only `{_KEY}`, as in a file of `fred fit` or `fred diagnose`; "
            f"for the cluster of a scenario: `fred.load({str(path)!r}).runs[NAME].cluster`"
        )
    source = Source(path, _STUB | document, lines, [])
    (run,) = validated(source.specification(), source.locate, folder=path.parent).runs.values()
    return run.cluster
