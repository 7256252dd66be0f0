"""Local SGD: workers step their own models, which are averaged now and then.

| name      | source                                                                                     |
|-----------|--------------------------------------------------------------------------------------------|
| local-sgd | Stich 2018, arXiv:1805.09767, algorithm 1; Lin, Stich, Patel, Jaggi 2018, arXiv:1808.07217 |
| adacomm   | Wang, Joshi 2019, arXiv:1810.08313, section 4                                              |
"""

ALGORITHMS = {
    "local-sgd": {
        "about": "Every worker steps its own model; after some steps all models are averaged.",
        "family": "averaged",
        "rule": """\
w_i <- w_i - step(g_i)
w_i <- mean of all w    (every `period` updates)""",
        "protocol": "local-steps",
    },
    "adacomm": {
        "about": "Local SGD that averages the more often, the smaller the loss has become.",
        "family": "averaged",
        "rule": """\
w_i <- w_i - step(g_i)
w_i <- mean of all w                   (every H updates)
H <- ceil(H_0 sqrt(F(w) / F(w_0)))     (every T_0 s; or H / 2, where it would not fall)""",
        "protocol": {"name": "local-steps", "period": 16, "adapt_every": 60.0},
    },
}
