"""The tables that a scenario names are read by their own columns, units and dates, and so are the records of tools."""

import ast
import contextlib
import json
import pickle
import re
import shlex
import subprocess
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fred
from fred.base.errors import FredError
from fred.cluster.devices import Devices
from fred.cluster.failures import Failures
from fred.cluster.prices import PricedWorkers
from fred.cluster.recorded import Empirical
from fred.cluster.regions import Regions
from fred.cluster.sessions import Sessions

FIRST = datetime(2026, 2, 1, 1, 11, 40, tzinfo=UTC)
CHECKPOINT = {"every_seconds": 600}


def iso(seconds: float, form: str = "%Y-%m-%dT%H:%M:%S") -> str:
    return (FIRST + timedelta(seconds=seconds)).strftime(form)


def write(path: Path, text: str | None) -> None:
    if text is not None:
        path.write_text(text)


def failures_in(path: Path, text: str | None, **options: Any) -> Any:
    write(path, text)
    return Failures.model_validate({"file": str(path), "checkpoint": CHECKPOINT, **options}).recorded


def sessions_in(path: Path, text: str | None, **options: Any) -> Sessions:
    write(path, text)
    return Sessions.model_validate({"file": str(path), **options})


def steps_in(path: Path, text: str | None, **options: Any) -> Any:
    write(path, text)
    return PricedWorkers.model_validate({"per_hour": str(path), **options}).per_hour


def run(command: str, folder: Path) -> None:
    """Run a printed command as the shell does; Python's in this process, which has loaded pandas."""
    program, *words = shlex.split(command)
    if program != "python":
        subprocess.run(command, shell=True, check=True, cwd=folder)
        return
    flag, code = words
    assert flag == "-c" and not {*code} & {*"$`!\\"}  # which the shell would replace
    with contextlib.chdir(folder):
        exec(code, {})


