"""Losses: the quantity that training minimises.

Example:
    >>> import fred
    >>> task = fred.Task(data=fred.data.Digits(), model=fred.models.MLP(), loss=fred.losses.SquaredError())
    >>> task.loss
    SquaredError()
"""

from fred.learning.loss import CrossEntropy as CrossEntropy
from fred.learning.loss import SquaredError as SquaredError
from fred.learning.loss import Value as Value
