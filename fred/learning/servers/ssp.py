"""SGD under stale synchronous parallelism [Ho et al. 2013, "More effective distributed ML via an SSP parameter server"]."""

from typing import ClassVar

from fred.learning.server import Server


class SSP(Server):
    """One step with each gradient when it arrives; the protocol bounds how stale it can be."""

    protocol: ClassVar[str] = "stale-synchronous"
