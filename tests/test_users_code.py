"""A user's annotated program runs, and its classes are those that mappings name."""

import ast

import numpy as np

import fred
from tests import typed, users_code


def test_a_users_program_runs_with_a_class_of_each_kind():
    losses = users_code.losses()
    assert list(losses.index) == ["patient", "diloco", "asgd", "gossip", "gated"]
    assert np.isfinite(losses).all() and losses.nunique() == len(losses)


def test_classes_of_namespaces_are_what_mappings_name():
    settings = {
        "task": {"data": "digits", "model": "softmax", "loss": "cross-entropy"},
        "cluster": {
            "workers": 4,
            "compute": users_code.Triangular(width=0.1),
            "nodes": 2,
            "contention": [{"name": "job", "nodes": [1], "slowdown": 2.0}],
            "faults": [{"name": "outage", "workers": [0], "begin": 1.0, "end": 2.0}],
            "network": {"latency": {"name": "lognormal", "median": 0.01, "sigma": 0.5}, "bandwidth": 1e9},
        },
        "stop": {"updates": 24},
        "evaluate": {"points": 2},
        "runs": {
            "asgd": {"algorithm": {"name": "asgd", "learning_rate": 0.1}},
            "gossip": {
                "algorithm": {"name": "d-psgd", "learning_rate": 0.1},
                "protocol": {"name": "gossip", "topology": "ring"},
            },
        },
    }
    runs = users_code.scenario().runs
    assert dict(fred.scenario(settings).runs) == {name: runs[name] for name in ("asgd", "gossip")}


def test_type_checkers_see_the_examples_of_readme_and_of_the_pages():
    files = typed.examples()
    assert {"README.py", "pypi.py", "your_algorithm.py", "your_algorithm_my_servers.py", "regression_test_my_servers.py"} < set(
        files
    )
    assert "from examples.your_algorithm_my_servers import Patient" in files["your_algorithm.py"]
    for name, text in files.items():
        ast.parse(text, name)
    ast.parse(typed.MISSPELT)
