"""Data sets: training and evaluation examples. `fred.arrays` makes one of arrays.

Example: noise of 20 numbers, the examples of a quadratic.
    >>> import fred
    >>> fred.data.Noise(features=20).features
    20
"""

from fred.learning.data.arrays import Arrays as Arrays
from fred.learning.data.dataset import Noise as Noise
from fred.learning.data.dataset import SyntheticClassification as SyntheticClassification
from fred.learning.data.dataset import SyntheticRegression as SyntheticRegression
from fred.learning.data.images import CIFAR10 as CIFAR10
from fred.learning.data.images import MNIST as MNIST
from fred.learning.data.images import Digits as Digits
from fred.learning.data.language import Bigrams as Bigrams
from fred.learning.data.language import Grammar as Grammar
from fred.learning.data.language import Recall as Recall
from fred.learning.data.language import ShuffleDyck as ShuffleDyck
from fred.learning.data.language import Text as Text