FAILURES = [("b", 0, 900), ("a", 4000, 4600), ("b", 9000, 9100)]
WAYS = {
    "seconds": "worker,down,up\n" + "".join(f"{'ba'.index(name)},{down},{up}\n" for name, down, up in FAILURES),
    "names": "worker,down,up\n" + "".join(f"{name},{down},{up}\n" for name, down, up in FAILURES),
    "dates": "worker,down,up\n" + "".join(f"{name},{iso(down)}Z,{iso(up)}Z\n" for name, down, up in FAILURES),
    "unix": "Host;failedAt;recovered_at\n"
    + "".join(f"{name};{FIRST.timestamp() + down:.0f};{FIRST.timestamp() + up:.0f}\n" for name, down, up in FAILURES),
    "American dates": "node,Start Time,End Time\n"
    + "".join(f"{name},{iso(down, '%m/15/%Y %H:%M:%S')},{iso(up, '%m/15/%Y %H:%M:%S')}\n" for name, down, up in FAILURES),
    "units": "worker,down_ms,up (min)\n" + "".join(f"{name},{down * 1000},{up / 60!r}\n" for name, down, up in FAILURES),
    "durations": "worker,down,duration\n" + "".join(f"{name},{down} s,{(up - down) / 60!r} min\n" for name, down, up in FAILURES),
    "JSON": json.dumps([{"machine": name, "down": iso(down), "up": iso(up)} for name, down, up in FAILURES]),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_the_same_record_in_seconds_dates_and_names_gives_the_same_schedule(tmp_path):
    digests = set()
    for way, text in WAYS.items():
        (tmp_path / f"{way}.csv").write_text(text)
        scenario = fred.scenario(
            cluster={
                "workers": 2,
                "compute": {"name": "constant", "seconds": 60.0},
                "failures": {"file": str(tmp_path / f"{way}.csv"), "checkpoint": CHECKPOINT},
            },
            algorithm={"name": "ssgd", "learning_rate": 0.1},
            stop={"seconds": 12000},
        )
        digests.add(fred.run(scenario).outcome("ssgd").schedule_digest)
    assert len(digests) == 1


class TestDates:
    def test_they_count_from_the_date_that_the_scenario_names(self, tmp_path):
        text = f"worker,down,up\n0,{iso(-700)},{iso(-600)}\n0,{iso(-60)},{iso(60)}\n1,{iso(3600)},\n"
        with pytest.warns(UserWarning, match="1 rows end before the run begins, and are left out"):
            rows = failures_in(tmp_path / "f.csv", text, **{"from": FIRST})
        assert rows == ((0, 0, 60), (1, 3600, 9e9)), "an open interval lasts to the end of all runs"
        with pytest.warns(UserWarning, match=r"times count from 2026-02-01 01:00:00, the first in the record; .*`from: DATE`"):
            assert failures_in(tmp_path / "f.csv", text)[2][1] == 4300

    def test_a_begin_that_does_not_fit_is_refused(self, tmp_path):
        for text, begin, message in (
            ("worker,down,up\n0,1,2\n", "2026-02-01", "times `from` a date, but they are numbers: leave `from` out"),
            (WAYS["dates"], "2027-01-01", "all 3 rows end before the run begins: give an earlier date as `from`"),
            (WAYS["dates"], "soon", "`from` is 'soon'; expected a date, such as 2026-02-01"),
        ):
            with pytest.raises((FredError, ValueError), match=message):
                failures_in(tmp_path / "f.csv", text, **{"from": begin})

    @pytest.mark.filterwarnings("ignore")
    def test_a_manifest_has_the_times_in_seconds(self, tmp_path):
        (tmp_path / "f.csv").write_text(WAYS["dates"])
        job = Failures.model_validate({"file": str(tmp_path / "f.csv"), "checkpoint": CHECKPOINT, "from": "2026-02-01"})
        dumped = job.model_dump(mode="json")
        assert dumped["recorded"][0] == [0, 4300, 5200] and "from" not in dumped
        assert Failures.model_validate(dumped) == job

    def test_times_of_day_and_mixtures_are_refused(self, tmp_path):
        for row, message in (
            ("0,10:54,11:00", "'10:54' in column `down` may be hours and minutes, or minutes and seconds"),
            ("0,6/7/2025 10:00,6/8/2025 11:00", "day and month can be told apart.*if days come first, `python"),
            ("0,2026-02-01,90", "expected a date and a time|others are dates"),
            ("0,-5,90", "expected a time from 0 s on in column `down`; found -5"),
        ):
            with pytest.raises((FredError, ValueError), match=message):
                failures_in(tmp_path / "f.csv", f"worker,down,up\n{row}\n")

    @pytest.mark.filterwarnings("ignore")
    def test_the_command_for_unclear_dates_helps(self, tmp_path):
        with pytest.raises(ValueError, match="told apart") as error:
            failures_in(
                tmp_path / "f.csv", "worker,down,up\n0,6/7/2025 10:00,6/7/2025 11:00\n0,7/7/2025 10:00,7/7/2025 11:00\n"
            )
        command = str(error.value).split("come first, `python ")[1].split("`")[0]
        run(f"python {command}", tmp_path)
        assert failures_in(tmp_path / "2.csv", (tmp_path / "f-2.csv").read_text())[1] == (0, 86400, 90000)


class TestColumns:
    def test_unknown_ones_are_refused_with_the_nearest_and_a_command_that_helps(self, tmp_path):
        for text, message in (
            ("speed,uplaod\n1,1e6\n", "`uplaod`; did you mean `upload`?"),
            ("speed,upload_furlongs\n1,1e6\n", "`upload_furlongs`, whose `furlongs` is no unit of `upload`; expected"),
            ("speed,cores\n1,8\n", "`cores`, which nothing reads; expected speed, upload, download"),
        ):
            (tmp_path / "d.csv").write_text(text)
            with pytest.raises(FredError) as error:
                Devices(file=tmp_path / "d.csv")
            assert message in str(error.value)
        command = str(error.value).split("leave it out: `python ")[1].rstrip("`")
        run(f"python {command}", tmp_path)
        assert Devices(file=tmp_path / "d-2.csv").kinds == Devices(kinds=[{"speed": 1.0}]).kinds

    @pytest.mark.filterwarnings("ignore")
    def test_no_command_drops_a_column_that_may_be_a_measurement(self, tmp_path):
        for text, kinds in (
            ("speed,uplaod,downlod_mbps\n1,1000000,80\n", [{"speed": 1, "upload": 1e6, "download": 1e7}]),
            ("speed,UPLOAD_MBPS\n1,8\n", [{"speed": 1, "upload": 1e6}]),
            ("tile,avg_d_kbps,avg_u_kbps,avg_lat_ms\nx,80000,8000,9\n", [{"upload": 1e6, "download": 1e7}]),
            (
                "Device,Chip,Inference (ms),Score\na,x,4,9\nb,y,10,9\nc,z,40,9\n",
                [{"speed": 2.5}, {"speed": 1}, {"speed": 0.25}],
            ),
            ("speed,upload\n1,8 Mbit/s\n2,\n", [{"speed": 1, "upload": 1e6}]),
        ):
            (tmp_path / "d.csv").write_text(text)
            with pytest.raises(FredError, match="`python ") as error:
                Devices(file=tmp_path / "d.csv")
            run(str(error.value).split("`")[-2], tmp_path)
            assert Devices(file=tmp_path / "d-2.csv").kinds == Devices(kinds=kinds).kinds
        (tmp_path / "d.csv").write_text("device_id;rel_speed;up (Mbit/s)\n1;40%;20,5\n")
        assert Devices(file=tmp_path / "d.csv").kinds == Devices(kinds=[{"speed": 0.4, "upload": 2_562_500}]).kinds

    @pytest.mark.filterwarnings("ignore")
    def test_words_that_change_nothing_may_stand_in_names(self, tmp_path):
        text = "id,host,fail_date,downtime_hours\n7,a,01.02.2026 13:00,1\n7,b,13.02.2026 14:00,0.5\n"
        with pytest.raises(ValueError, match=r"a column `id`, which nothing reads.*leave it out"):
            failures_in(tmp_path / "f.csv", text)
        assert failures_in(tmp_path / "f.csv", text.replace("id,", "").replace("7,", "")) == (
            (0, 0, 3600),
            (1, 1040400, 1042200),
        )
        text = "cid,joined_at,left_at\na,2026-02-01T10:00:00+01:00,2026-02-01T09:30:00Z\n"
        assert sessions_in(tmp_path / "s.csv", text).sessions == (((0, 1800),),)
        text = "client_id,start_ts,end_ts\na,1769904000000,1769907600000\n"
        assert sessions_in(tmp_path / "s.csv", text).sessions == (((0, 3600),),)

    def test_each_kind_names_its_own(self, tmp_path):
        for read, example in ((failures_in, "worker,down,up"), (sessions_in, "member,begin,end"), (steps_in, "begin,per_hour")):
            with pytest.raises((FredError, ValueError), match=f"such as {example}"):
                read(tmp_path / "f.txt", "nothing that is a table\nin three lines\nof different length, and more\n")
        with pytest.raises(
            ValueError, match=r"has no column `end`.*expected member, begin, end: .* in s from the begin of the run"
        ):
            sessions_in(tmp_path / "f.csv", "client,start,other\na,1,2\n")

    def test_two_names_of_one_column_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="columns `down` and `failed` may both be `down`"):
            failures_in(tmp_path / "f.csv", "worker,down,failed,up\n0,1,1,2\n")

    def test_numbers_of_machines_beyond_the_cluster_have_a_cure(self, tmp_path):
        (tmp_path / "f.csv").write_text("worker,down,up\n17,1,2\n")
        with pytest.raises(FredError, match="names 17; give `workers: 18`, or a file with names in place of numbers"):
            fred.Cluster(workers=2, failures={"file": tmp_path / "f.csv", "checkpoint": CHECKPOINT})


