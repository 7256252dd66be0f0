"""Devices of workers: speeds and bandwidths from tables, files and distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fred.base.errors import FredError
from fred.cluster.cluster import Cluster
from fred.cluster.devices import Devices
from fred.protocols.allreduce import Allreduce
from fred.protocols.asynchronous import Asynchronous
from fred.schedule.schedule import Verb
from tests.worlds import record

SECOND = {"name": "constant", "seconds": 1.0}
KINDS = [{"speed": 1.0, "upload": 1e3, "download": 4e3}, {"speed": 0.5, "upload": 2e3, "download": 8e3}]


def cluster(devices, sharing: str = "queue", **network) -> Cluster:
    return Cluster(workers=4, compute=SECOND, devices=devices, network={"sharing": sharing, **network})


@pytest.mark.parametrize("sharing", ["queue", "fair"])
def test_a_gradient_takes_the_times_of_its_worker(sharing):
    schedule = record(Asynchronous(), cluster({"kinds": KINDS, "assignment": "in-order"}, sharing), seconds=20.0, sizes=1000)
    pushes = schedule.rows(Verb.PUSH)
    firsts = {worker: pushes[schedule["worker"][pushes] == worker][0] for worker in range(4)}
    pulls = schedule.rows(Verb.PULL)
    for worker, row in firsts.items():
        kind = KINDS[worker % 2]
        down, compute, up = 1000 / kind["download"], 1 / kind["speed"], 1000 / kind["upload"]
        pull = pulls[schedule["worker"][pulls] == worker][0]
        assert schedule["end_ns"][pull] == pytest.approx(down * 1e9, abs=2)
        assert schedule["time_ns"][row] == pytest.approx((down + compute + up) * 1e9, abs=4)


def test_links_without_bandwidths_have_the_networks_and_all_have_its_efficiency():
    given = cluster({"kinds": [{"upload": 1e3}, {}], "assignment": "in-order"}, bandwidth=5e3, efficiency=0.5)
    assert given.bandwidths("upload") == [500.0, 2500.0, 500.0, 2500.0] and given.bandwidths("download") == [2500.0] * 4
    assert Cluster(workers=2).bandwidths("upload") == [None, None]


@given(workers=st.integers(1, 40))
def test_more_workers_leave_the_devices_of_the_others_as_they_are(workers):
    laws = {name: {"name": "lognormal", "median": 2.0, "sigma": 1.0} for name in ("speed", "upload")}
    for devices in (Devices(kinds=KINDS), Devices(**laws)):
        for few, many in ((workers, workers + 1), (workers, 99)):
            assert devices.speeds(few) == devices.speeds(many)[:few]
            assert devices.bandwidths("upload", few) == devices.bandwidths("upload", many)[:few]


def test_draws_follow_their_distributions_and_are_independent():
    law = {"name": "lognormal", "median": 2.0, "sigma": 1.0}
    devices = Devices(speed=law, download=law)
    speeds, widths = np.log(devices.speeds(4000)), np.log(np.array(devices.bandwidths("download", 4000), float))
    for drawn in (speeds, widths):
        assert (np.median(drawn), drawn.std()) == (pytest.approx(np.log(2), abs=0.06), pytest.approx(1, rel=0.05))
    assert abs(np.corrcoef(speeds, widths)[0, 1]) < 0.06
    kinds = np.array(Devices(kinds=KINDS).speeds(4000))
    assert (kinds == 1.0).mean() == pytest.approx(0.5, abs=0.04)


def test_a_file_is_the_table_that_it_holds(tmp_path):
    (tmp_path / "phones.csv").write_text("upload,speed\n1000,1\n2000,0.5\n")
    read = Devices(file=tmp_path / "phones.csv")
    assert read == Devices(kinds=[{"speed": 1.0, "upload": 1e3}, {"speed": 0.5, "upload": 2e3}]) and read.file is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "expected some of speed, upload, download"),
        ("speed\n0\n", "expected positive numbers; found 0"),
        ("speed\n", "no devices|no rows|empty"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    (tmp_path / "phones.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        Devices(file=tmp_path / "phones.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": {}}, "expected `kinds`"),
        ({"devices": {"kinds": KINDS, "speed": SECOND}, "network": {}}, "and not both"),
        ({"devices": {"kinds": KINDS}}, "give a `network`, too"),
        ({"devices": {"speed": SECOND}, "speeds": [1.0] * 4}, "give one of `speeds`, `devices`"),
        ({"devices": {"speed": {"name": "constant", "seconds": 0.0}}}, "not positive and finite"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Cluster(workers=4, **options)


def test_a_collective_needs_links_that_messages_share():
    with pytest.raises(FredError, match=r"links alike, or `network: \{sharing: fair\}`"):
        record(Allreduce(), cluster({"kinds": KINDS}), seconds=9.0)
    alike = record(Allreduce(), cluster({"kinds": [{"upload": 1e3, "download": 1e3}]}, "fair"), seconds=9.0)
    usual = record(Allreduce(), Cluster(workers=4, compute=SECOND, network={"sharing": "fair", "bandwidth": 1e3}), seconds=9.0)
    assert alike.digest() == usual.digest()
