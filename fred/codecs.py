"""Codecs, which compress messages.

Example: a tenth of 1000 numbers, 4 bytes each, and their positions, 10 bits each.
    >>> import fred
    >>> import numpy as np
    >>> fred.codecs.TopK(share=0.1).size({"w": np.zeros(1000, np.float32)})
    525
"""

from fred.learning.codecs.codec import E3M0 as E3M0
from fred.learning.codecs.codec import QSGD as QSGD
from fred.learning.codecs.codec import Float as Float
from fred.learning.codecs.codec import LowBit as LowBit
from fred.learning.codecs.codec import Sign as Sign
from fred.learning.codecs.sparse import DCT as DCT
from fred.learning.codecs.sparse import PowerSGD as PowerSGD
from fred.learning.codecs.sparse import RandomK as RandomK
from fred.learning.codecs.sparse import TopK as TopK