@pytest.mark.filterwarnings("ignore")
class TestFailures:
    def test_sacct(self, tmp_path):
        text = (
            "JobID|State|NodeList|Start|End\n"
            f"7|NODE_FAIL|gpu-[01-02]|{iso(0)}|{iso(1000)}\n7.batch|CANCELLED|gpu-01|{iso(0)}|{iso(1000)}\n"
            f"8|COMPLETED|gpu-01|{iso(1500)}|{iso(2000)}\n9|CANCELLED by 1000|gpu-03|{iso(50)}|{iso(60)}\n"
            f"10|FAILED|gpu-03|{iso(100)}|{iso(700)}\n11|RUNNING|gpu-03|{iso(900)}|Unknown\n12|PENDING|None assigned|Unknown|Unknown\n"
        )
        assert failures_in(tmp_path / "sacct.txt", text) == ((0, 1000, 1500), (1, 1000, 9e9), (2, 700, 900))
        with pytest.raises(ValueError, match="write it with bars: `sacct -P"):
            failures_in(tmp_path / "cut.txt", "JobID State NodeList\n------ ------ --------\n7 NODE_FAIL gpu-[01-+\n")

    def test_node_events(self, tmp_path):
        text = (
            "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
            f"c||{iso(-9)}|{iso(0)}|||\nc|n1|{iso(0)}|{iso(60)}|DOWN|dead|root\nc|n2|{iso(5)}|{iso(9)}|DRAIN|x|\nc|n2|{iso(90)}|Unknown|DOWN*|y|\n"
        )
        assert failures_in(tmp_path / "events.txt", text) == ((0, 0, 60), (1, 90, 9e9))

    def test_lanl(self, tmp_path):
        text = (
            "System,nodes,nodenum,nodenumz,Prob Started,Prob Fixed,Down Time,Hardware\n"
            "2,49,12,1,6/21/2005 8:54,6/21/2005 9:00,6,Graphics\n2,49,3,2,6/21/2005 11:54,6/21/2005 12:54,60,\n"
        )
        assert failures_in(tmp_path / "lanl.csv", text) == ((0, 0, 360), (1, 10800, 14400))
        with pytest.raises(ValueError, match="has 2 systems, 2, 3; expected one") as error:
            failures_in(tmp_path / "two.csv", text + "3,49,3,2,6/22/2005 11:54,6/22/2005 12:54,60,\n")
        command = str(error.value).split("expected one: `python ")[1].split("`")[0]
        run(f"python {command}", tmp_path)
        assert failures_in(tmp_path / "one.csv", (tmp_path / "two-2.csv").read_text()) == ((0, 0, 360), (1, 10800, 14400))

    def test_failure_trace_archive(self, tmp_path):
        header = "event_id\tcomponent_id\tnode_id\tplatform_id\tnode_name\tevent_type\tevent_start_time\tevent_end_time\tevent_end_reason"
        events = [(7, 1, 0, 1000), (7, 0, 1000, 1500), (9, 1, 200, 700), (9, 0, 700, 900)]
        rows = [f"{i}\t0\t{node}\t1\tn{node}\t{kind}\t{1.1e9 + begin:.1f}\t{1.1e9 + end:.1f}\t0" for i, (node, kind, begin, end) in enumerate(events)]  # fmt: skip
        text = "\n".join([f"# {header}", *rows]) + "\n"
        assert failures_in(tmp_path / "event_trace.tab", text) == ((0, 1000, 1500), (1, 700, 900))
        sessions = sessions_in(tmp_path / "event_trace.tab", text)
        assert sessions.sessions == (((0, 1000),), ((200, 700),)) and sessions.length == 1500
        without_begin = f"9\t0\t9\t1\tn9\t1\t\t{1.1e9 + 950:.1f}\t0\n"  # of the other type
        assert failures_in(tmp_path / "event_trace.tab", text + without_begin) == ((0, 1000, 1500), (1, 700, 900))

    def test_gcloud(self, tmp_path):
        target = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/"
        operations = [
            {"operationType": kind, "targetLink": target + name, "insertTime": iso(time, "%Y-%m-%dT%H:%M:%S.500-08:00")}
            for kind, name, time in (
                ("compute.instances.preempted", "vm-1", 900),
                ("insert", "vm-1", 0),
                ("start", "vm-1", 1200),
                ("compute.instances.preempted", "vm-0", 2000),
            )
        ]
        assert failures_in(tmp_path / "o.json", json.dumps(operations)) == ((0, 900, 1200), (1, 2000, 9e9))
        pending = {"operationType": "delete", "targetLink": target + "vm-0"}
        assert failures_in(tmp_path / "o.json", json.dumps([pending, *operations])) == ((0, 900, 1200), (1, 2000, 9e9))

    def test_azure(self, tmp_path):
        def answer(number: int, kind: str, machine: str, time: str, length: int) -> str:
            event = {
                "EventId": f"C1BF-{number}",
                "EventStatus": "Scheduled",
                "EventType": kind,
                "ResourceType": "VirtualMachine",
            }
            details = {"Resources": [machine], "NotBefore": time, "EventSource": "Platform", "DurationInSeconds": length}
            return json.dumps({"DocumentIncarnation": number, "Events": [event | details]}, indent=number)

        first = answer(1, "Preempt", "vm-spot", "Tue, 09 Aug 2022 17:07:32 GMT", -1)
        answers = [
            first,
            answer(2, "Freeze", "vm-2", "2022-08-09T17:08:00Z", 5),
            answer(3, "Reboot", "vm-2", "2022-08-09T17:17:32Z", 60),
        ]
        times = ((0, 0, 9e9), (1, 600, 660))
        assert failures_in(tmp_path / "events.json", "\n".join([answers[0], *answers])) == times
        assert failures_in(tmp_path / "list.json", f"[{', '.join(answers)}]") == times
        dated = "".join(f"2022-08-09 17:00:0{i} {' '.join(answer.split())}\n" for i, answer in enumerate(answers))
        assert failures_in(tmp_path / "poll.log", dated) == times

    def test_kubernetes(self, tmp_path):
        """The machine is the node of the event, not the event; of a repeated event, the first and the last time count."""
        events = [
            ("Node", "w1", "NodeNotReady", 0, 9000),
            ("Node", "w1", "NodeReady", 1200, 9300),
            ("Node", "w2", "NodeNotReady", 7200, 7200),
            ("Node", "w2", "NodeReady", 7500, 7500),
            ("Node", "w3", "RegisteredNode", 10, 10),
            ("Pod", "w3", "NodeNotReady", 20, 20),
        ]
        items = [
            {
                "metadata": {"name": f"{name}.{i}", "creationTimestamp": "2027-01-01T00:00:00Z"},
                "involvedObject": {"kind": kind, "name": name},
                "reason": reason,
                "firstTimestamp": f"{iso(first)}Z",
                "lastTimestamp": f"{iso(last)}Z",
                "count": 1 + (first < last),
            }
            for i, (kind, name, reason, first, last) in enumerate(events)
        ]
        read = failures_in(tmp_path / "e.json", json.dumps({"kind": "List", "items": items}))
        assert sorted(read) == [(0, 0, 1200), (0, 9000, 9300), (1, 7200, 7500)]
        with pytest.raises(
            ValueError, match=r"no event of a node is NodeNotReady.*it has RegisteredNode, NodeNotReady; .*custom-col"
        ):
            failures_in(tmp_path / "e.json", json.dumps({"items": items[4:]}))

    def test_prometheus(self, tmp_path):
        def answer(*series: tuple[dict[str, str], str]) -> str:
            result = [
                {
                    "metric": {"__name__": "up"} | labels,
                    "values": [[FIRST.timestamp() + 60 * i, value] for i, value in enumerate(values)],
                }
                for labels, values in series
            ]
            return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})

        machines = [{"instance": f"gpu-{i}:9100", "job": "node"} for i in range(3)]
        values = ("1110011111", "1111111111", "1111111001")
        read = failures_in(tmp_path / "up.json", answer(*zip(machines, values, strict=True)))
        assert read == ((0, 180, 300), (1, 420, 540))
        text = answer((machines[0], "011001"), (machines[1], "111111"))
        assert sessions_in(tmp_path / "up.json", text).sessions == (((60, 180),), ((0, 300),))
        later = sessions_in(tmp_path / "up.json", text, **{"from": FIRST + timedelta(seconds=100)})
        assert later.sessions == (((0, 80),), ((0, 200),)) and later.length == 200
        for series, message in (
            (
                [(machines[0], "10"), (machines[0] | {"job": "gpu"}, "11")],
                "2 series of the machine gpu-0:9100, which differ in job",
            ),
            ([({"job": "node"}, "10")], "no label names the machine"),
            ([(machines[0], "17")], "values of up such as 7; expected 1 or 0, as from `/api/v1/query_range"),
            ([(machines[0], "11")], "all 1 machines are up at all times"),
        ):
            with pytest.raises(ValueError, match=message):
                failures_in(tmp_path / "up.json", answer(*series))

    def test_google(self, tmp_path):
        rows = [(0, 5, 0), (0, 6, 0), (3600, 6, 1), (5400, 6, 0), (9000, 5, 2), (12600, 5, 1), (13000, 5, 0)]
        text = "".join(f"{time * 1_000_000},{machine},{event},HofLGzk1Or==,0.5,\n" for time, machine, event in rows)
        assert failures_in(tmp_path / "part-00000-of-00001.csv", text) == ((0, 12600, 13000), (1, 3600, 5400))
        assert sessions_in(tmp_path / "part.csv", text).sessions == (((0, 12600),), ((0, 3600), (5400, 13000)))


