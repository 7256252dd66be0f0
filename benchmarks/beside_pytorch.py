"""The transformers of `replay.py` in PyTorch, one thread, beside FRED's replay of them.

PyTorch is no part of FRED's environment: `python -m benchmarks.beside_pytorch OTHER/bin/python` says which interpreter has it.
The two are measured in turn; `docs/numerics.md` has what was found.
"""

import statistics
import subprocess
import sys
import time

from benchmarks.replay import CONTEXT, TOKENS, TRANSFORMERS, Case, transformer, workers
from fred.systems.sasgd import SASGD

UPDATES = {2: 100, 4: 24}  # of how many layers, so that each takes about a second
_IN_PYTORCH = """
import math, sys, time, torch
from torch import nn
from torch.nn import functional as F
torch.set_num_threads(1)
layers, width, context, tokens, updates = map(int, sys.argv[1:])

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
data = torch.randint(0, tokens, (4000, context + 1))
def update():
    batch = data[torch.randint(0, 4000, (8,))]
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
for _ in range(5):
    update()
start = time.perf_counter()
for _ in range(updates):
    update()
print((time.perf_counter() - start) / updates)
"""


def main() -> None:
    """Milliseconds of an update by each, medians of five in turn."""
    pytorch = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    for layers, width in TRANSFORMERS:
        case = Case(transformer(layers, width), 8, workers(4), SASGD(learning_rate=0.01), UPDATES[layers])
        case.replay()
        given = [str(each) for each in (layers, width, CONTEXT, TOKENS, UPDATES[layers])]
        own, others = [], []
        for _ in range(5):
            start = time.perf_counter()
            case.replay()
            own.append((time.perf_counter() - start) / UPDATES[layers])
            said = subprocess.run([pytorch, "-c", _IN_PYTORCH, *given], check=True, capture_output=True, text=True)
            others.append(float(said.stdout))
        fred, torch = 1e3 * statistics.median(own), 1e3 * statistics.median(others)
        print(f"{layers} layers of width {width}: FRED {fred:.2f} ms an update, PyTorch {torch:.2f}, ratio {fred / torch:.2f}")


if __name__ == "__main__":
    main()
