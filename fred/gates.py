"""Gates: which messages between workers and servers pass.

Example: every second message passes.
    >>> import fred
    >>> fred.protocols.Gated(push_gate=fred.gates.Periodic(k=2)).push_gate
    Periodic(k=2)
"""

from fred.protocols.gates import Periodic as Periodic
from fred.protocols.gates import Statistical as Statistical
