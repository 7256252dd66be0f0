"""A hand-written training loop in PyTorch, run by `benchmarks.others` with another interpreter: prints seconds a gradient."""

import contextlib
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

FACTS = json.loads(sys.argv[1])
BATCH, EXAMPLES = FACTS["batch"], 4000


class Layer(nn.Module):
    """Causal self-attention and a perceptron, as FRED's transformer has them."""

    def __init__(self, width: int):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.three, self.joining = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        queries, keys, values = self.three(self.one(x)).view(batch, context, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.joining(mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.narrow(functional.gelu(self.wide(self.two(x)), approximate="tanh"))


class Transformer(nn.Module):
    """FRED's decoder-only transformer."""

    def __init__(self, layers: int, width: int, context: int, tokens: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(0.1 * torch.randn(context, width))
        self.layers, self.last = nn.Sequential(*(Layer(width) for _ in range(layers))), nn.LayerNorm(width, bias=False)
        self.output = nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.last(self.layers(self.tokens(x) + self.places))).flatten(0, 1)


def build() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a model, inputs and answers."""
    classes = torch.randint(0, 10, (EXAMPLES,))
    if FACTS["kind"] == "mlp":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), torch.randn(EXAMPLES, 784), classes
    if FACTS["kind"] == "cnn":
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 10)]
        return nn.Sequential(*layers), torch.randn(EXAMPLES, 3, 32, 32), classes
    tokens = torch.randint(0, FACTS["tokens"], (EXAMPLES, FACTS["context"] + 1))
    return Transformer(FACTS["layers"], FACTS["width"], FACTS["context"], FACTS["tokens"]), tokens[:, :-1], tokens[:, 1:]


def main() -> None:
    """Time updates of several gradients each; with several processes, DDP averages them over Gloo."""
    torch.set_num_threads(FACTS["threads"])
    model, inputs, answers = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    without_averaging = contextlib.nullcontext
    if FACTS["processes"] > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{FACTS['meeting']}", rank=FACTS["rank"], world_size=FACTS["processes"]
        )
        model = nn.parallel.DistributedDataParallel(model)
        without_averaging = model.no_sync

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        for remaining in reversed(range(FACTS["gradients"] // FACTS["processes"])):
            rows = torch.randint(0, EXAMPLES, (BATCH,))
            with without_averaging() if remaining else contextlib.nullcontext():
                functional.cross_entropy(model(inputs[rows]), answers[rows].flatten()).backward()
        optimizer.step()

    for _ in range(max(2, FACTS["updates"] // 10)):
        update()
    start = time.perf_counter()
    for _ in range(FACTS["updates"]):
        update()
    print((time.perf_counter() - start) / FACTS["updates"] / FACTS["gradients"])


main()
