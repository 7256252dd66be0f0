"""A scenario: runs by name, with seeds; from a file, or mappings, to one that is checked whole, or to a clear error."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from fred.components import registry
from fred.components.component import Component, checked_as, options_of
from fred.errors import FredError
from fred.specification import shipped
from fred.specification.run_names import Name
from fred.specification.shape import Run
from fred.specification.source import Setting, Source, keys_of, problems, setting
from fred.specification.sweep import Best, Criterion, Point
from fred.specification.text import Keys, parse

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # kinds of characters: what controls a terminal, or the direction of reading
_OF_TEXT = "\n\t\u200c\u200d"  # of these, what text needs: joiners of letters, too
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(min_length=1)]


class Scenario(Component):
    """One experiment: named runs, each repeated with every seed."""

    title: str = Field("", description="what the experiment shows")
    comment: str = Field("", description="what to look for; absent: the lines of comment with which the file begins")
    seeds: Seeds = Field((0,), description="one repetition each")
    report_seeds: Seeds | None = Field(
        None,
        description="other seeds, with which the best points of sweeps (chosen on `seeds`) and all runs that are not swept are "
        "run, and which alone are reported",
        examples=[[11, 12, 13, 14, 15]],
    )
    runs: dict[Name, Annotated[Run, checked_as(Run)]] = Field(min_length=1, description="the runs, by name")
    points: dict[str, Point] = Field({}, description="of which runs are points of a sweep: made by `sweep`")
    best: Best | None = Field(None, description="what the best of a sweep's points is chosen by")
    baseline: str | None = Field(
        None, description="the run that the others are compared with, seed by seed; absent: the first", examples=["ssgd"]
    )

    @property
    def reported_seeds(self) -> tuple[int, ...]:
        """Those of what is reported.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 4}, stop={"updates": 8}, seeds=[1, 2]
        ... )
        >>> scenario.reported_seeds, scenario.replace({"report_seeds": [11]}).reported_seeds
        ((1, 2), (11,))
        """
        return self.report_seeds or self.seeds

    def replace(self, settings: Mapping[str, Any]) -> "Scenario":
        """The same with other settings, by `key.path` for all runs or `runs.NAME.key.path` for one. Raises FredError.

        Args:
            settings: values by path, as a file would hold them; a path may lead to a whole part, too.

        >>> import fred
        >>> scenario = fred.scenario(
        ...     algorithm={"name": "asgd", "learning_rate": 0.1}, cluster={"workers": 4}, stop={"updates": 8}
        ... )
        >>> changed = scenario.replace({"cluster.workers": 16, "seeds": [1, 2]})
        >>> changed.runs["asgd"].cluster.workers, changed.seeds
        (16, (1, 2))
        >>> scenario.runs["asgd"].cluster.workers
        4
        """
        document = self.model_dump(mode="json", exclude={"points", "best"})
        for name, run in self.runs.items():
            if run.has_usual_protocol:
                del document["runs"][name]["protocol"]  # another algorithm brings its own
        changes: list[Setting] = [(keys_of(path), _as_in_a_file(value), f"{path}={value}") for path, value in settings.items()]
        source = Source(None, document, {}, changes, points=self.points)
        changed = source.specification() | {"points": self.points, "best": self.best}
        return _measurable(validated(changed, source.locate), source)

    @property
    def criterion(self) -> Criterion:
        """What the best of a sweep's points is chosen by, where nothing was said, too.

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
        swept = [self.runs[name] for name in self.points if name in self.runs]
        learned = any(run.task is not None for run in swept)
        with_norm = any(run.evaluate.measures_gradient_norm for run in swept)
        perplexed = any(run.task.has_perplexity for run in swept if run.task is not None)
        return Criterion.of(self.best, learned, any(run.has_target for run in swept), with_norm, perplexed)

    @field_validator("title", "comment")
    @classmethod
    def _printable(cls, text: str) -> str:
        for character in text:
            if unicodedata.category(character) in _UNSEEN and character not in _OF_TEXT:
                raise ValueError(f"expected text that can be printed; it has the control character U+{ord(character):04X}")
        return text

    @field_validator("seeds", "report_seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...] | None, known: ValidationInfo) -> tuple[int, ...] | None:
        if seeds and len(set(seeds)) < len(seeds):
            raise ValueError(f"`{known.field_name}` must differ from each other")
        return seeds

    @field_validator("report_seeds")
    @classmethod
    def _not_those_that_choose(cls, seeds: tuple[int, ...] | None, known: ValidationInfo) -> tuple[int, ...] | None:
        both = sorted({*(seeds or ())} & {*known.data.get("seeds", ())})
        if both:
            raise ValueError(
                f"{', '.join(map(str, both))} in `seeds`, too, on which the best points are chosen; expected other seeds"
            )
        return seeds

    @field_validator("baseline")
    @classmethod
    def _one_of_the_runs(cls, baseline: str | None, known: ValidationInfo) -> str | None:
        runs = known.data.get("runs")
        if baseline is None or runs is None:
            return baseline
        points = known.data.get("points", {})
        names = list(dict.fromkeys(points[name].of if name in points else name for name in runs))
        if baseline not in names:
            raise ValueError(f"expected one of {', '.join(names)}{registry.nearest(baseline, names)}")
        return baseline


def load(path: str | Path, settings: Iterable[str] = (), imports: Iterable[str] = ()) -> Scenario:
    r"""Read a scenario file; `settings` are `key.path=value` overrides, `imports` the user's modules it may name.

    Args:
        path: the YAML file, or the name of a scenario that comes with FRED; paths that it names are seen from its folder.
        settings: each as after `--set` on the command line: for all runs, or for one as `runs.NAME.key.path=value`.
        imports: names of modules, whose classes the file then names as `module:Class`.

    Raises FredError with the file, line, key, value and expectation of everything that is wrong.

    >>> import fred
    >>> from pathlib import Path
    >>> lines = ["algorithm: {name: asgd, learning_rate: 0.1}", "cluster: {workers: 4}", "stop: {updates: 8}"]
    >>> _ = Path("mine.yaml").write_text("\n".join(lines))
    >>> fred.load("mine.yaml", ["cluster.workers=16", "seeds=[1, 2]"]).runs["asgd"].cluster.workers
    16
    >>> fred.load("mine.yaml", ["cluster.worker=16"])
    Traceback (most recent call last):
    ...
    fred.errors.FredError: --set cluster.worker=16: unknown key `worker`; did you mean `workers`?...
    """
    registry.allow_import(imports)
    path = shipped.located(Path(path))
    document, lines, comment = parse(path)
    source = Source(path, document, lines, [setting(text) for text in settings], comment)
    return _measurable(validated(source.specification(), source.locate, folder=path.parent), source)


def validated(specification: Any, locate: Callable[[Keys], str], folder: Path = Path(), recorded: bool = False) -> Scenario:
    """Return the scenario of a specification whose runs are complete. Raises FredError listing whatever is wrong with it.

    Args:
        specification: mappings, with `runs` by name, of which each says everything that it needs.
        locate: where a key stands, for messages: from the keys that lead to it to words such as `mine.yaml:3: stop.updates`.
        folder: from where relative paths are seen.
        recorded: whether it is a manifest's, of which no inputs are read.
    """
    try:
        return Scenario.model_validate(specification, context={"folder": folder, "recorded": recorded})
    except ValidationError as error:
        lines = [f"{locate(keys)}: {problem}" for keys, problem in problems(error.errors())]
        raise FredError(*dict.fromkeys(lines)) from None


def validated_anew(part: Any, keys: Keys = ()) -> Any:
    """A scenario, or a part of one, checked again to its last part: there are ways around validation. Raises FredError.

    Args:
        part: a component, or a mapping or tuple of components; anything else is returned as it is.
        keys: those that lead to it, for messages.
    """
    if isinstance(part, Mapping):
        return {key: validated_anew(value, (*keys, key)) for key, value in part.items()}
    if isinstance(part, tuple):
        return tuple(validated_anew(value, (*keys, number)) for number, value in enumerate(part))
    if not isinstance(part, Component):
        return part
    options = {name: validated_anew(option, (*keys, name)) for name, option in options_of(part).items()}
    try:
        return type(part).model_validate(options)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, where))}: {problem}" for where, problem in problems(error.errors(), keys)]
        raise FredError(*dict.fromkeys(lines)) from None


