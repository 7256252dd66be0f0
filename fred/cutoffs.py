"""Cutoff rules: the number of workers that a round waits for, or its deadline.

Example:
    >>> import fred
    >>> fred.protocols.Cutoff(rule=fred.cutoffs.FixedCount(workers=3)).rule.workers
    3
"""

from fred.prediction.auto import Auto as Auto
from fred.prediction.contract import AllWorkers as AllWorkers
from fred.prediction.contract import Oracle as Oracle
from fred.prediction.deep.rule import DMM as DMM
from fred.prediction.deep.rule import DMMPlain as DMMPlain
from fred.prediction.deep.rule import DMMPrinted as DMMPrinted
from fred.prediction.hmm import HMM as HMM
from fred.prediction.predictive import EWMA as EWMA
from fred.prediction.predictive import Elfving as Elfving
from fred.prediction.predictive import Empirical as Empirical
from fred.prediction.simple_rules import DynamicBackup as DynamicBackup
from fred.prediction.simple_rules import FixedCount as FixedCount
from fred.prediction.simple_rules import FixedCountOrDeadline as FixedCountOrDeadline
from fred.prediction.simple_rules import FixedDeadline as FixedDeadline
from fred.prediction.simple_rules import MADDeadline as MADDeadline
