"""Send messages through SimGrid, another simulator, and print when each has arrived. It runs under Debian's python3-simgrid.

It reads a JSON list of worlds from its input, each with `capacities`, bytes/s of the links; `messages`: begin (s), path
(numbers of links), bytes; `latencies` of the links, s; and `gamma`, the bytes that a message has under way at most (0: any
number). It prints a list of arrivals, s, for each world.
"""

import json
import os
import sys
from typing import Any

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor  # type: ignore[import-not-found]


def simulate(world: dict[str, Any]) -> list[float]:
    """Simulate the messages of one world; a process can do that once."""
    configuration = ["network/model:CM02", "network/crosstraffic:0", f"network/TCP-gamma:{world['gamma']}"]
    engine = Engine(["simgrid", "--log=root.thres:critical", *(f"--cfg={setting}" for setting in configuration)])
    zone = NetZone.create_full_zone("world")
    links = [
        zone.create_link(f"link{number}", capacity).set_latency(latency).seal()
        for number, (capacity, latency) in enumerate(zip(world["capacities"], world["latencies"], strict=True))
    ]
    arrived = [0.0] * len(world["messages"])

    def send(number: int) -> None:
        begin, _, size = world["messages"][number]
        this_actor.sleep_for(begin)
        Mailbox.by_name(str(number)).put(number, size)

    def receive(number: int) -> None:
        Mailbox.by_name(str(number)).get()
        arrived[number] = Engine.clock

    pairs = []
    for number, (_, path, _) in enumerate(world["messages"]):
        sender, receiver = (zone.create_host(f"{role}{number}", 1e9).seal() for role in ("sender", "receiver"))
        zone.add_route(sender.netpoint, receiver.netpoint, None, None, [LinkInRoute(links[link]) for link in path], True)
        pairs.append((sender, receiver))
    zone.seal()
    for number, (sender, receiver) in enumerate(pairs):
        Actor.create(f"send{number}", sender, send, number)
        Actor.create(f"receive{number}", receiver, receive, number)
    engine.run()
    return arrived


def main() -> None:
    """Simulate each world in a process of its own, and print the arrivals."""
    answers = []
    for world in json.load(sys.stdin):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, json.dumps(simulate(world)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            answers.append(json.loads(answer.read()))
        os.wait()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
