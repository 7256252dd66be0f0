"""Local SGD: workers step their own models, which are averaged every few steps.

| name      | source                                                                                     |
|-----------|--------------------------------------------------------------------------------------------|
| local-sgd | Stich 2018, arXiv:1805.09767, algorithm 1; Lin, Stich, Patel, Jaggi 2018, arXiv:1808.07217 |
| adacomm   | Wang, Joshi 2019, arXiv:1810.08313, section 4                                              |

Example: a minute in which three workers take 0.5 s for each gradient, and the fourth 2 s; periods of 1, 4 and 16 updates.
    >>> import fred
    >>> settings = {
    ...     "cluster": {"workers": 4, "speeds": [1.0, 1.0, 1.0, 0.25], "compute": {"name": "constant", "seconds": 0.5}},
    ...     "stop": {"seconds": 60.0},
    ...     "algorithm": {"name": "local-sgd", "learning_rate": 0.1},
    ... }
    >>> for period in (1, 4, 16):
    ...     summary = fred.run(fred.scenario(settings, protocol={"period": period})).summary
    ...     summary[["updates", "messages_between_workers"]].iloc[0].tolist()
    [119, 696]
    [125, 168]
    [125, 24]
"""

from fred.learning.server import Family, Server


class LocalSGD(Server):
    """Local SGD: workers step their own models; all models are averaged every `period` updates."""

    name = "local-sgd"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (every `period` updates)"""
    protocol = "local-steps"


class AdaComm(Server):
    """Local SGD with an adaptive period: the smaller the loss, the more often models are averaged."""

    name = "adacomm"
    family = Family.AVERAGED
    rule = """\
w_i <- w_i - step(g_i)
w_i <- mean of all w                   (every H updates)
H <- ceil(H_0 sqrt(F(w) / F(w_0)))     (every T_0 s; or H / 2, if H would not fall)"""
    protocol = "local-steps"
    protocol_options = {"period": 16, "adapt_every": 60.0}
