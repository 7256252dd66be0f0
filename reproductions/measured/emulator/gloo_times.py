"""Time Gloo's operations; one process for each member, started by `run.sh`. Member 0 prints rows of a table."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Time every operation with every size."""
    member, members = int(sys.argv[1]), int(sys.argv[2])
    delay, bandwidth, operations, sizes = sys.argv[3:7]
    os.environ.update(MASTER_ADDR="10.0.0.1", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="eth0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=member, world_size=members)
    for operation in operations.split(","):
        for size in map(float, sizes.split(",")):
            for repetition in range(int(sys.argv[7]) + 1):  # the first opens connections, and is not counted
                seconds = timed(operation, torch.ones(int(size * 2**18)), member, members)
                if member == 0 and repetition:
                    print(f"gloo,{operation},{members},{size:g},{delay},{bandwidth},{1e3 * seconds:.1f}", flush=True)


def timed(operation: str, values: torch.Tensor, member: int, members: int) -> float:
    """Return how long the slowest member takes for an operation, s."""
    dist.barrier()
    begin = time.perf_counter()
    run(operation, values, member, members)
    longest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return float(longest)


def run(operation: str, values: torch.Tensor, member: int, members: int) -> None:
    """Run an operation once."""
    part = values[: len(values) // members]
    divisible = values[: len(part) * members]
    match operation:
        case "allreduce":
            dist.all_reduce(values)
        case "broadcast":
            dist.broadcast(values, 0)
        case "reduce":
            dist.reduce(values, 0)
        case "allgather":
            dist.all_gather(list(divisible.chunk(members)), part.clone())
        case "all-to-all":
            dist.all_to_all_single(torch.empty_like(divisible), divisible)
        case "gather":
            dist.gather(part, list(divisible.chunk(members)) if member == 0 else None, 0)
        case "scatter":
            dist.scatter(part, list(divisible.clone().chunk(members)) if member == 0 else None, 0)
        case "point-to-point" if member == 0:
            dist.send(values, 1)
        case "point-to-point" if member == 1:
            dist.recv(values, 0)


if __name__ == "__main__":
    main()
