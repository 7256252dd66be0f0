"""Selection rules of the dispatcher: which worker comes next.

Example:
    >>> import fred
    >>> fred.protocols.Dispatcher(selection=fred.selection.Uniform()).selection
    Uniform()
"""

from fred.protocols.selection import Shifting as Shifting
from fred.protocols.selection import Softmax as Softmax
from fred.protocols.selection import Uniform as Uniform
