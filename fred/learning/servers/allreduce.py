"""Allreduce-SGD [Li et al. 2021, section 2]."""

from typing import ClassVar

from fred.learning.server import Server


class AllreduceSGD(Server):
    """One step with the mean of all workers' gradients, made by every worker alike."""

    protocol: ClassVar[str] = "allreduce"