@pytest.mark.filterwarnings("ignore")
class TestSessions:
    def test_clients_that_come_and_go(self, tmp_path):
        plato = sessions_in(tmp_path / "p.json", json.dumps({"0": ["off", [50, 90, 200]], "1": ["on", [60, 80, 200]]}))
        assert plato.sessions == (((50, 90),), ((0, 60), (80, 200))) and plato.length == 200
        clients = {
            "1": {"active": [50], "inactive": [90], "finish_time": 200},
            "2": {"active": [80], "inactive": [60], "finish_time": 200},
        }
        assert sessions_in(tmp_path / "f.json", json.dumps(clients)) == plato
        pairs = json.dumps({"0": [[50, 90]], "1": [[0, 60], [80, 200]]})
        assert sessions_in(tmp_path / "pairs.json", pairs).sessions == plato.sessions

    def test_flash(self, tmp_path):
        states = [(0, "screen_on"), (0, "battery_charged_on"), (10, "wifi"), (20, "screen_off"), (50, "4G"), (60, "WIFI"), (70, "80.0%"), (90, "screen_on"), (95, "screen_off"), (99, "battery_okay")]  # fmt: skip
        messages = "\n".join(f"{iso(time, '%Y-%m-%d %H:%M:%S')}\t{state}" for time, state in states)
        read = sessions_in(tmp_path / "guid2data.json", json.dumps({"0": {"model": "A", "messages": messages}}))
        assert read.sessions == (((20, 50), (60, 90), (95, 99)),) and read.length == 99

    def test_open_sessions_last_to_the_end_of_the_record(self, tmp_path):
        read = sessions_in(tmp_path / "s.csv", f"instance,launch_time,terminated\nb,{iso(0)},\na,{iso(60)},{iso(90)}\n")
        assert read.sessions == (((0, 90),), ((60, 90),))

    def test_what_is_neither_a_record_nor_a_table_is_refused(self, tmp_path):
        for text in (
            '{"0": ["away", [1]]}',
            '{"0": ["off", [5, 1]], "1": ["on", []]}',
            "[]",
            "[" * 10_000,
            '{"0": {"inactive": 1}}',
        ):
            with pytest.raises(ValueError, match="member"):
                sessions_in(tmp_path / "s.json", text)


