"""The registry of all components that a scenario can name. Algorithms and protocols have their names in their classes.

A class whose body has a line such as `name = "gossip"` is a protocol, or an algorithm if it has a `family`, too.

Contract tests cover all entries.
"""

import argparse
import ast
import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fred.base import environment
from fred.base.errors import FredError
from fred.components import own_code

FOLDERS = ("protocols", "systems")
_SOURCE = Path(__file__).parents[1]
_CLASS = re.compile(r"^class (\w+)(.*?)(?=^[^\s)]|\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r'^    name = "([^"]+)"', re.MULTILINE)
_FAMILY = re.compile(r"^    family = Family\.(\w+)", re.MULTILINE)


class Entry(NamedTuple):
    """A class that scenarios can name.

    Args:
        kind: table of the registry, `algorithm` or `protocol`.
        name: its name in scenarios.
        module: its module, as in an import statement.
        cls: its name in Python.
        family: name of an algorithm's family, a member of `Family`; empty for protocols.
    """

    kind: str
    name: str
    module: str
    cls: str
    family: str


@cache
def entries() -> tuple[Entry, ...]:
    """Return the algorithms and protocols, in the order of the files' names.

    >>> from fred.components import registry
    >>> [entry for entry in registry.entries() if entry.name == "asgd"]
    [Entry(kind='algorithm', name='asgd', module='fred.systems.asgd', cls='ASGD', family='AS_THEY_COME')]
    """
    paths = [path for folder in FOLDERS for path in sorted((_SOURCE / folder).glob("*.py"))]
    return tuple(entry for path in paths for entry in read_entries(f"fred.{path.parent.name}.{path.stem}", path))


def targets(kind: str) -> dict[str, str]:
    """Return the classes of this `kind` as `module:Class`, by their names in scenarios."""
    return {entry.name: f"{entry.module}:{entry.cls}" for entry in entries() if entry.kind == kind}


def read_entries(module: str, path: Path) -> Iterator[Entry]:
    """Yield the algorithms and protocols in a file.

    Args:
        module: name of the file's module, as in an import statement.
        path: the file.
    """
    for cls, body in _CLASS.findall(path.read_text(encoding="utf-8")):  # parsing as Python would take 0.1 s of every command
        if name := _NAME.search(body):
            family = _FAMILY.search(body)
            yield Entry("algorithm" if family else "protocol", name[1], module, cls, family[1] if family else "")


REGISTRY: dict[str, dict[str, str]] = {
    "algorithm": targets("algorithm"),
    "codec": {
        "float": "fred.learning.codecs.codec:Float",
        "e3m0": "fred.learning.codecs.codec:E3M0",
        "low-bit": "fred.learning.codecs.codec:LowBit",
        "sign": "fred.learning.codecs.codec:Sign",
        "qsgd": "fred.learning.codecs.codec:QSGD",
        "top-k": "fred.learning.codecs.sparse:TopK",
        "random-k": "fred.learning.codecs.sparse:RandomK",
        "power-sgd": "fred.learning.codecs.sparse:PowerSGD",
        "dct": "fred.learning.codecs.sparse:DCT",
    },
    "protocol": targets("protocol"),
    "cutoff": {
        "all": "fred.prediction.contract:AllWorkers",
        "count": "fred.prediction.simple_rules:FixedCount",
        "deadline": "fred.prediction.simple_rules:FixedDeadline",
        "count-or-deadline": "fred.prediction.simple_rules:FixedCountOrDeadline",
        "mad-deadline": "fred.prediction.simple_rules:MADDeadline",
        "elfving": "fred.prediction.predictive:Elfving",
        "empirical": "fred.prediction.predictive:Empirical",
        "ewma": "fred.prediction.predictive:EWMA",
        "hmm": "fred.prediction.hmm:HMM",
        "backup": "fred.prediction.simple_rules:DynamicBackup",
        "auto": "fred.prediction.auto:Auto",
        "oracle": "fred.prediction.contract:Oracle",
        "dmm": "fred.prediction.deep.rule:DMM",
        "dmm-plain": "fred.prediction.deep.rule:DMMPlain",
        "dmm-printed": "fred.prediction.deep.rule:DMMPrinted",
    },
    "topology": {
        "ring": "fred.protocols.gossip:Ring",
        "complete": "fred.protocols.gossip:Complete",
        "star": "fred.protocols.gossip:Star",
        "exponential": "fred.protocols.gossip:Exponential",
        "bipartite": "fred.protocols.gossip:Bipartite",
        "hypercube": "fred.protocols.gossip:Hypercube",
        "edges": "fred.protocols.gossip:Edges",
    },
    "selection": {
        "uniform": "fred.protocols.asynchronous:Uniform",
        "softmax": "fred.protocols.asynchronous:Softmax",
        "shifting": "fred.protocols.asynchronous:Shifting",
    },
    "gate": {
        "periodic": "fred.protocols.gates:Periodic",
        "statistical": "fred.protocols.gates:Statistical",
    },
    "contention": {
        "markov-switching": "fred.cluster.contention:MarkovSwitching",
        "job": "fred.cluster.contention:Job",
        "moving-job": "fred.cluster.regimes:MovingJob",
        "persistent-noise": "fred.cluster.regimes:PersistentNoise",
        "diurnal": "fred.cluster.regimes:Diurnal",
        "random-delays": "fred.cluster.contention:RandomDelays",
        "rare-delays": "fred.cluster.regimes:RareDelays",
    },
    "fault": {
        "outage": "fred.cluster.faults:Outage",
        "crashes": "fred.cluster.faults:Crashes",
        "sessions": "fred.cluster.sessions:Sessions",
        "periodic": "fred.cluster.sessions:Periodic",
        "lost-messages": "fred.cluster.faults:LostMessages",
    },
    "latency": {
        "constant": "fred.cluster.latency:Constant",
        "uniform": "fred.cluster.latency:Uniform",
        "exponential": "fred.cluster.latency:Exponential",
        "shifted-exponential": "fred.cluster.latency:ShiftedExponential",
        "normal": "fred.cluster.latency:Normal",
        "half-normal": "fred.cluster.latency:HalfNormal",
        "lognormal": "fred.cluster.latency:LogNormal",
        "gamma": "fred.cluster.latency:Gamma",
        "weibull": "fred.cluster.latency:Weibull",
        "pareto": "fred.cluster.latency:Pareto",
        "bimodal": "fred.cluster.latency:Bimodal",
        "mixture": "fred.cluster.latency:Mixture",
        "empirical": "fred.cluster.recorded:Empirical",
        "trace": "fred.cluster.recorded:RecordedTrace",
    },
    "model": {
        "softmax": "fred.learning.models.built_in_models:SoftmaxRegression",
        "mlp": "fred.learning.models.built_in_models:MLP",
        "cnn": "fred.learning.models.built_in_models:CNN",
        "quadratic": "fred.learning.models.built_in_models:Quadratic",
        "transformer": "fred.learning.models.built_in_models:Transformer",
        "token-scores": "fred.learning.models.built_in_models:TokenScores",
    },
    "loss": {
        "cross-entropy": "fred.learning.loss:CrossEntropy",
        "squared-error": "fred.learning.loss:SquaredError",
        "value": "fred.learning.loss:Value",
    },
    "data": {
        "digits": "fred.learning.data.images:Digits",
        "mnist": "fred.learning.data.images:MNIST",
        "cifar10": "fred.learning.data.images:CIFAR10",
        "arrays": "fred.learning.data.arrays:Arrays",
        "synthetic-classification": "fred.learning.data.dataset:SyntheticClassification",
        "synthetic-regression": "fred.learning.data.dataset:SyntheticRegression",
        "noise": "fred.learning.data.dataset:Noise",
        "bigrams": "fred.learning.data.language:Bigrams",
        "shuffle-dyck": "fred.learning.data.language:ShuffleDyck",
        "grammar": "fred.learning.data.language:Grammar",
        "recall": "fred.learning.data.language:Recall",
        "text": "fred.learning.data.language:Text",
    },
}

BASES = {  # base class of each kind, also for users' own classes
    "algorithm": "fred.learning.server:Server",
    "codec": "fred.learning.codecs.codec:Codec",
    "protocol": "fred.protocols.protocol:Protocol",
    "cutoff": "fred.prediction.contract:CutoffRule",
    "topology": "fred.protocols.gossip:Topology",
    "selection": "fred.protocols.asynchronous:Selection",
    "gate": "fred.protocols.gates:Gate",
    "contention": "fred.cluster.contention:Contention",
    "fault": "fred.cluster.faults:Fault",
    "latency": "fred.cluster.latency:Latency",
    "model": "fred.learning.models.model:Model",
    "loss": "fred.learning.loss:LossFunction",
    "data": "fred.learning.data.dataset:Data",
}

NAMESPACES = {  # of each kind: the word for it in `fred list`, and the module with its classes, such as `fred.systems`
    "algorithm": "systems",
    "codec": "codecs",
    "protocol": "protocols",
    "cutoff": "cutoffs",
    "topology": "topology",
    "selection": "selection",
    "gate": "gates",
    "contention": "contention",
    "fault": "faults",
    "latency": "latency",
    "model": "models",
    "loss": "losses",
    "data": "data",
}
OBJECT = "object"  # name of an object of a program, in results
_OBJECTS = {  # class of another library -> FRED's class for its objects
    "flax.nnx:Module": "fred.learning.models.adapters:NNXObject",
    "flax.linen:Module": "fred.learning.models.adapters:FlaxObject",
    "equinox:Module": "fred.learning.models.adapters:EquinoxObject",
    "optax:GradientTransformation": "fred.learning.optimizer:OptaxObject",
}
_ARRAYS = "fred.learning.data.arrays:ArraysObject"
_RESULT_OBJECT = "fred.components.one_of:Absent"  # an object that a result describes
FOR_FILES = {  # what to do instead of giving an object
    "data": "write the arrays with `fred.arrays(file, train, evaluation)`, and take what it returns as `data`",
    "model": "return the module from a class derived from `fred.FlaxModel`, `fred.NNXModel` or `fred.EquinoxModel`, in a "
    "module such as `my_models.py`",
    "optimizer": "name the optimizer, such as `algorithm: {name: asgd, optimizer: adam, learning_rate: 0.001}`",
}
ONLY_DESCRIBED = "a result has only the description of this object: run it again from the program that has the object"

_ENTRY_POINTS = "fred.systems"  # group in which installed packages name modules with components
_MOST_NAMES = 30  # names in a message
_OPTIMIZERS = ("adagrad", "adam", "adamw", "lamb", "lion", "nadam", "rmsprop", "sgd")  # not algorithms
_USER_CLASS = re.compile(r"[^:]+:[\w-]+")  # the name of a user's class
_importable: dict[str, str] = {}  # modules that the command line or the Python API has allowed, by the names that scenarios use


def add_import_option(parser: argparse.ArgumentParser, subject: str) -> None:
    """Add the option `--import MODULE`, which lets `subject` name classes of this module.

    Args:
        parser: parser of a command; it stores the modules in `imports`.
        subject: subject of the help text, such as "the scenario".
    """
    help_ = f"let {subject} name classes of this module, or of an installed package's entry point in `{_ENTRY_POINTS}`"
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE", help=help_)


def allow_import(names: Iterable[str]) -> None:
    """Import modules, and let scenarios name their classes as `module:Class`. FRED imports no other code of the user's.

    The current folder is searched, too. Raises FredError, with file and line, if a module fails.

    Args:
        names: modules as in an import statement, or entry points of installed packages in the group `fred.systems`, which
            scenarios name as `entry-point:Class`. A file of that name in the current folder takes precedence.
    """
    for name in names:
        environment.check_platforms()  # before the module's code receives an error from jax
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        importlib.invalidate_caches()  # the file may be new
        module = _module_of(name)
        try:
            importlib.import_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit and GeneratorExit, too
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = own_code.line_of(error) or f"{frame.filename}, line {frame.lineno}"
            where = "" if isinstance(error, (SyntaxError, ModuleNotFoundError)) else f" ({place})"
            # Only if the module itself is missing: its name may be misspelt, or have the ending of a file.
            file_names = [file.stem for file in Path.cwd().glob("*.py")] if getattr(error, "name", None) == module else []
            hint = nearest(module.removesuffix(".py"), file_names)
            if isinstance(error, ModuleNotFoundError) and error.name != module:
                hint = f": `{module}` imports it; install it into this Python ({sys.executable} -m pip install {error.name})"
            elif isinstance(error, ModuleNotFoundError) and not hint:
                hint = f"; expected {module}.py in this folder, or an installed package"
            raise FredError(f"cannot import `{module}`: {type(error).__name__}: {error}{where}{hint}") from error
        own_code.facts()  # record the digests at the import
        _importable.update({name: module, module: module})


def _module_of(name: str) -> str:
    """Return the module of an entry point, or the name itself: of a file in the current folder, or if no package offers one.

    Raises FredError if several packages do.
    """
    if Path(f"{name}.py").is_file():
        return name
    from importlib import metadata  # slow to import

    modules = sorted({entry_point.module for entry_point in metadata.entry_points(group=_ENTRY_POINTS, name=name)})
    if len(modules) > 1:
        raise FredError(f"installed packages offer several modules as `{name}`: {', '.join(modules)}; name one of these")
    return modules[0] if modules else name


def imported() -> list[str]:
    """Return the names of the allowed modules."""
    return sorted(set(_importable.values()))


def lookup(kind: str, name: str) -> type[Any]:
    """Return the class called `name` in the table of `kind`, or a user's own, as `module:Class`. Raises FredError.

    >>> from fred.components import registry
    >>> registry.lookup("algorithm", "asgd").__name__
    'ASGD'
    >>> registry.lookup("algorithm", "my_servers:Patient")
    Traceback (most recent call last):
    fred.FredError: a scenario alone never makes FRED import code: allow it with `--import my_servers`, in Python ...
    """
    if name in REGISTRY[kind]:
        return _load(REGISTRY[kind][name])
    if name == OBJECT and kind in FOR_FILES:
        raise FredError(not_in_files(kind))
    if ":" not in name:
        choices = (
            ", ".join(REGISTRY[kind])
            if len(REGISTRY[kind]) <= _MOST_NAMES
            else f"the names that `fred list {NAMESPACES[kind]}` lists"
        )
        hint = nearest(name, REGISTRY[kind])
        if kind == "algorithm" and name in _OPTIMIZERS:
            hint = f"; `{name}` is an optimizer: `algorithm: {{name: asgd, optimizer: {name}}}`"
        if kind == "data" and name.endswith(".npz"):
            hint = f"; a file of arrays is `data: {{name: arrays, file: {name}}}`"
        elif kind == "data" and "." in name:
            hint = "; read a table in Python, and give its numbers as `data=(X, y)`, or write them with `fred.arrays`"
        raise FredError(f"expected one of {choices}, or `module:Class`{hint}")
    module = name.partition(":")[0]
    if not _USER_CLASS.fullmatch(name):
        raise FredError(f"`{name}` is not of the form `module:Class`, such as `my_servers:Patient`")
    if module not in _importable:
        raise FredError(needs_import(module))
    return _user_class(kind, name)


def not_in_files(kind: str) -> str:
    """Return the message that refuses the description of an object in a file.

    Args:
        kind: `data`, `model` or `optimizer`.
    """
    return f"`name: {OBJECT}` describes an object of a program, and a file cannot hold one: {FOR_FILES[kind]}"


def object_of(value: Any, are_arrays: bool = False) -> Any:
    """Return the component that holds an object of another library; None for anything else. Raises FredError.

    Args:
        value: a module, a gradient transformation, or anything.
        are_arrays: True if a list or tuple at this place is a data set, `(X, y)`.

        >>> import optax
        >>> from fred.components import registry
        >>> registry.object_of(optax.sgd(0.1)).kind, registry.object_of("sgd")
        ('optax.chain', None)
    """
    if value is None or isinstance(value, str | int | float | type):
        return None
    for public, holder in _OBJECTS.items():
        library, name = public.split(":")
        cls = getattr(sys.modules.get(library), name, None)  # an object's library has been imported
        if cls is not None and isinstance(value, cls):
            return _load(holder).wrap(value)
    return _load(_ARRAYS).wrap(value) if are_arrays and isinstance(value, list | tuple) else None


def is_unimported(name: str) -> bool:
    """Return True if a component's name is that of a user's class, `module:Class`, whose module is not allowed."""
    return _USER_CLASS.fullmatch(name) is not None and name.partition(":")[0] not in _importable


def needs_import(module: str) -> str:
    """Return the message that refuses to import a module of the user's."""
    return (
        f"a scenario alone never makes FRED import code: allow it with `--import {module}`, "
        f"in Python with `fred.load(path, imports=[{module!r}])` or with the class itself instead of its name"
    )


def base(kind: str) -> type[Any]:
    """Return the base class of all classes of this `kind`, a table of the registry."""
    return _load(BASES[kind])


def name_of(kind: str, component: object) -> str:
    """Return the name of a component's class in scenarios.

    Args:
        kind: a table of the registry.
        component: an instance of the class.

        >>> from fred.cluster.latency import Constant
        >>> from fred.components import registry
        >>> registry.name_of("latency", Constant(seconds=1))
        'constant'
    """
    cls = type(component)
    target = f"{cls.__module__}:{cls.__qualname__}"
    if target in (*_OBJECTS.values(), _ARRAYS, _RESULT_OBJECT):
        return OBJECT
    return next((name for name, entry in REGISTRY[kind].items() if entry == target), target)


def protocols_with(option: str) -> list[str]:
    """Return the names of the protocols that have an option.

    >>> from fred.components import registry
    >>> registry.protocols_with("backup_workers")
    ['synchronous']
    """
    return [name for name, target in REGISTRY["protocol"].items() if option in _load(target).model_fields]


def nearest(word: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to a message: the nearest valid spelling, or an empty text.

    >>> from fred.components import registry
    >>> registry.nearest("learning_rat", ["momentum", "learning_rate"]), registry.nearest("nothing", ["like", "it"])
    ('; did you mean `learning_rate`?', '')
    >>> registry.nearest("workers:8", ["workers"])
    '; write a space after the colon: `workers: 8`'
    >>> registry.nearest("psp", ["ssp", "psp-sgd"]), registry.nearest("lr", ["momentum", "learning_rate"])
    ('; did you mean `psp-sgd`?', '; did you mean `learning_rate`?')
    >>> registry.nearest("DPSGD", ["ad-psgd", "d-psgd"])  # the name of a class in Python
    '; did you mean `d-psgd`?'
    """
    names = list(names)
    key, colon, value = word.partition(":")
    if colon and value and key in names:
        return f"; write a space after the colon: `{key}: {value}`"
    initials = {"".join(part[:1] for part in re.split("[-_]", name)): name for name in names}
    matches = [name for name in names if name.startswith(f"{word}-")] or ([initials[word]] if word in initials else [])
    matches = matches or [name for name in names if re.sub("[-_]", "", name) == word.lower()]
    matches = matches or difflib.get_close_matches(word, names, n=1)
    return f"; did you mean `{matches[0]}`?" if matches else ""


def summary(target: str) -> str:
    """Return the one-line description of a table entry, without importing it.

    It is the first line of the docstring of the class, or of that of its file.

    Args:
        target: `module:Class`, as in the tables.

        >>> from fred.components import registry
        >>> registry.summary(registry.REGISTRY["algorithm"]["asgd"])
        'Asynchronous SGD: apply every gradient on arrival, whatever its staleness.'
    """
    module, name = target.split(":")
    docstrings = _docstrings(module)
    return (docstrings[name] or docstrings[""]).partition("\n")[0]


@cache
def _docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a file's classes by name, and that of the file under the empty name."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, module
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = {node.name: ast.get_docstring(node) or "" for node in tree.body if isinstance(node, ast.ClassDef)}
    return {"": ast.get_docstring(tree) or ""} | classes


def _user_class(kind: str, name: str) -> type[Any]:
    """Return a user's class by its name. Raises FredError."""
    prefix, class_name = name.split(":")
    module = _importable[prefix]
    members = vars(importlib.import_module(module))
    if class_name not in members:
        raise FredError(f"cannot load `{name}`: `{module}` has no `{class_name}`{nearest(class_name, members)}")
    return complete(kind, members[class_name], name)


def complete(kind: str, cls: Any, name: str) -> type[Any]:
    """Return a user's class. Raises FredError if it is not a complete class of this kind.

    Args:
        kind: a table of the registry.
        cls: the class.
        name: its name in messages.
    """
    parent = base(kind)
    if not isinstance(cls, type) or not issubclass(cls, parent):
        instance = f"; a module of Flax or Equinox is given as an instance, such as `{name}(...)`" if kind == "model" else ""
        raise FredError(f"`{name}` is not a class derived from fred.{parent.__name__}, as every {kind} is{instance}")
    if inspect.isabstract(cls):
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        raise FredError(f"`{name}` lacks {', '.join(f'`{method}`' for method in missing)}")
    return cls


def _load(target: str) -> type[Any]:
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)
