"""Networks by name: the options that a preset gives, those that replace them, and the ways in which scenarios are written again."""

import json
from typing import Any

import pytest

import fred
from fred.cluster.bandwidths import PRESETS
from fred.cluster.network import Network
from fred.specification.loading import revalidated
from tests.program import fred_command, refusal

SIZE = 100_000_000
SCENARIO = """\
cluster: {workers: 4, compute: {name: constant, seconds: 0.1}, network: ethernet-25}
algorithm: {name: allreduce-sgd, learning_rate: 0.1}
stop: {updates: 4}
runs:
  small: {cluster: {network: {message_bytes: 1000}}}
  large: {cluster: {network: {message_bytes: 100000000}}}
  slow: {cluster: {network: {name: ethernet-1, message_bytes: 100000000}}}
"""


def network_of(scenario: fred.Scenario, run: str = "allreduce-sgd") -> Network:
    network = scenario.runs[run].cluster.network
    assert network is not None
    return network


def scenario(network: Any) -> fred.Scenario:
    cluster = {"workers": 4, "compute": {"name": "constant", "seconds": 0.1}, "network": network}
    return fred.scenario(cluster=cluster, algorithm={"name": "allreduce-sgd", "learning_rate": 0.1}, stop={"updates": 4})


@pytest.mark.parametrize("name", PRESETS)
def test_an_option_that_equals_the_class_default_stays_beside_a_preset(name):
    """It stays when a run validates its scenario again, and when it is written in full, or without defaults."""
    for option, field in Network.model_fields.items():
        network = Network(**{"name": name, option: field.default}) if option != "name" else Network(name=name)
        assert getattr(network, option) == (name if option == "name" else field.default)
        assert revalidated(network) == network, option
        for shortened in (True, False):
            settings = json.loads(network.model_dump_json(exclude_defaults=shortened))
            assert Network.model_validate(settings) == network, option


def test_a_scenario_with_a_preset_is_short_and_read_again_as_it_was(tmp_path):
    given = scenario({"name": "ethernet-25", "buckets": 1, "message_bytes": SIZE})
    assert "network: {name: ethernet-25, message_bytes: 100000000, buckets: 1}" in given.to_yaml()
    (tmp_path / "mine.yaml").write_text(given.to_yaml())
    read = fred.load(tmp_path / "mine.yaml")
    assert network_of(read) == network_of(given)
    ends = [fred.run(settings).summary["virtual_seconds"][0] for settings in (given, read)]
    # Four steps of .1 s, each with an allreduce at 1.011 times the bytes, four latencies, and 58 % of 25 Gbit/s.
    assert ends == pytest.approx([4 * (0.1 + 1.5 * 1.011 * SIZE / (0.58 * 3.125e9) + 4 * 5e-5)] * 2, rel=1e-3)


def test_another_preset_in_replace_or_in_a_sweep_is_another_network():
    given = scenario({"name": "ethernet-25", "message_bytes": SIZE})
    assert network_of(given.replace({"cluster.network.name": "ethernet-10"})) == Network(name="ethernet-10", message_bytes=SIZE)
    points = fred.run(given.replace(sweep={"over": {"cluster.network.name": ["ethernet-1", "ethernet-10"]}})).summary
    assert points["virtual_seconds"][0] > 1.5 * points["virtual_seconds"][1]


def test_a_name_alone_gets_options_in_runs_and_on_the_command_line(tmp_path):
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    read = fred.load(tmp_path / "mine.yaml")
    expected = {"small": ("ethernet-25", 1000), "large": ("ethernet-25", SIZE), "slow": ("ethernet-1", SIZE)}
    assert {run: network_of(read, run) for run in read.runs} == {
        run: Network(name=name, message_bytes=size) for run, (name, size) in expected.items()
    }
    command = "run", tmp_path / "mine.yaml", "--only", "slow", "--no-report", "-o", tmp_path / "out"
    assert fred_command(*command, "--set", "cluster.network.buckets=2").code == 0


def test_parts_of_at_most_25_mib_are_allreduced_one_by_one():
    assert [Network(name="ethernet-10").bucket_count(size) for size in (0, 25 * 2**20, 25 * 2**20 + 1, 2**30)] == [1, 1, 2, 41]
    assert Network(buckets=3).bucket_count(2**30) == 3


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("ethernet-2", r"unknown preset 'ethernet-2'; did you mean `ethernet-25`\?; known: ethernet-1, "),
        ({"name": ["a"]}, r"unknown preset \['a'\]"),
        ({"name": "internet", "regions": {"bandwidth": [[1e6]]}}, "leave out `name: internet`"),
    ],
)
def test_presets_that_do_not_fit_are_refused_with_a_cure(network, message):
    with pytest.raises(fred.FredError, match=message):
        scenario(network)


def test_what_a_preset_says_gives_way_to_options_that_exclude_it():
    apart = Network(name="ethernet-25", upload=1e8, download=2e8)
    assert (apart.bandwidth, apart.efficiency) == (None, 0.58)
    assert Network(name="internet", sharing="queue").window is None


def test_all_presets_or_one_are_listed_with_their_errors():
    everything = fred_command("list", "presets").out
    assert all(f"  {name} " in everything and preset.error in everything for name, preset in PRESETS.items())
    assert PRESETS["ethernet-25"].error in fred_command("list", "presets", "ethernet-25").out
    assert "did you mean `ethernet-25`" in refusal("list", "presets", "ethernet-26")
