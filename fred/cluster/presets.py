"""Networks by name: bandwidth as trainings reach it, not as the card's name says, with the error of each.

Shares of the nominal bandwidth are fitted to one step of training, of the largest model with the most GPUs. Errors are of the
preset as it is, on all steps of programs that average gradients in parts over such cards (`results/reproductions/measured.md`,
"Presets"). A worker is a machine, whatever the number of its GPUs, because they share the card.

    >>> from fred.cluster.network import Network
    >>> network = Network(name="ethernet-25", message_bytes=102_000_000)
    >>> f"{network.effective.bandwidth * 8 / 1e9:.1f} Gbit/s, {network.bucket_count(102_000_000)} buckets"
    '14.5 Gbit/s, 4 buckets'
"""

from typing import Any, NamedTuple


class Preset(NamedTuple):
    """A network by name.

    Args:
        options: options of a network, in place of their defaults.
        error: what it predicted, and how far that was off.
        source: where the numbers are from.
    """

    options: dict[str, Any]
    error: str
    source: str


def _cards(name: str, efficiency: float, latency: float) -> dict[str, Any]:
    """Return the options of machines with these cards, which train with DDP over NCCL."""
    return {
        "bandwidth": name,
        "server_bandwidth": name,
        "efficiency": efficiency,
        "latency": {"name": "constant", "seconds": latency},
        "collective": "nccl",
        "buckets": "ddp",
    }


PRESETS = {
    "ethernet-1": Preset(_cards("1GbE", 0.9, 1e-4), "16 % too fast, 1 step", "the share of `ethernet-10`"),
    "ethernet-10": Preset(
        _cards("10GbE", 0.89, 5e-5),
        "median 3 to 7 % by program, worst 23 % too fast, 18 steps",
        "ddl-benchmarks: MG-WFBP, 8 to 32 GPUs",
    ),
    "ethernet-25": Preset(
        _cards("25GbE", 0.58, 5e-5),
        "median 3 %, worst 7 % too fast, 3 steps; over RDMA up to 33 % too slow",
        "Horovod over TCP, 16 GPUs",
    ),
    "ethernet-40": Preset(_cards("40GbE", 0.44, 5e-5), "median 7 %, worst 12 % too fast, 3 steps", "Horovod over TCP, 64 GPUs"),
    "ethernet-100": Preset(
        _cards("100GbE", 0.33, 5e-5),
        "median 3 to 24 % by program, worst 43 % too fast, 30 steps",
        "ddl-benchmarks: WFBP and MG-WFBP, 8 to 32 GPUs",
    ),
    "infiniband-100": Preset(
        _cards("EDR", 0.9, 5e-6),
        "DDP 5 % too fast, 2 steps; other programs 22 to 34 %, 28 steps",
        "a share that RDMA reaches at 25 Gbit/s",
    ),
    "infiniband-200": Preset(_cards("HDR", 0.9, 5e-6), "not judged: no measured steps", "the share of `infiniband-100`"),
    "infiniband-400": Preset(
        _cards("NDR", 0.9, 5e-6), "median 7 %, worst 9 % too fast, 4 steps", "the share of `infiniband-100`"
    ),
    "cloud-regions": Preset(
        {
            "bandwidth": 1.375e8,
            "server_bandwidth": 1.375e8,
            "latency": {"name": "constant", "seconds": 0.05},
            "sharing": "fair",
            "window": 11e6,
            "collective": "nccl",
        },
        "median 6 %, 80 % within 15 %, 45 pairs, with the pair's own latency",
        "NCCL between ten regions of one cloud",
    ),
    "internet": Preset(
        {
            "bandwidth": 1.25e8,
            "server_bandwidth": 1.25e8,
            "latency": {"name": "constant", "seconds": 0.05},
            "sharing": "fair",
            "window": 2.7 * 2**20,
        },
        "median 4 %, 16 streams, with the pair's own latency",
        "single TCP streams between regions of one cloud, 33 to 277 ms",
    ),
}
