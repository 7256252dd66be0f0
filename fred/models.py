"""Models to train; `fred.FlaxModel`, `fred.NNXModel` and `fred.EquinoxModel` adapt those of other libraries.

Example:
    >>> import fred
    >>> fred.Task(data=fred.data.Digits(), model=fred.models.MLP(hidden=(32,))).model.hidden
    (32,)
"""

from fred.learning.models.built_in_models import CNN as CNN
from fred.learning.models.built_in_models import MLP as MLP
from fred.learning.models.built_in_models import Quadratic as Quadratic
from fred.learning.models.built_in_models import SoftmaxRegression as SoftmaxRegression
from fred.learning.models.built_in_models import TokenScores as TokenScores
from fred.learning.models.built_in_models import Transformer as Transformer
