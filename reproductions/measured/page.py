"""The page on measured times: its tables and its text."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fred.fitting.communication import NEAR, worst_error
from reproductions.common import table
from reproductions.measured import streams
from reproductions.measured.sources import FOLDER
from reproductions.measured.steps import FORECASTS, ranked

Floats = NDArray[np.float64]
COLUMNS = ("median error", "within 15 %", "worst")


def summary(errors: Floats, fitted: str = "") -> tuple[str, str, str]:
    """Return the median error, the share within 15 %, and the largest error; dashes if as many numbers were fitted.

    Args:
        errors: predicted / measured - 1.
        fitted: names of the fitted numbers, separated by semicolons, or `nothing`.

    >>> summary(np.array([-0.1, 0.3, 0.02]))
    ('10.0%', '67%', '+30%')
    """
    if len(errors) <= len(fitted.split(";")) and fitted not in ("", "nothing"):
        return "–", "–", "–"
    return f"{np.median(np.abs(errors)):.1%}", f"{np.mean(np.abs(errors) <= NEAR):.0%}", f"{worst_error(errors):+.0%}"


def rows_to_draw(trained: pd.DataFrame) -> pd.DataFrame:
    """Return the steps as rows to draw: predictions with `nccl`, and with buckets where gradients are averaged in parts.

    Args:
        trained: as from `steps.table_of`.
    """
    forecast = np.where(trained["buckets"] > 1, trained[FORECASTS[2]], trained[FORECASTS[1]])
    return pd.DataFrame({"name": _groups(trained), "predicted": forecast, "measured": trained["seconds"]})


def text(
    collectives: pd.DataFrame, trained: pd.DataFrame, shares: pd.DataFrame, forms: pd.DataFrame, presets: pd.DataFrame
) -> str:
    """Return the page.

    Args:
        collectives: errors of collectives and messages, one row for each measurement.
        trained: step times, as from `steps.table_of`.
        shares: errors with the bandwidths that other steps tell.
        forms: errors of other forms.
        presets: errors of presets.
    """
    ways = [name for name in collectives.columns if name.startswith("without")]
    head = ("measurements", "points")
    rows = [
        (name, len(rows), rows["fitted"].iloc[0], *summary(rows["error"].to_numpy(), rows["fitted"].iloc[0]))
        for name, rows in collectives.groupby("name", sort=False)
    ]
    left_out = [
        (name, rows["refitted"].fillna("none").iloc[0], way.removeprefix("without its "), *summary(rows[way].to_numpy()))
        for name, rows in collectives.groupby("name", sort=False)
        for way in ways
        if rows[way].notna().any()
    ]
    plainer = [
        (name, _PLAINER[str(name)], *summary(rows["plain"].to_numpy()))
        for name, rows in collectives.groupby("name", sort=False)
        if rows["plain"].notna().any()
    ]
    first = pd.read_csv(FOLDER / "predicted-first.csv")
    grid = trained[trained["source"] == _GRID]
    return _TEXT.format(
        points=len(collectives),
        steps=len(trained),
        overview=table((*head, "fitted here", *COLUMNS), rows),
        held=table(("measurements", "constants", "left out", *COLUMNS), left_out),
        plain=table(("measurements", "predicted by", *COLUMNS), plainer),
        first=table(("source", "points", "given", *COLUMNS), _blind(first)),
        streams=table(_STREAMS, _streamed(streams.table_of())),
        trained=table(("training", "points", "blind", *FORECASTS), _trained(trained)),
        ranked=table(
            ("pairs", "predicted by", "ranked as measured", "not told apart", "ranked wrongly"),
            [
                (pairs, f"`{forecast}`", *ranked(rows, forecast))
                for pairs, rows in (("all", grid), ("averaging in every step", grid[grid["period"] == 1]))
                for forecast in FORECASTS
            ],
        ),
        presets=table(
            ("preset", "program", "steps", *COLUMNS),
            [
                (f"`{name}`", program, len(rows), *summary(rows["error"].to_numpy()))
                for (name, program), rows in presets.groupby(["preset", "program"], sort=False)
            ],
        ),
        shares=table(("program", "others", "share with `buckets`", "error", "share without", "error"), _shares(shares)),
        merged=_merged(shares[shares["overlaps"]]),
        late=_merged(shares[~shares["overlaps"]]),
        hidden=table(
            ("model", "GPUs", "one allreduce", "hidden by MG-WFBP", "hidden in FRED", "by single tensors"), _hidden(trained)
        ),
        tried=table(("measurements, form", "constants", "left out", *COLUMNS), forms.fillna("none").itertuples(index=False)),
        own=f"{100 * _own_error():.1f} %",
        floor=f"{100 * _floor(collectives):.1f} %",
    )


def _groups(trained: pd.DataFrame) -> pd.Series:
    """Return the name of the training that each step belongs to."""
    program = trained["program"].str.split(",").str[0]
    subject = program.where(trained["program"] != "its own", trained["system"])
    width = (trained["bandwidth"] * 8e-9).map("{:g} Gbit/s".format)
    return trained["source"] + ": " + subject + np.where(trained["source"] == _GRID, "", ", " + width)


def _trained(trained: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each training: median and worst error of each forecast."""
    for name, rows in trained.groupby(_groups(trained), sort=False):
        errors = [(rows[forecast] / rows["seconds"] - 1).to_numpy() for forecast in FORECASTS]
        blind = "yes" if rows["is_blind"].all() else "no"
        yield (name, len(rows), blind, *(f"{np.median(np.abs(values)):.0%} ({worst_error(values):+.0%})" for values in errors))


