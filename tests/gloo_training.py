"""A training program for PyTorch's Python: processes over gloo, one of them slow; it records step times, as a user would.

`python gloo_training.py RECORDER FOLDER` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. It writes the files of the
recorder, and `naive-RANK.json`, the usual step times around `optimizer.step()`.
"""

import contextlib
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

RECORDER, FOLDER = map(Path, sys.argv[1:])
SLOW, FAST, WARM_UP = 0.36, 0.16, 2


def train(kind: str) -> float:
    """Train for a few steps, and return the mean time between ends of `optimizer.step()`, s."""
    model = Net()
    micro_steps, steps = {"accumulate": (2, 7), "ddp": (1, 14)}.get(kind, (1, 9))
    if kind == "fsdp":
        for layer in (model.first, model.last):
            fsdp.fully_shard(layer, mesh=mesh)
        trained = fsdp.fully_shard(model, mesh=mesh)
    else:
        trained = nn.parallel.DistributedDataParallel(model)
    late = kind == "input"
    model.delay = 0.0 if late else SLOW if rank == 1 else FAST
    optimizer = torch.optim.SGD(trained.parameters(), 0.1)
    recorder = StepRecorder(FOLDER / kind)
    recorder.watch(trained)
    ends = []
    batches = loader(steps * micro_steps, (SLOW if rank == 0 else FAST) if late else 0.0)
    for number, batch in enumerate(recorder.steps(batches), 1):
        averages = number % micro_steps == 0
        with contextlib.nullcontext() if averages else trained.no_sync():
            trained(batch).square().mean().backward()
        if averages:
            optimizer.step()
            optimizer.zero_grad()
            ends.append(time.perf_counter())
    recorder.close()
    return (ends[-1] - ends[WARM_UP - 1]) / (len(ends) - WARM_UP)


def loader(steps: int, delay: float) -> Any:
    """Yield batches, after a delay, s."""
    for _ in range(steps):
        time.sleep(delay)
        yield torch.ones(32, 64)


def trained_parameters(recorded: bool, views: bool, group: Any) -> bytes:
    """Return the bits of a small model after three steps."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 5), process_group=group, gradient_as_bucket_view=views)
    recorder = StepRecorder(FOLDER / f"bits-{recorded}-{views}")
    if recorded:
        recorder.watch(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(rank)
    for batch in recorder.steps(torch.randn(4, 32, 64)):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    recorder.close()
    return bytes(torch.cat([param.flatten() for param in model.parameters()]).detach().numpy().tobytes())


if __name__ == "__main__":
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    nn = torch.nn
    sys.path.insert(0, str(RECORDER.parent))
    StepRecorder: Any = importlib.import_module(RECORDER.stem).StepRecorder
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    mesh = distributed.device_mesh.init_device_mesh("cpu", (size,))

    class Net(nn.Module):  # type: ignore[name-defined,misc]
        """Two layers with normalisation, whose forward pass takes the delay, s."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)
            self.delay = 0.0

        def forward(self, inputs: Any) -> Any:
            """Return the outputs of the last layer, [examples, 8]."""
            time.sleep(self.delay)
            return self.last(self.norm(self.first(inputs)).relu())

    naive = {kind: train(kind) for kind in ("ddp", "accumulate", "input", "fsdp")}
    three = distributed.new_group([0, 1, 2])  # a mean of three has other bits if it is rounded in another order
    if rank < 3:
        for views in (False, True):
            assert trained_parameters(True, views, three) == trained_parameters(False, views, three)
    distributed.barrier()
    (FOLDER / f"naive-{rank}.json").write_text(json.dumps(naive))
    distributed.destroy_process_group()
