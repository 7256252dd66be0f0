"""Sixteen nodes of gossipy, run by `benchmarks.others` with another interpreter: print the seconds of a gradient."""

import json
import logging
import sys
import time
import types

for module in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
    sys.modules[module] = types.ModuleType(module)  # gossipy imports it for downloads alone
try:
    import gossipy
    import numpy as np
    import torch
    from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork
    from gossipy.data import DataDispatcher
    from gossipy.data.handler import ClassificationDataHandler
    from gossipy.model.handler import TorchModelHandler
    from gossipy.model.nn import TorchMLP
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator
except ImportError as error:
    sys.exit(f"no gossipy: {error}")

NODES, EXAMPLES, ROUNDS = 16, 3200, 5


class Counting(TorchModelHandler):
    """A model that counts its gradients."""

    gradients = 0

    def _local_step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        Counting.gradients += 1
        super()._local_step(x, y)


def main() -> None:
    """Time some rounds of gossip on a ring, each of an epoch of a node's examples."""
    batch = json.loads(sys.argv[1])["batch"]
    torch.set_num_threads(1)
    gossipy.set_seed(0)
    gossipy.LOG.setLevel(logging.ERROR)
    inputs, answers = torch.randn(EXAMPLES, 784), torch.randint(0, 10, (EXAMPLES,))
    data = ClassificationDataHandler(inputs, answers, inputs[:10], answers[:10])
    dispatcher = DataDispatcher(data, n=NODES, eval_on_user=False, auto_assign=True)
    ring = np.array([[(i - j) % NODES in (1, NODES - 1) for j in range(NODES)] for i in range(NODES)], dtype=int)
    model = Counting(
        net=TorchMLP(784, 10, (200,)),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": 0.01},
        criterion=torch.nn.CrossEntropyLoss(),
        batch_size=batch,
        local_epochs=1,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = GossipNode.generate(
        data_dispatcher=dispatcher, p2p_net=StaticP2PNetwork(NODES, ring), model_proto=model, round_len=100, sync=True
    )
    simulator = GossipSimulator(
        nodes=nodes,
        data_dispatcher=dispatcher,
        delta=100,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(0),
        sampling_eval=0.1,
    )
    simulator.init_nodes(seed=42)
    Counting.gradients = 0
    start = time.perf_counter()
    simulator.start(n_rounds=ROUNDS)
    print((time.perf_counter() - start) / Counting.gradients)


main()