def _shares(shares: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each program: shares of the bandwidth, and errors of the other steps, with `buckets` and without."""
    for name, rows in shares.groupby("name", sort=False):
        cells: list[str] = []
        for overlaps in (True, False):
            part = rows[rows["overlaps"] == overlaps]
            share, errors = part["share"].to_numpy(), part["error"].to_numpy()
            cells += (
                [f"{share[0]:.2f}", f"{np.median(np.abs(errors)):.0%} ({worst_error(errors):+.0%})"] if len(errors) else "––"
            )
        yield (name, len(rows) // rows["overlaps"].nunique(), *cells)


def _merged(shares: pd.DataFrame) -> str:
    """Return the median error of the programs that merge gradients."""
    merges = shares["name"].str.contains("MG-WFBP|Horovod")
    return f"{100 * shares.loc[merges, 'error'].abs().median():.0f} %"


def _blind(first: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    for (name, how), rows in first.groupby(["source", "how"], sort=False):
        yield (name, len(rows), how, *summary((rows["predicted_s"] / rows["measured_s"] - 1).to_numpy()))


def _streamed(rows: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a row for each pair of regions: its rates, and the errors of those predicted."""
    receivers = rows["receiver"] + np.where(rows["bytes"].notna(), ", first 200 MiB", "")
    for (sender, receiver), pair in rows.groupby([rows["sender"], receivers], sort=False):
        errors = [" ".join(f"{value:+.0%}" for value in pair[name] / pair["mbit_per_s"] - 1) for name in streams.FORECASTS]
        rates = [" ".join(f"{value:.0f}" for value in pair[name]) for name in ("mbit_per_s", "retransmits")]
        yield (f"{sender} to {receiver}", f"{pair['own_round_trip_ms'].mean():.0f}", *rates, *errors)


def _own_error() -> float:
    """Return the median error of connections' rates with their own round trips."""
    rows = streams.table_of()
    return float((rows["own"] / rows["mbit_per_s"] - 1).abs().median())


def _hidden(trained: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield how much communication is hidden behind the backward pass, ms: measured, and with `buckets`."""
    steps: dict[tuple[str, int], dict[str, dict[Hashable, Any]]] = defaultdict(dict)
    for row in trained.to_dict("records"):
        if row["source"] == _LAYERS and row["system"] == "ddp" and row["bandwidth"] < _SLOW:
            program, model = row["program"].split(", ")
            steps[model, row["members"]][program] = row
    for (model, members), rows in steps.items():
        single, merged = rows["one allreduce"]["seconds"], rows["MG-WFBP"]
        hidden = merged["nccl"] - merged[FORECASTS[2]]
        times = (single, single - merged["seconds"], hidden, single - rows["WFBP"]["seconds"])
        yield (model, members, *(round(1e3 * seconds) for seconds in times))


def _floor(collectives: pd.DataFrame) -> float:
    """Return half of the median difference between pairs of regions that are neighbours in round trip."""
    pairs = collectives[collectives["name"] == "NCCL, between regions"].sort_values("latency")
    logs = np.log(pairs["predicted"] / (1 + pairs["error"]) / pairs["latency"])
    return float(np.median(np.exp(np.abs(np.diff(logs)) / 2)) - 1)


_GRID, _LAYERS = "Adnan082/diloco-measured", "HKBU-HPML/ddl-benchmarks"
_STREAMS = ("from, to", "round trip, ms", "Mbit/s", "sent again", "error", "error with its own round trip")
_SLOW = 2e9  # bytes/s; below: the network limits, above: the bus within a machine
_PLAINER = {
    "NCCL, allreduce": "`collective: ring`",
    "NCCL, between regions": "one bandwidth",
    "allreduce in use": "one allreduce",
    "sharded servers in use": "one allreduce",
}
_TEXT = """# Measured times of communication, and FRED's

Made by `python -m reproductions measured` from the CSV files beside this page. For {points} collectives and messages and
{steps} step times, by others and over a network emulated on one machine, it compares the measured time with FRED's.
`fred fit-network FILE` does the same for any table of collectives.

![predicted against measured](measured.svg)

The dotted lines are 15 % off. The first six tables are results of BinhangYuan/tc_cluster_setting, at GitHub: on machines of
Amazon's cloud (p3.2xlarge), and between regions.

## Predictions with FRED's constants

Latencies and bandwidths that a table does not give are fitted, once for each row ("fitted here"). They also take up whatever
else costs time, so rows from the same cloud differ. The constants were fitted to these tables, but for `public`.

{overview}

## How well the constants hold where they were not fitted

Here the constants of `fred/cluster/collectives.py` are fitted again without one setting (a pair of delay and bandwidth, a
number of nodes, or a receiver), which is then predicted; so for each setting in turn. The latency and bandwidth of the rows
that give neither (8 of the 32, 3 of each 15 in use) are fitted to these rows even so, since nothing else tells them.

{held}

That allreduces in use go around a ring with 16 nodes is known from the 16 nodes alone. So it is not used where these are
left out, and they are then up to 70 % off.

## Plainer models

{plain}

## Predictions made before the times were read

These were committed before the log was opened. Nothing was fitted: bandwidths are nominal, and members are the GPUs, which
share the cards of their machine.

{first}

Between machines with A100 the nominal bandwidth predicts large allreduces within 7 %. The other two sources are two machines
each, with H100 or GH200. There NCCL sends less between the machines than a ring of all GPUs would, and up to 16 MiB the
latency counts, which was unknown.

## Single connections between regions

One TCP connection by iperf3 between machines of Google's cloud (e2-medium), over 10 s after the first 3, or for the first 200
MiB (kfirtoledo/CloudPilot_Project, results; August and September 2021). Predicted with the windows of `gloo` and a table's
round trips; the last column has the round trips that the connections saw. "Sent again" are segments. Runs are the first of
each pair of regions, three of those from Iowa. The predictions that were committed before had a window of 3 MiB, and all but
four of them were 3 to 18 % too fast. It is 2.7 MiB now: as much is under way over the emulated network, with frames of 1,500
and of 9,001 bytes, and six pairs of regions of another cloud were 16 to 32 % slower than 3 MiB say.

{streams}

So windows explain the rates: with their own round trips all but one are 3 to 9 % slow, {own} in the median, as if 2.9 MiB
were under way on this cloud. A table's round trips are up to 11 % off, and so are the rates. Lost segments matter little but
for one run of three from Iowa to South Carolina, at a ninth of the rate of the others. FRED can lose messages, but no packets
of one. Two more predictions, within London, could not be compared, as these files have connections to Los Angeles.

## Step times of trainings

![predicted against measured step times](measured-steps.svg)

Each cell is a median error and the worst one. The columns are FRED's default (`ring`), `collective: nccl`, and `buckets` of
25 MiB as in PyTorch's DDP (Horovod: 64 MiB; WFBP: one for each tensor). The figure shows the last column. "Blind" were
committed before the times were read. The time of computation is from the same source: a step of one GPU, read with the
times, or one without averaging. No bandwidth and no latency was fitted. That FRED is too fast for DDP was known from an
earlier comparison.

{trained}

- **diloco-measured**: four machines of Amazon's cloud with one GPU each, a model of 123 MB, NCCL over TCP. Links are shaped
  to .05, .2, 1 or 5 Gbit/s, or carry 14.9 Gbit/s as measured with NCCL alone. Local SGD and DiLoCo average every 1, 8, 32 or
  128 steps. At 1 and 5 Gbit/s with periods of 1 and 8 they are within 7 %. With periods of 32 and 128 one of the 1 to 4
  averagings that were measured is the first of all, which also opens connections. At .2 and .05 Gbit/s NCCL reached 90 and
  79 % of the rate. At 14.9 Gbit/s DiLoCo, which averages tensor by tensor, is 9 to 19 % slower than predicted.
- **DDP there** takes 470 ms longer than local SGD with period 1 at 1 Gbit/s, and 80 ms at 5 Gbit/s: as long as 50 to 59 MB
  more would. DDP broadcasts a model's buffers before each step by default, which FRED lacks. Whether these are that large
  was not verified.
- **ddl-benchmarks**: two to eight machines, four GPUs each. BytePS has as many servers as machines, on further machines, and
  sends after the backward pass. At 100 Gbit/s the bus within a machine limits the BERT models, not the network.
- **DLPerf**: two and four machines, eight GPUs each. With the same machines and models the error depends on the program.
  APEX averages after the backward pass here, so `buckets` do not apply to it. With DDP the second machine adds 9 ms to
  ResNet-50's step, where an allreduce takes 16 ms.
- **horovod/horovod**: 4 and 16 machines, four GPUs each, with RoCE and plain Ethernet. Over TCP as if nothing were hidden,
  over RDMA as `buckets` say; but see below.
- **pytorch/pytorch**: two machines, eight GPUs each. A step with DDP in one machine is already 7 to 10 % longer than one
  without. A second machine adds at most 3 ms, where an allreduce after the backward pass takes 4 to 14 ms.

Pairs of trainings in diloco-measured at the same bandwidth, of which the slower is at least 5 % slower:

{ranked}

In FRED, DDP, local SGD and DiLoCo cost the same if they average in every step, or DDP less with `buckets`. Measured, DDP is
the slowest at 5 Gbit/s and below, and the fastest at 14.9 Gbit/s.

## Overlap of communication with the backward pass

One allreduce after the backward pass, ms, as measured by ddl-benchmarks at 10 Gbit/s. Then the ms that a step saves compared
with it: with merged gradients (MG-WFBP), by `buckets` of 25 MiB in FRED, and with an allreduce for each tensor.

{hidden}

Merged gradients hide what `buckets` say with ResNet-50, about three quarters of it in three cases with BERT, and nothing in
the three others. Single tensors hide less the more GPUs there are: with 32, each of the 161 to 398 allreduces costs .5 to .7
ms more. One allreduce after the backward pass reaches 90 to 99 % of the nominal bandwidth.

## Steps with a bandwidth that another step tells

For each program, the share of the nominal bandwidth is fitted to one step: of the largest model, with the most GPUs. It
predicts the other steps, with other models and numbers of GPUs. A dash: no share from .05 to 2 explains that step.

{shares}

With merged gradients (MG-WFBP, Horovod) and `buckets`, one calibrated bandwidth predicts the other steps within {merged} in
the median, 1 to 9 % by program, and better than without `buckets` ({late}) but for one program. With an allreduce for each
tensor (WFBP), `buckets` do not help. So the errors above are mostly those of nominal bandwidths: over TCP, Horovod reached
14 and 18 Gbit/s of 25 and 40, and over RDMA 22 of 25.

## Presets

Steps whose gradients are averaged in parts, predicted by the presets for cards of their bandwidth, as these are. Shares of the
bandwidth were fitted to one step of some of these programs: of MG-WFBP at 10 Gbit/s, between those of MG-WFBP and WFBP at 100,
and of Horovod over TCP at 25 and 40.

{presets}

## Other forms

Forms that were compared, two by two; FRED has the first. Constants are fitted without one setting, as above.

{tried}

- **Allreduce in use**: more bytes help one way of leaving out and not the other.
- **Latencies of NCCL's allreduce**: on Amazon's machines with EFA they grow with the number of members, as in a ring: 163,
  319 and 631 us with 16, 32 and 64. Four latencies, whatever the number, were measured with one GPU in each machine.
- **Two machines with fast links inside**: to count machines instead of GPUs halves the errors with H100, and not with GH200.
- **Between regions**, pairs that are neighbours in round trip differ so much that no function of the round trip has a median
  error much below {floor}; FRED's has 5.6 %.

## What the predictions are made of

- **NCCL, allreduce**: 2 (n - 1) / n of the model at 1.011 times its bytes, and 4 latencies, however many members beyond
  three. Two constants. That the number of latencies does not grow was found by looking at all rows; "Other forms" has a
  cluster where it does.
- **Point to point**: one latency (Gloo asks for each message first: two), and the message, at most at a window of 2.7 MiB for
  each round trip, after a slow start from ten segments of 8,949 bytes. These are Linux's defaults for one connection that was
  idle; NCCL has 16 on Amazon's machines. Over the emulated network messages follow each other at once, and do not start
  slowly, so that FRED's are too slow there.
- **Between regions**: the smaller of a bandwidth and window / round trip, both fitted to this table. Pairs with equal round
  trips differ by up to 1.5 times, so no function of the round trip is within 15 % for all.
- **NCCL's broadcast and reduce**: a chain of all members [NCCL, src/device/broadcast.h]: n - 1 latencies, and the time of 1
  MiB for each member between the ends. No measurement here has them.
- **Allreduce in use**: 16.4 allreduces of parts, one after the other, each with 2 log2 n latencies up and down a tree. From
  16 nodes on, parts below 32 MiB take the 2 (n - 1) latencies of a ring. 5.5 MB are under way at most, and where this
  limits the rate (50 ms), the waits between parts are hidden. Two constants, the 16, and the 32 MiB, which lie between the
  parts of 256 MB and of 1 GB; the errors for 1 GB that a reader had found with the last form told that these take no ring.
- **Sharded servers in use**: all-to-all and allgather at 1.31 times the bytes, with 3 latencies for each other member, over
  as many connections. Two constants.
- **Gloo's collectives**: from its source code. A ring of segments of at most 1 MiB, two at a time, each of which the receiver
  asks for; a broadcast down a binomial tree, whose members send to all children at once and share their cards among them; a
  reduce that goes around the ring and is then gathered. Constants: 1.02 times the bytes in these rings, 1.12 in allgather,
  1.65 in all-to-all (confirmations wait behind data of the other direction), 1.55 for both between two members. They were
  chosen on `gloo-emulated.csv` and judged once on `gloo-held-out.csv`, with other delays, bandwidths, sizes and 3, 6 and 12
  members: torch 2.13 with Gloo between network namespaces of one machine, joined by the switch in
  `reproductions/measured/emulator`. It limits what each member sends, in turns by connection, and what it receives, and
  delays packets. Real TCP, no real network; the machine had other work, which counts most with 12 members on two cores.
  Operations followed each other, so that no connection began anew.
- **`public`** are rows typed from other repositories, issues and papers, as listed below. Members are GPUs, and bandwidths
  those of a machine. All constants were fixed before, in form and value. One change came later, for another reason: a
  message from point to point costs a latency with NCCL, too; none of these rows has one. Single rows are predicted from the
  nominal bandwidth, without a latency. At 40 Gbit/s Gloo ran on one core, which limits it to a quarter of the network.

## Sources

Read on 26 November 2026; the names without an address are repositories at GitHub.

| source | what | blind |
| --- | --- | --- |
| NVIDIA/nccl-tests/issues/232 | two machines with InfiniBand | no |
| NVIDIA/dgx-spark-playbooks, pull/103 and issues/25 | two DGX Spark, 200 Gbit/s | no |
| pytorch/gloo, issues/248 and issues/21 | two machines, 40 and 1 Gbit/s (the latter: "about 180 ms") | no |
| lessizzmore/create-a3mega-ztan-fork, ztan-NCCL-test-result | two a3-megagpu-8g of Google's cloud, 8 x 200 Gbit/s | yes |
| oracle-quickstart/oci-hpc-oke, docs/running-nccl-tests-from-slurm-operator.md | two BM.GPU.B4.8, 16 x 100 Gbit/s | yes |
| oracle-japan/ocitutorials, NCCL Tests on BM.GPU4.8 | the same, other software | yes |
| eth-cscs/cscs-docs, NCCL Tests image | two machines with four GH200, 4 x 200 Gbit/s | yes |
| gist.github.com/cswinter/3bc2cbcc7c947e4a2736188dd6e74240 | two machines with one V100, TCP; the first five sizes | no |
| gist.github.com/jacobkahn: a92f4425abf831ac0799fabe9079263d, 1fb3977e99056b7935a6c63dda1e145f, \
3150a1a38abba40f58d8263d9c55969f | 2, 4 and 8 p3dn.24xlarge with EFA; sizes of up to 32 KiB | no |
| arXiv:2102.02888, table 1 | allreduces of BERT-Large (680 MB in 16 bits) in training; Ethernet of 4.1 Gbit/s as measured by \
iperf, InfiniBand of 100 Gbit/s; as cited in rajatbisht.net/paper_summaries | no |
| elizabetht/spark, infiniband-tutorial | two DGX Spark, 192 Gbit/s as measured | no |
| Adnan082/diloco-measured, results/raw | see above; the first repetition of each | yes |
| HKBU-HPML/ddl-benchmarks, results/2020-05-29 | see above | but for MG-WFBP and BytePS |
| horovod/horovod, README.md of September 2017 | see above; Pascal, batches of 64 | 64 GPUs |
| Oneflow-Inc/DLPerf, reports/dlperf_benchmark_test_report_v1.md and the pages of PyTorch | see above; V100 | PyTorch and APEX |
| kfirtoledo/CloudPilot_Project, results, algorithms/locations/gcp_latency.json | see above | yes, but for 2 s of one run |
| pytorch/pytorch, benchmarks/distributed/ddp | see above; V100, 4 x 100 Gbit/s | no |

## What this does not show

NCCL's operations other than allreduce, allgather and point to point are forms without a measurement. Parameter servers were
compared on one cluster only. Where communication takes longer than computation, overlap was measured on that cluster only,
and not with PyTorch's DDP.
"""