def scenario(settings: Mapping[str, Any] | None = None, **more: Any) -> Scenario:
    """A scenario of what a file would hold, as mappings: `fred.scenario(algorithm="asgd", cluster={"workers": 4}, ...)`.

    Parts may be objects of FRED's classes, too. Raises FredError with the key, value and expectation of all that is wrong.

    Args:
        settings: the top keys of a file (`title`, `seeds`, `runs`, `sweep`, and parts that all runs have) with their values.
        more: the same as keywords; of a key that is given twice, this one.

    >>> import fred
    >>> both = fred.scenario(
    ...     cluster={"workers": 4, "compute": {"name": "constant", "seconds": 0.5}},
    ...     stop={"updates": 8},
    ...     runs={name: {"algorithm": {"name": name, "learning_rate": 0.1}} for name in ("asgd", "ssgd")},
    ... )
    >>> list(both.runs), both.runs["ssgd"].protocol
    (['asgd', 'ssgd'], Synchronous(backup_workers=0, late='finish'))
    >>> fred.scenario(both.model_dump(mode="json", exclude={"points", "best"})) == both
    True
    """
    document = {key: _as_in_a_file(value) for key, value in {**(settings or {}), **more}.items()}
    source = Source(None, document, {}, [])
    return _measurable(validated(source.specification(), source.locate), source)


def _measurable(scenario: Scenario, source: Source) -> Scenario:
    """The scenario, if some point of its sweeps can have what the best is chosen by. Raises FredError."""
    if scenario.points and scenario.criterion.missing:
        found, missing = scenario.criterion.name, scenario.criterion.missing
        raise FredError(
            f"{source.locate(source.best_at)}: found '{found}'; it needs {missing}. Without one there are throughput, seconds, "
            "workers_time_waiting and other columns of the summary"
        )
    return scenario


def _as_in_a_file(value: Any) -> Any:
    if isinstance(value, Run):
        value = options_of(value)
    if isinstance(value, Mapping):
        return {key: _as_in_a_file(each) for key, each in value.items()}
    return [_as_in_a_file(each) for each in value] if isinstance(value, list | tuple) else value