@pytest.mark.filterwarnings("ignore")
class TestPrices:
    def test_aws_prints_the_newest_first(self, tmp_path):
        history = [(7200, 0.9), (3600, 0.8), (0, 1.0)]
        zone = {"AvailabilityZone": "us-east-1a", "InstanceType": "p3.2xlarge", "ProductDescription": "Linux/UNIX"}
        prices = [{**zone, "SpotPrice": f"{price:.6f}", "Timestamp": f"{iso(time)}+00:00"} for time, price in history]
        texts = {
            "json": json.dumps({"SpotPriceHistory": prices}, indent=4),
            "text": "".join("\t".join(["SPOTPRICEHISTORY", *row.values()]) + "\n" for row in prices),
            "csv": pd.DataFrame(prices).to_csv(index=False),
            "plain": "begin,per_hour\n7200,$0.9\n3600,$0.8\n0,$1\n".replace("$", ""),
        }
        for name, text in texts.items():
            assert steps_in(tmp_path / name, text) == ((0, 1.0), (3600, 0.8), (7200, 0.9))
        assert steps_in(tmp_path / "json", texts["json"], **{"from": FIRST + timedelta(seconds=4000)}) == (
            (0, 0.8),
            (3200, 0.9),
        )
        prices[0]["InstanceType"] = "p4d.24xlarge"
        with pytest.raises(
            ValueError,
            match=r"2 values of instance_type, p3.2xlarge, p4d.24xlarge; .* yours in place of p3.2xlarge, in `aws .*--instance-types 'p3.2xlarge'",
        ):
            steps_in(tmp_path / "two.json", json.dumps({"SpotPriceHistory": prices}))

    def test_the_command_for_several_kinds_of_machines_keeps_one_of_each(self, tmp_path):
        """Not one of which the name contains another's, and not the first by the alphabet but the most frequent."""
        names = ("AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")
        prices = [
            ("eu-1a", "p4d.24xlarge", "Linux/UNIX", "9.8", iso(3600)),
            ("eu-1a", "g5.xlarge", "Linux/UNIX", "0.4", iso(1800)),
            ("eu-1b", "p4d.24xlarge", "Linux/UNIX", "11.1", iso(900)),
            ("eu-1a", "p4d.24xlarge", "Linux/UNIX (Amazon VPC)", "8.8", iso(600)),
            ("eu-1a", "p4d.24xlarge", "Linux/UNIX", "9.5", iso(0)),
        ]
        texts = {
            "p.json": json.dumps({"SpotPriceHistory": [dict(zip(names, row, strict=True)) for row in prices]}),
            "p.csv": pd.DataFrame(prices, columns=names).to_csv(index=False),
            "p.txt": "".join("\t".join(["SPOTPRICEHISTORY", *row]) + "\n" for row in prices),
        }
        for name, text in texts.items():
            with pytest.raises(ValueError, match=r"in place of eu-1a, p4d.24xlarge, Linux/UNIX, in `aws") as error:
                steps_in(tmp_path / name, text)
            run(str(error.value).split("`")[-2], tmp_path)
            written = tmp_path / f"p-2{'.txt' if name == 'p.txt' else '.csv'}"
            assert steps_in(written, None) == ((0, 9.5), (3600, 9.8))
            written.unlink()

    def test_spot_traces(self, tmp_path):
        text = json.dumps({"metadata": {"gap_seconds": 300}, "data": [1, 1, 0], "prices": [1.5, 1.5, 2]})
        assert steps_in(tmp_path / "p.json", text) == ((0, 1.5), (600, 2))
        with pytest.raises(ValueError, match="has no prices: give a number as `per_hour`, and the record as `file`"):
            steps_in(tmp_path / "p.json", '{"metadata": {"gap_seconds": 300}, "data": [1]}')


@pytest.mark.filterwarnings("ignore")
class TestDevices:
    def test_units_in_names_and_cells_are_converted(self, tmp_path):
        kinds = Devices(kinds=[{"speed": 1.0, "upload": 625_000.0, "download": 2_500_000.0}]).kinds
        for text in (
            "speed,upload_mbps,download_mbps\n1,5,20\n",
            "model,speed,upload,download\nPixel,1,5 Mbit/s,20Mbps\n",
            "speed,upload_kBps,download (MB/s)\n1,625,2.5\n",
            "speed,upload_gbit_per_s,Download Speed (Mbps)\n1,0.005,20\n",
        ):
            (tmp_path / "d.csv").write_text(text)
            assert Devices(file=tmp_path / "d.csv").kinds == kinds
        for text, message in (
            (
                "speed,upload\n1,5\n",
                "has at most 5 bytes/s; if it is in Mbit/s, name it `upload_mbps`; if it is not, `upload_Bps`",
            ),
            ("speed,Avg UL\n1,5\n", "column `Avg UL` has at most 5 bytes/s"),
            ("avg_speed\n85\n", "`avg_speed`; did you mean `speed`?"),
            ("speed,upload_MBPS\n1,5\n", "`upload_MBPS`, whose `MBPS` is no unit of `upload`; expected"),
            ("speed,upload\n2 s,5000\n", "expected a number, or one with a unit such as x in column `speed`; found '2 s'"),
        ):
            (tmp_path / "d.csv").write_text(text)
            with pytest.raises(FredError) as error:
                Devices(file=tmp_path / "d.csv")
            assert message in str(error.value)
        (tmp_path / "d.csv").write_text("name,speed,upload,download\n-,-,Mbit/s,Mbit/s\nA,1,5,20\n")
        with pytest.raises(FredError, match="a row of units stands below the names") as refused:
            Devices(file=tmp_path / "d.csv")
        run(str(refused.value).split("`")[-2], tmp_path)
        assert Devices(file=tmp_path / "d-2.csv").kinds == kinds
        (tmp_path / "d.csv").write_text("name,gflops\nA,100\nB,50\nC,200\n")
        with pytest.raises(FredError, match="`gflops` is no `speed`, which is relative; divide it by that of the median"):
            Devices(file=tmp_path / "d.csv")
        (tmp_path / "d.csv").write_text("upload_Bps\n5\n")
        assert Devices(file=tmp_path / "d.csv").kinds[0].upload == 5

    def test_fedscale(self, tmp_path):
        clients = {
            str(i): {"computation": ms, "communication": rate} for i, (ms, rate) in enumerate([(50, 8), (100, 80), (200, 800)])
        }
        (tmp_path / "d.json").write_text(json.dumps(clients))
        pd.DataFrame(clients).T.to_csv(tmp_path / "d.csv")
        expected = Devices(
            kinds=[{"speed": s, "upload": w, "download": w} for s, w in ((2.0, 1e3), (1.0, 1e4), (0.5, 1e5))]
        ).kinds
        assert Devices(file=tmp_path / "d.json").kinds == Devices(file=tmp_path / "d.csv").kinds == expected
        (tmp_path / "capacity").write_bytes(pickle.dumps({int(name): values for name, values in clients.items()}))
        with pytest.raises(FredError, match="it is a file of pickle; write it as JSON") as error:
            Devices(file=tmp_path / "capacity")
        command = str(error.value).split("write it as JSON: `python ")[1].rstrip("`")
        run(f"python {command}", tmp_path)
        assert Devices(file=tmp_path / "capacity.json").kinds == expected


