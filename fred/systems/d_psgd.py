"""D-PSGD: workers average with their neighbours [Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017, arXiv:1705.09056, algorithm 1]."""

ALGORITHMS = {
    "d-psgd": {
        "about": "Every worker averages its model with its neighbours', and steps with its gradient at the model before.",
        "family": "averaged",
        "rule": """\
w_i <- w_i - step(g_i)
w_i <- sum over j of W_ij w_j    (W: the protocol's weights, not 0 for neighbours and itself)""",
        "protocol": {"name": "gossip", "order": "mix-first"},
    },
}
