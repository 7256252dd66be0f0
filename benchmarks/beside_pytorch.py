"""The transformers of `replay.py` in PyTorch beside FRED's replay of them: updates on one thread, and rounds on two cores.

PyTorch is no part of FRED's environment: `python -m benchmarks.beside_pytorch OTHER/bin/python` says which interpreter has it.
The two are measured in turn; `docs/numerics.md` has the results. FRED's times include the start of its helper process;
PyTorch's exclude that of its processes.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replay import CONTEXT, TOKENS, TRANSFORMERS, Case, transformer, workers
from fred.base import environment
from fred.protocols.synchronous import Synchronous
from fred.systems.asgd import SASGD

UPDATES = {2: 100, 4: 24}  # of how many layers, so that each takes about a second
ROUNDS = 60  # of eight gradients of four layers: more than half a minute on one core
_IN_PYTORCH = """
import contextlib, sys, time, torch
from torch import nn
from torch.nn import functional as F
layers, width, context, tokens, updates, gradients, threads, processes, rank = map(int, sys.argv[1:-1])
torch.set_num_threads(threads)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.three, self.joining = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        q, k, v = self.three(self.one(x)).view(8, context, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.joining(seen.transpose(1, 2).reshape(8, context, width))
        return x + self.narrow(F.gelu(self.wide(self.two(x)), approximate="tanh"))

class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(0.1 * torch.randn(context, width))
        self.layers, self.last = nn.Sequential(*(Layer() for _ in range(layers))), nn.LayerNorm(width, bias=False)
        self.output = nn.Linear(width, tokens)
    def forward(self, x):
        return self.output(self.last(self.layers(self.tokens(x) + self.places)))

model = Transformer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
alone = contextlib.nullcontext
if processes > 1:
    torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[-1], rank=rank, world_size=processes)
    model = nn.parallel.DistributedDataParallel(model)
    alone = model.no_sync
data = torch.randint(0, tokens, (4000, context + 1))
def update():
    optimizer.zero_grad(set_to_none=True)
    for left in reversed(range(gradients // processes)):
        batch = data[torch.randint(0, 4000, (8,))]
        with alone() if left else contextlib.nullcontext():
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
    optimizer.step()
for _ in range(5):
    update()
start = time.perf_counter()
for _ in range(updates):
    update()
print((time.perf_counter() - start) / updates / gradients)
"""


def main() -> None:
    """Milliseconds of a gradient by each, medians of several in turn."""
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    for layers, width in TRANSFORMERS:
        case = Case(transformer(layers, width), 8, workers(4), SASGD(learning_rate=0.01), UPDATES[layers])
        case.replay()
        own, others = zip(*((_ours(case), _pytorch(python, layers, width, UPDATES[layers])) for _ in range(5)), strict=True)
        _tell(f"{layers} layers of width {width}", own, others)
    environment.check()
    layers, width = TRANSFORMERS[-1]
    rounds = Case(transformer(layers, width), 8, workers(8), SASGD(learning_rate=0.01), 8 * ROUNDS, Synchronous())
    _ours(rounds)
    found = [
        (
            _ours(rounds),
            _pytorch(python, layers, width, ROUNDS, gradients=8),
            _ours(rounds, cores=2),
            _pytorch(python, layers, width, ROUNDS, gradients=8, processes=2),
            _pytorch(python, layers, width, ROUNDS, gradients=8, threads=2),
        )
        for _ in range(3)
    ]
    alone, pytorch, together, processes, threads = zip(*found, strict=True)
    _tell("rounds of eight gradients, one core", alone, pytorch)
    _tell("  two processes", together, processes)
    _tell("  two processes, and in PyTorch two threads", together, threads)


def _ours(case: Case, cores: int = 1) -> float:
    """Return the seconds of a gradient in FRED's replay."""
    start = time.perf_counter()
    case.replay(cores)
    return (time.perf_counter() - start) / case.gradients


def _pytorch(
    python: str, layers: int, width: int, updates: int, gradients: int = 1, threads: int = 1, processes: int = 1
) -> float:
    """Return the seconds of a gradient in PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        given = [str(each) for each in (layers, width, CONTEXT, TOKENS, updates, gradients, threads, processes)]
        started = [
            subprocess.Popen(
                [python, "-c", _IN_PYTORCH, *given, str(rank), str(Path(folder) / "meeting")], stdout=subprocess.PIPE
            )
            for rank in range(processes)
        ]
        return max(float(each.communicate()[0]) for each in started)


def _tell(name: str, own: Sequence[float], others: Sequence[float]) -> None:
    fred, torch = 1e3 * statistics.median(own), 1e3 * statistics.median(others)
    print(f"{name}: FRED {fred:.2f} ms a gradient, PyTorch {torch:.2f}, ratio {fred / torch:.2f}", flush=True)


if __name__ == "__main__":
    main()
