"""Algorithms whose server makes a plain step with whatever reaches it: what sets them apart is their protocol.

| class          | source                                                                                                     |
|----------------|------------------------------------------------------------------------------------------------------------|
| SSGD           | Chen, Pan, Monga, Bengio, Jozefowicz 2017, arXiv:1604.00981, algorithm 4                                   |
| MSync          | Dutta et al. 2018, arXiv:1803.01113, section 2, as k-sync; arXiv:2602.03802                                |
| RennalaSGD     | Tyurin, Richtarik 2023, arXiv:2305.12387, method 4; k-batch-sync of Dutta et al. 2018                      |
| MaleniaSGD     | Tyurin, Richtarik 2023, arXiv:2305.12387, method 6                                                         |
| RingmasterASGD | Maranjyan, Tyurin, Richtarik 2025, arXiv:2501.16168, algorithms 4-5                                        |
| SSP            | Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server"          |
| CutoffSGD      | Teng & Wood 2018, algorithm 1                                                                              |
| AllreduceSGD   | Li et al. 2021, section 2                                                                                  |
| DropComputeSGD | Giladi et al. 2023, arXiv:2306.10598, algorithm 1                                                          |
| LocalSGD       | Stich 2018, arXiv:1805.09767, algorithm 1; Lin, Stich, Patel, Jaggi 2018, arXiv:1808.07217                 |
| AdaComm        | Wang, Joshi 2019, arXiv:1810.08313, section 4                                                              |
| SwarmSGD       | Nadiradze et al. 2021, "Asynchronous decentralized SGD with quantized and local updates", arXiv:1910.12308 |
| STSyn          | Zhu, Zhang, Wang 2024, "STSyn", arXiv:2210.03521, section 3                                                |
| EagerSGD       | Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler 2020, arXiv:1908.04207, algorithm 2                            |
| DPSGD          | Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, arXiv:1705.09056, algorithm 1                                  |
| ADPSGD         | Lian, Zhang, Zhang, Liu 2018, arXiv:1710.06952, algorithm 1                                                |
| WAGMASGD       | Li, Ben-Nun, Dryden, Di Girolamo, Alistarh, Hoefler 2021, algorithm 2                                      |
"""

from typing import Any, ClassVar

from fred.learning.server import Family, Server


class LocalSGD(Server):
    """Every worker steps its own model; after some steps all models are averaged."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (every `period` updates)"""
    protocol: ClassVar[str] = "local-steps"


class AdaComm(Server):
    """Local SGD that averages the more often, the smaller the loss has become."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w                   (every H updates)
H <- ceil(H_0 sqrt(F(w) / F(w_0)))     (every T_0 s; or H / 2, where it would not fall)"""
    protocol: ClassVar[str] = "local-steps"
    protocol_options: ClassVar[dict[str, Any]] = {"period": 16, "adapt_every": 60.0}


class SwarmSGD(Server):
    """Every worker steps its own model; now and then two of them, drawn at random, average theirs."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of both w    (every `period` updates, with another one)"""
    protocol: ClassVar[str] = "in-pairs"


class STSyn(Server):
    """Every worker steps its own model, until K have made U updates; then all models that have changed are averaged."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- mean of the w_j of all who have made an update    (as soon as K workers have made U)"""
    protocol: ClassVar[str] = "straggler-tolerant"


class EagerSGD(Server):
    """One step with the mean over all workers of what each has ready: its gradient, some that were late, or nothing."""

    family: ClassVar[Family] = Family.AS_THEY_COME
    rule: ClassVar[str] = "w <- w - step(sum of the g that are ready, late ones included, / workers)"
    protocol: ClassVar[str] = "eager"


class DPSGD(Server):
    """Every worker averages its model with its neighbours', and steps with its gradient at the model before."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- sum over j of W_ij w_j    (W: the protocol's weights, not 0 for neighbours and itself)"""
    protocol: ClassVar[str] = "gossip"
    protocol_options: ClassVar[dict[str, Any]] = {"order": "mix-first"}


class ADPSGD(Server):
    """Every worker steps its own model with a gradient at an older copy of it, between averagings with one other worker."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_j <- (w_i + w_j) / 2         (j is drawn; w_i is what i has sent)
w_i <- w_i + (w_j - w_i) / 2    (what j had sent back less what i had sent)
w_i <- w_i - step(g_i)          (at any time)"""
    protocol: ClassVar[str] = "pairwise"


class WAGMASGD(Server):
    """Every worker steps its own model, and averages it with its group's, wherever the others have got to."""

    family: ClassVar[Family] = Family.AVERAGED
    rule: ClassVar[str] = """\
w_i <- w_i - step(g_i)
w_i <- W                        (the mean of its group of S, if it is in time)
w_i <- (S W + w_i) / (S + 1)    (if it is late; in W is an older model of its own)
w_i <- mean of all w            (every `period` iterations)"""
    protocol: ClassVar[str] = "group-averaging"
