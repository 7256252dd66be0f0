"""Figure 8e with servers whose cards have a bandwidth: the time of an epoch on 53 workers. Timing only."""

import pandas as pd

import fred
from reproductions.backup_workers.arrivals import SCENARIOS
from reproductions.common import RESULTS, quiet, store, table

EPOCHS = RESULTS / "backup-workers-epochs.csv"
WORKERS, SERVERS = 53, 17  # the paper does not print M
MODEL_BYTES = 95_000_000  # Inception-v3, about 24 million parameters
BANDWIDTHS = (0.0, 1.2e9, 0.6e9, 0.3e9, 0.15e9)  # bytes/s of each server's card; 0: messages take no time
_RUNS = {f"sync-{WORKERS}": 1, f"async-{WORKERS}": WORKERS}  # updates in an epoch


def measure() -> None:
    """Measure the epochs: half a minute."""
    frames = []
    for bandwidth in BANDWIDTHS:
        settings = ["seeds=[11, 12, 13]", "task=null", "evaluate.target_error=null", "stop={seconds: 200}"]
        if bandwidth:
            network = f"{{server_bandwidth: {bandwidth}, message_bytes: {MODEL_BYTES}}}"
            settings += [f"cluster.servers={SERVERS}", f"cluster.network={network}"]
        summary = quiet(fred.load(SCENARIOS / "figure8.yaml", settings), tuple(_RUNS)).summary
        epochs = summary["updates"] / summary["name"].map(_RUNS)
        frames.append(summary[["name", "seed"]].assign(bandwidth=bandwidth, seconds=summary["virtual_seconds"] / epochs))
    store(EPOCHS, pd.concat(frames))


def by_bandwidth(measured: pd.DataFrame) -> str:
    """Return the table of the seconds of an epoch, means over the seeds, and their ratio."""
    means = measured.groupby(["bandwidth", "name"])["seconds"].mean().unstack("name")
    rows = []
    for bandwidth in BANDWIDTHS:
        sync, late = (means[run][bandwidth] for run in _RUNS)
        rows.append([f"{bandwidth / 1e9:g} GB/s" if bandwidth else "–", f"{sync:.2f} s", f"{late:.2f} s", f"{sync / late:.2f}"])
    return table(["card of a server", "Sync-Opt", "Async-Opt", "ratio"], rows)