class TestOthers:
    def test_durations_have_the_unit_of_their_name_or_cells(self, tmp_path):
        for text, column in (
            ("worker,delay_ms\n0,250\n1,500\n", "delay_ms"),
            ("ms\n250\n500\n", "ms"),
            ("delay\n250 ms\n500 ms\n", "delay"),
            ("worker,delay\n[-],[ms]\n0,250\n1,500\n", "delay"),
            ("delay_ms\n0.25 s\n0.5 s\n", "delay_ms"),
        ):
            (tmp_path / "d.csv").write_text(text)
            assert Empirical.model_validate({"csv": str(tmp_path / "d.csv"), "column": column}).values == (0.25, 0.5)

    def test_links_are_a_square_or_pairs_with_units(self, tmp_path):
        expected = Regions(bandwidth=[[1.25e9, 1.25e8], [1.25e8, 1.25e9]], latency=[[0.0, 0.035], [0.035, 0.0]])
        for bandwidth, latency in (
            ("1.25e9,1.25e8\n1.25e8,1.25e9\n", "0,0.035\n0.035,0\n"),
            (",eu,us\neu,10 Gbit/s,1 Gbit/s\nus,1 Gbit/s,10 Gbit/s\n", "\teu\tus\neu\t-\t35 ms\nus\t35 ms\t-\n"),
            ("from,to,bandwidth_mbps\neu,eu,10000\neu,us,1000\nus,us,10000\n", "src,dst,latency (ms)\neu,us,35\n"),
        ):
            (tmp_path / "b.csv").write_text(bandwidth)
            (tmp_path / "l.csv").write_text(latency)
            assert Regions(bandwidth=tmp_path / "b.csv", latency=tmp_path / "l.csv") == expected
        for name, text, message in (
            ("latency", "0,35\n35,0\n", "a latency of 35 s is unlikely: write units in the cells, such as 35 ms"),
            ("bandwidth", "10,1\n1,10\n", "a bandwidth of 1 bytes/s is unlikely"),
            ("bandwidth", ",eu,us\nus,1e9,1e8\neu,1e8,1e9\n", "expected the row of 'eu', as above"),
            ("bandwidth", "from,to,bandwidth\neu,us,1e9\n", "no bandwidth from region 0 to region 0"),
        ):
            (tmp_path / "x.csv").write_text(text)
            with pytest.raises(FredError, match=message):
                Regions(**{"bandwidth": [[1e9, 1e8], [1e8, 1e9]], name: str(tmp_path / "x.csv")})


def test_a_record_without_an_event_in_the_run_is_reported():
    cluster = {"workers": 2, "compute": {"name": "constant", "seconds": 1.0}}
    failures = {"recorded": [[0, 1000, 1100]], "checkpoint": CHECKPOINT}
    sessions = [{"name": "sessions", "sessions": [[[0, 500]]], "length": 500}]
    for options, event in (({"failures": failures}, "failure"), ({"faults": sessions}, "begin or end of a session")):
        for seconds, is_reported in ((20, True), (1200, False)):
            scenario = fred.scenario(
                cluster=cluster | options, algorithm={"name": "asgd", "learning_rate": 0.1}, stop={"seconds": seconds}
            )
            notes = [note for note in fred.run(scenario).notes if f"no recorded {event} lies within the run" in note]
            assert bool(notes) == is_reported


def test_plain_tables_are_read_without_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert failures_in(tmp_path / "f.csv", "worker,down,up\n1,5,9\n0,1,2\n") == ((1, 5, 9), (0, 1, 2))
        assert np.shape(sessions_in(tmp_path / "s.csv", "member,begin,end\nb,0,60\n").sessions) == (1, 1, 2)
        assert steps_in(tmp_path / "p.csv", "begin,per_hour\n0,1\n60,2\n") == ((0, 1), (60, 2))


def sessions_of(path: Path, text: str | None) -> Any:
    return sessions_in(path, text).sessions


def devices_in(path: Path, text: str | None) -> Any:
    write(path, text)
    return Devices(file=path).kinds


