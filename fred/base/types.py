"""Types that many rooms use."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OnProgress = Callable[[float], None]  # called with the fraction of a task that is done
