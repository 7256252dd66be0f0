"""Cutoff rules: the number of workers that a round waits for, or its deadline.

Example:
    >>> import fred
    >>> fred.protocols.Cutoff(rule=fred.cutoffs.FixedCount(workers=3)).rule.workers
    3
"""

from fred.prediction.auto import Auto as Auto
from fred.prediction.backup import DynamicBackup as DynamicBackup
from fred.prediction.contract import AllWorkers as AllWorkers
from fred.prediction.contract import Oracle as Oracle
from fred.prediction.deep.rule import DMM as DMM
from fred.prediction.deep.rule import DMMPlain as DMMPlain
from fred.prediction.deep.rule import DMMPrinted as DMMPrinted
from fred.prediction.elfving import Elfving as Elfving
from fred.prediction.empirical import Empirical as Empirical
from fred.prediction.ewma import EWMA as EWMA
from fred.prediction.fixed import FixedCount as FixedCount
from fred.prediction.fixed import FixedCountOrDeadline as FixedCountOrDeadline
from fred.prediction.fixed import FixedDeadline as FixedDeadline
from fred.prediction.hmm import HMM as HMM
from fred.prediction.mad_deadline import MADDeadline as MADDeadline