CURED: dict[str, tuple[Any, str]] = {
    "further columns": (
        failures_in,
        "Incident,Node,Failure Time,Recovery Time,Cause\n1,a,2026-03-01 02:00,2026-03-01 02:30,ECC\n",
    ),
    "evictions.csv": (failures_in, "TimeGenerated,VM,EventType\n2026-03-01T02:00:00Z,vm0,Preempt\n"),
    "notices.json": (
        failures_in,
        json.dumps({"Records": [{"time": "2026-02-01T00:00:00Z", "detail": {"instance-id": "i-1", "action": "stop"}}]}),
    ),
    "lines.jsonl": (failures_in, '{"host": "a", "lost": "2026-02-01T00:00:00Z", "why": "x"}\n' * 2),
    "zones.txt": (
        steps_in,
        "".join(f"SPOTPRICEHISTORY\tus-1{z}\tp3\tLinux\t0.{h}\t2026-02-01T0{h}:00:00Z\n" for h in (5, 3) for z in "ab"),
    ),
    "zones.json": (
        steps_in,
        json.dumps(
            {
                "SpotPriceHistory": [
                    {"AvailabilityZone": f"us-1{z}", "SpotPrice": f"0.{h}", "Timestamp": f"2026-02-01T0{h}:00:00Z"}
                    for h in (5, 3)
                    for z in "ab"
                ]
            }
        ),
    ),
    "azure.json": (
        steps_in,
        json.dumps(
            {
                "Items": [
                    {"retailPrice": 1.2, "effectiveStartDate": f"2026-02-01T0{h}:00:00Z", "meterName": "A100 Spot"}
                    for h in (0, 6)
                ]
            }
        ),
    ),
    "events.txt": (
        failures_in,
        "MACHINE   TIME                  STATE\na1   2026-02-01T01:00:00Z   NodeNotReady\na1   2026-02-01T02:00:00Z   NodeReady\n"
        "a1   2026-02-01T03:00:00Z   Rebooted\n",
    ),
    "own-clock.csv": (failures_in, "node_id,event_time,event_type\na,8.5,fault_start\na,9,fault_end\n"),
    "restarts.csv": (failures_in, "timestamp,reason\n2026-02-01 04:00,NCCL timeout\n2026-02-01 09:30,ECC error\n"),
    "benchmark.csv": (
        devices_in,
        "Device,Chip,Inference Time (ms),Upload (Mbps),Download (Mbps)\nä,x,40.5,20.5,80\nb,y,160.5,5.1,20\nc,z,80.5,12.5,50\n",
    ),
    "gap.csv": (sessions_of, "time,a,b\n0,1,0\n60,,1\n"),
    "header.txt": (steps_in, "2026-02-01T05:00:00+00:00\t0.9\n2026-02-01T01:00:00+00:00\t0.8\n"),
    "prices": (steps_in, "Effective Date,SKU,Price (USD/hour)\n2026-01-01,A100,1.2\n2026-02-01,A100,1.1\n"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CURED)
def test_the_command_in_a_refusal_makes_the_file_readable(name, tmp_path):
    read, text = CURED[name]
    with pytest.raises((FredError, ValueError), match=r"`(python -c|awk|sed) ") as error:
        read(tmp_path / name, text)
    run(str(error.value).split("`")[-2], tmp_path)
    cured_file = next((path for path in tmp_path.iterdir() if path.stem.endswith("-2")), tmp_path / name)
    assert len(read(cured_file.rename(tmp_path / "cured"), None)) >= 1


SPELLINGS = {
    "semicolons and decimal commas": lambda text: re.sub(r"(?<=\d)\.(?=\d)", ",", text.replace(",", ";")).encode("utf-16"),
    "tabs and decimal commas": lambda text: re.sub(r"(?<=\d)\.(?=\d)", ",", text.replace(",", "\t")).encode("cp1252"),
    "a title above": lambda text: f"Export of today\n\n{text}".encode("utf-16"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", [name for name in CURED if name.endswith(".csv") and name != "gap.csv"])
def test_the_command_in_a_refusal_knows_delimiter_decimal_mark_encoding_and_place_of_the_header(name, spelling, tmp_path):
    read, text = CURED[name]
    answers = []
    for folder, data in (("plain", text.encode()), ("spelled", SPELLINGS[spelling](text))):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / name
        path.write_bytes(data)
        with pytest.raises((FredError, ValueError), match=r"`python -c ") as error:
            read(path, None)
        run(str(error.value).split("`")[-2], path.parent)
        answers.append(read(path.with_stem(f"{path.stem}-2"), None))
    assert answers[0] == answers[1]


CHOICES: dict[str, tuple[Any, str, str, str]] = {
    "states.csv": (
        failures_in,
        "node,down,up,why,state\na,0,5,x y,DRAINED\nb,10,15,u v,DOWN\nc,20,25,r s,DRAINED\nd,30,35,p q,DOWN\n",
        "column `state` has the values DRAINED, DOWN: keep the rows you mean, such as those of DOWN: ",
        "node,down,up\nb,10,15\nd,30,35\n",
    ),
    "zones.csv": (
        sessions_in,
        "client,begin,end,placement\na,0,5,eu\nb,10,15,us\nc,20,25,us\n",
        "column `placement` has the values eu, us: keep the rows you mean, such as those of us: ",
        "client,begin,end\nb,10,15\nc,20,25\n",
    ),
    "products.csv": (
        steps_in,
        "date,price,skuName,zone\n2026-02-01,1.5,A,z1\n2026-02-01,3.5,B,z1\n2026-02-03,1.25,A,z1\n2026-02-03,9,A,z2\n",
        "column `skuName` has the values A, B; `zone` has the values z1, z2: keep the rows you mean, such as those of A, z1: ",
        "date,price\n2026-02-01,1.5\n2026-02-03,1.25\n",
    ),
    "renamed.csv": (
        failures_in,
        "node,down,ready again,why\n"
        + "".join(
            f"{n},2026-02-0{d} 01:00,2026-02-0{d} 02:00,{why}\n"
            for n, d, why in (("a", 1, "DRAIN"), ("b", 3, "ECC"), ("c", 5, "ECC"))
        ),
        "if `ready again` is `up`: ",
        "node,down,up\nb,2026-02-03 01:00,2026-02-03 02:00\nc,2026-02-05 01:00,2026-02-05 02:00\n",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHOICES)
def test_no_command_drops_a_column_that_tells_which_rows_are_meant(name, tmp_path):
    """Each command is followed to the letter: the reading is that of the rows with one value."""
    read, text, message, expected = CHOICES[name]
    path, messages = tmp_path / name, list[str]()
    path.write_text(text)
    answer = None
    while answer is None:
        try:
            answer = read(path, None)
        except ValueError as error:
            messages.append(str(error))
            run(next(part for part in reversed(messages[-1].split("`")) if part.startswith("python -c")), tmp_path)
            path = path.with_stem(f"{path.stem}-2")
    assert message in messages[0]
    assert answer == read(tmp_path / "expected.csv", expected)


def test_a_price_list_of_several_products_is_refused_with_the_numbers_to_write(tmp_path):
    products = [("ND96 A100", 27.197, "2020-11-01"), ("ND96 A100 Spot", 5.44, "2024-03-01")]
    items = [{"retailPrice": price, "effectiveStartDate": day, "skuName": name} for name, price, day in products]
    with pytest.raises(ValueError, match=r"`per_hour: 27.197` of ND96 A100, `per_hour: 5.44` of ND96 A100 Spot"):
        steps_in(tmp_path / "azure.json", json.dumps({"Items": items}))


@pytest.mark.filterwarnings("ignore")
def test_a_table_of_jobs_has_failures_only_with_the_machines_of_the_jobs(tmp_path):
    jobs = [("NODE_FAIL", 0, 1000), ("COMPLETED", 100, 200), ("NODE_FAIL", 2000, 3000), ("COMPLETED", 4000, 5000)]
    rows: list[tuple[str, ...]] = [("job_id", "user", "state", "start_time", "end_time")]
    rows += [(f"j{i}", "u1", state, iso(begin), iso(end)) for i, (state, begin, end) in enumerate(jobs)]
    with pytest.raises(ValueError, match=r"a table of jobs, without their machines; .*sacct -P --format=JobID,State,NodeList"):
        failures_in(tmp_path / "jobs.csv", "".join(",".join(row) + "\n" for row in rows))
    rows = [(*row, "node_list" if i == 0 else "gpu-1") for i, row in enumerate(rows)]
    read = failures_in(tmp_path / "jobs.csv", "".join(",".join(row) + "\n" for row in rows))
    assert read == ((0, 1000, 2000), (0, 3000, 4000))


def test_counts_of_failures_become_causes_that_give_these_counts(tmp_path, capsys):
    text = "Component,Category,Interruption Count,% of Interruptions\nGPU,x y,148,67.3%\nHBM,x y,72,32.7%\nFan,z,0,0%\n"
    with pytest.raises(
        ValueError, match=r"counts have no times: give `causes` in place of `file`.*is `mean_up: 17513514`"
    ) as error:
        failures_in(tmp_path / "f.csv", text)
    run(str(error.value).split("`")[-2], tmp_path)
    causes = ast.literal_eval(capsys.readouterr().out.removeprefix("causes:").strip())
    failures = Failures.model_validate({"causes": causes, "checkpoint": CHECKPOINT})
    counts = [1000 * 30 * 86400 / cause.times.mean for cause in failures.causes]
    assert counts == pytest.approx([148, 72])


def test_a_command_that_pandas_could_not_run_is_not_printed(tmp_path):
    """A file can neither name a column so that the shell or Python runs it, nor hide from pandas what FRED reads."""
    for header in ("co$(touch x)res", "it's", "a`b", "cores\\"):
        (tmp_path / "d.csv").write_text(f"speed,{header}\n1,8\n2,9\n")
        with pytest.raises(FredError, match="leave it out: by hand, because pandas cannot read") as error:
            Devices(file=tmp_path / "d.csv")
        assert "python -c" not in str(error.value)
    (tmp_path / "d.csv").write_text("speed,cores\n1,8\n# restarted\n2,9\n")
    with pytest.raises(FredError, match="leave it out: by hand"):
        Devices(file=tmp_path / "d.csv")


@pytest.mark.filterwarnings("ignore")
def test_a_column_for_each_client_is_availability(tmp_path):
    text = "time,c0,c1,c2\n0,1,0,0\n300,1,1,0\n600,0,1,0\n"
    read = sessions_in(tmp_path / "a.csv", text)
    assert read.sessions == (((0, 600),), ((300, 900),)) and read.length == 900
    dated = text.replace("\n0,", f"\n{iso(0)},").replace("\n300,", f"\n{iso(300)},").replace("\n600,", f"\n{iso(600)},")
    assert sessions_in(tmp_path / "d.csv", dated) == read
    with pytest.raises(ValueError, match=r"a.csv:3: expected increasing times"):
        sessions_in(tmp_path / "a.csv", text.replace("300", "0"))


def test_slurms_output_for_the_screen_is_refused_with_the_command_that_writes_bars(tmp_path):
    text = "   Cluster  NodeName           TimeStart             TimeEnd  State\n---------- --------- ------------------- ------- -----\n"
    text += "       hpc    gpu-01 2026-02-01T02:00:00 2026-02-01T03:00:00  DOWN*\n"
    with pytest.raises(ValueError, match=r"sacctmgr cuts long names; .*`sacctmgr show event -P format=NodeName,TimeStart"):
        failures_in(tmp_path / "events.txt", text)


@pytest.mark.filterwarnings("ignore")
def test_a_log_of_machines_that_go_down_and_come_up_has_the_failures_and_the_sessions(tmp_path):
    """Events come in any order; a second `DOWN` changes nothing, and a machine that is down at the end stays so."""
    changes = [
        (0, "b", "DOWN"),
        (900, "b", "UP"),
        (4000, "a", "DOWN"),
        (4100, "a", "DOWN"),
        (4600, "a", "UP"),
        (9000, "b", "DOWN"),
    ]
    lines = [f"{iso(time)}Z,{name},{state}\n" for time, name, state in reversed(changes)]
    text = "timestamp,host,state\n" + "".join(lines)
    table = f"worker,down,up\nb,{iso(0)},{iso(900)}\na,{iso(4000)},{iso(4600)}\nb,{iso(9000)},\n"
    options = {"from": "2026-02-01"}
    numbers = [
        sorted((down, up) for _, down, up in failures_in(tmp_path / "a.csv", content, **options)) for content in (text, table)
    ]
    assert numbers[0] == numbers[1]
    sessions = sessions_in(tmp_path / "s.csv", text.replace("DOWN", "offline").replace("UP", "online"))
    assert sessions.sessions == (((900, 9000),), ((0, 4000), (4600, 9000)))
    with pytest.raises(ValueError, match="no column `down`"):
        failures_in(tmp_path / "a.csv", text.replace("UP", "reboot"))
    phones = "device_id,ts_ms,event\n" + "".join(
        f"a,{1769904000000 + time},{state}\n" for time, state in ((0, "plugged"), (60_000, "unplugged"))
    )
    assert sessions_in(tmp_path / "s.csv", phones).sessions == (((0, 60),),)


@pytest.mark.filterwarnings("ignore")
def test_two_prices_at_one_time_are_refused_unless_they_are_the_same(tmp_path):
    text = "begin,per_hour\n2026-02-01,1.5\n2026-02-01,3.5\n2026-02-02,1.25\n"
    with pytest.raises(ValueError, match=r"p.csv:3: another price at the same time as in .*p.csv:2, 3.5 and 1.5"):
        steps_in(tmp_path / "p.csv", text)
    assert len(steps_in(tmp_path / "p.csv", text.replace("3.5", "1.5"))) >= 2


@pytest.mark.filterwarnings("ignore")
def test_prices_of_other_periods_and_in_cents_are_converted(tmp_path):
    for header, price in (("price_per_month", 730), ("Price (USD/day)", 24), ("price_cents", 100), ("price_usd", 1)):
        assert steps_in(tmp_path / "p.csv", f"begin,{header}\n0,{price}\n60,{2 * price}\n") == ((0, 1), (60, 2))


def test_markdown_and_a_unit_above_the_names_give_the_same_matrix(tmp_path):
    text = "| One way (ms) | Oslo | Rome |\n| --- | :---: | ---: |\n| **Oslo** |  | 30 |\n| **Rome** | 40 |  |\n"
    (tmp_path / "m.md").write_text(text)
    (tmp_path / "m.csv").write_text("0, .03\n.04, 0\n")
    options = {"bandwidth": [[1e9, 1e8], [1e8, 1e9]]}
    read = [Regions.model_validate({"latency": str(tmp_path / name), **options}).latency or () for name in ("m.md", "m.csv")]
    assert [[row[1 - place] for place, row in enumerate(rows)] for rows in read] == [[0.03, 0.04]] * 2
