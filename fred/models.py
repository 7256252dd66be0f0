"""Models to train; `fred.FlaxModel`, `fred.NNXModel` and `fred.EquinoxModel` adapt those of other libraries.

Example:
    >>> import fred
    >>> fred.Task(data=fred.data.Digits(), model=fred.models.MLP(hidden=(32,))).model.hidden
    (32,)
"""

from fred.learning.models.cnn import CNN as CNN
from fred.learning.models.mlp import MLP as MLP
from fred.learning.models.mlp import SoftmaxRegression as SoftmaxRegression
from fred.learning.models.quadratic import Quadratic as Quadratic
from fred.learning.models.transformer import TokenScores as TokenScores
from fred.learning.models.transformer import Transformer as Transformer
