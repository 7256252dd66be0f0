"""Selection rules of the dispatcher: which worker comes next.

Example:
    >>> import fred
    >>> fred.protocols.Dispatcher(selection=fred.selection.Uniform()).selection
    Uniform()
"""

from fred.protocols.asynchronous import Shifting as Shifting
from fred.protocols.asynchronous import Softmax as Softmax
from fred.protocols.asynchronous import Uniform as Uniform
