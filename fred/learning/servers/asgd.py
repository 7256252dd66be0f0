"""Asynchronous SGD [Dean et al. 2012, "Large scale distributed deep networks"; Odena 2016, section 2.1]."""

from fred.learning.server import Server


class ASGD(Server):
    """One step with every gradient as it arrives, however stale."""
