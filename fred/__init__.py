"""FRED: a deterministic simulator of distributed SGD on one machine.

Importing it sets the numeric environment, so import it before jax. `load` reads a scenario file, `run` executes it:

    >>> import fred
    >>> scenario = fred.scenario({
    ...     "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"updates": 4},
    ...     "algorithm": {"name": "asgd", "learning_rate": 0.1},
    ... })
    >>> fred.run(scenario).summary["virtual_seconds"].tolist()
    [1.0]

The package exports all names that custom systems need; import them from here, not from FRED's modules.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fred.base import environment
from fred.base.version import __version__ as __version__

if TYPE_CHECKING:
    from fred.base.errors import FredError as FredError
    from fred.cluster.cluster import Cluster as Cluster
    from fred.cluster.contention import Contention as Contention
    from fred.cluster.contention import Load as Load
    from fred.cluster.faults import Fault as Fault
    from fred.cluster.faults import FaultProcess as FaultProcess
    from fred.cluster.latency import Latency as Latency
    from fred.cluster.network import NOTHING as NOTHING
    from fred.cluster.network import Cost as Cost
    from fred.components.component import Component as Component
    from fred.learning.codecs.codec import Codec as Codec
    from fred.learning.data.arrays import arrays as arrays
    from fred.learning.data.dataset import Data as Data
    from fred.learning.data.dataset import Dataset as Dataset
    from fred.learning.data.dataset import Examples as Examples
    from fred.learning.loss_functions import LossFunction as LossFunction
    from fred.learning.models.adapters import EquinoxModel as EquinoxModel
    from fred.learning.models.adapters import FlaxModel as FlaxModel
    from fred.learning.models.adapters import NNXModel as NNXModel
    from fred.learning.models.model import Model as Model
    from fred.learning.models.model import Params as Params
    from fred.learning.server import Message as Message
    from fred.learning.server import Scalar as Scalar
    from fred.learning.server import Server as Server
    from fred.learning.server import State as State
    from fred.outcomes.spans import spans as spans
    from fred.prediction.contract import Chooser as Chooser
    from fred.prediction.contract import CutoffRule as CutoffRule
    from fred.prediction.contract import Deadline as Deadline
    from fred.prediction.predictive import Predictive as Predictive
    from fred.prediction.predictive import Predictor as Predictor
    from fred.protocols.central import Central as Central
    from fred.protocols.gate_rules import Gate as Gate
    from fred.protocols.gate_rules import Offer as Offer
    from fred.protocols.protocol import Protocol as Protocol
    from fred.protocols.selection import Selection as Selection
    from fred.protocols.topology import Topology as Topology
    from fred.results.compare import compare as compare
    from fred.results.experiment import run as run
    from fred.results.explore import explore as explore
    from fred.results.folder import load_result as load_result
    from fred.results.result import Result as Result
    from fred.schedule.layout import Layout as Layout
    from fred.schedule.minibatches import batch_indices as batch_indices
    from fred.schedule.minibatches import key_words as key_words
    from fred.schedule.schedule import Schedule as Schedule
    from fred.schedule.schedule import Verb as Verb
    from fred.specification.loading import load as load
    from fred.specification.loading import scenario as scenario
    from fred.systems.asgd import ASGD as ASGD
    from fred.timing.averaging import Operation as Operation
    from fred.timing.copies import Copy as Copy
    from fred.timing.copies import Gradient as Gradient
    from fred.timing.recorder import Recorder as Recorder
    from fred.timing.simulation import Process as Process
    from fred.timing.simulation import Simulation as Simulation

environment.prepare()

_PUBLIC = {  # module -> what of it is public
    "fred.base.errors": ("FredError",),
    # scenarios and results
    "fred.specification.loading": ("load", "scenario"),
    "fred.results.experiment": ("run",),
    "fred.results.explore": ("explore",),
    "fred.results.folder": ("load_result",),
    "fred.results.compare": ("compare",),
    "fred.results.result": ("Result",),
    "fred.schedule.schedule": ("Schedule", "Verb"),
    "fred.outcomes.spans": ("spans",),
    # whatever a scenario can name
    "fred.components.component": ("Component",),
    # which workers wait for which
    "fred.protocols.protocol": ("Protocol",),
    "fred.protocols.central": ("Central",),
    "fred.timing.simulation": ("Simulation", "Process"),
    "fred.timing.averaging": ("Operation",),
    "fred.timing.copies": ("Copy", "Gradient"),
    "fred.timing.recorder": ("Recorder",),
    "fred.schedule.layout": ("Layout",),
    "fred.protocols.topology": ("Topology",),
    "fred.protocols.selection": ("Selection",),
    "fred.protocols.gate_rules": ("Gate", "Offer"),
    "fred.prediction.contract": ("CutoffRule", "Chooser", "Deadline"),
    "fred.prediction.predictive": ("Predictive", "Predictor"),
    # simulated machines
    "fred.cluster.cluster": ("Cluster",),
    "fred.cluster.latency": ("Latency",),
    "fred.cluster.contention": ("Contention", "Load"),
    "fred.cluster.faults": ("Fault", "FaultProcess"),
    "fred.cluster.network": ("Cost", "NOTHING"),
    # what an update does, and to what
    "fred.learning.server": ("Server", "State", "Message", "Scalar"),
    "fred.systems.rows": ("ASGD",),
    "fred.learning.codecs.codec": ("Codec",),
    "fred.learning.models.model": ("Model", "Params"),
    "fred.learning.models.adapters": ("FlaxModel", "NNXModel", "EquinoxModel"),
    "fred.learning.loss_functions": ("LossFunction",),
    "fred.learning.data.dataset": ("Data", "Dataset", "Examples"),
    "fred.learning.data.arrays": ("arrays",),
    "fred.schedule.minibatches": ("batch_indices", "key_words"),
}
_PLACES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `python -m fred --help` needs neither jax nor pandas."""
    if name not in _PLACES:
        raise AttributeError(f"module 'fred' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
