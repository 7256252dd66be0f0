"""Messages as flows: those under way share the links on their paths, with max-min fair rates.

A rate is max-min fair if it can only grow at the expense of a flow that is no faster [Bertsekas, Gallager 1992, section
6.5.2]. So every flow is held back by one link that is full, or by its own limit. A link that no other flow passes is such a
limit, too. Rates change whenever a flow begins or ends.

Flows that one link, or the same limit, holds back have the same rate per weight. They form a `_Group`, which counts what a
flow of weight 1 has moved since the group began [virtual time of processor sharing, Parekh and Gallager 1993]. A flow that
begins or ends costs O(log n) where a single group remains, and otherwise a new division of all flows that are connected with
it by links.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count

import simpy

from fred.base.errors import FredError
from fred.timing.loop import Loop

Slowdown = Callable[[int], tuple[float, int]]  # at a time, ns: the factor, and until when it holds, ns
_MAX_CHANGES = 10_000  # of a link's capacity before any of its flows ends


class Flow:
    """A message under way.

    Args:
        path: numbers of the links that it passes, all at the same time.
        size: bytes; later those that were left when it joined its group.
        weight: its share of a link relative to other flows.
        limit: highest rate, bytes per ns.
        done: event that happens when all bytes have passed.
    """

    __slots__ = ("amount_at_end", "done", "group", "limit", "max_rate", "path", "shared", "size", "weight")

    def __init__(self, path: tuple[int, ...], size: float, weight: float, limit: float, done: simpy.Event):
        self.path, self.size, self.weight, self.limit, self.done = path, size, weight, limit, done
        self.group: _Group | None = None
        self.amount_at_end = 0.0  # bytes per weight that its group will have moved when it is done
        self.shared: list[int] = []  # links that other flows pass, too
        self.max_rate = limit / weight  # its highest rate per weight, if shared links are left out


class _Group:
    """Flows that one link (None: their own limits) holds back, with the same rate per weight.

    Args:
        link: number of the link.
        last_change: time of the last change, ns.
    """

    __slots__ = ("amounts_at_end", "isolated", "last_change", "level", "link", "max_load", "moved", "version")

    def __init__(self, link: int | None, last_change: float):
        self.link, self.last_change = link, last_change
        self.amounts_at_end: list[tuple[float, int, Flow]] = []  # heap: see `Flow.amount_at_end`
        self.level = self.moved = 0.0  # bytes per ns and weight; bytes per weight since the group began
        self.version = 0  # of its entry among the ends of all groups
        self.isolated = False  # True if links connect its flows with no other group's
        self.max_load = 0.0  # at least the weight per capacity on every other link and limit, ns per byte

    def advance(self, now: float) -> None:
        """Move the flows on to the time `now`, ns."""
        if now > self.last_change:
            self.moved += self.level * (now - self.last_change)
            self.last_change = now


class Flows:
    """The flows of a run.

    Args:
        env: the run's event loop.
        capacities: capacity of each link, bytes per ns; infinite if it is unlimited.
        slowed: by link number, what divides its capacity at times.

    Example: the second message halves the rate of the first one, which is sent 0.1 s before.
        >>> env = Loop()
        >>> flows = Flows(env, [0.01])  # 10 MB/s
        >>> def send(begin):
        ...     yield begin
        ...     yield flows.send((0,), 2_000_000)
        ...     print(env.now / 1e9)
        >>> _ = env.process(send(0)), env.process(send(100_000_000))
        >>> env.run()
        0.3
        0.4
    """

    def __init__(self, env: Loop, capacities: Sequence[float], slowed: Mapping[int, Slowdown] | None = None):
        self._env, self._capacity, self._slowed = env, list(capacities), slowed or {}
        self._full_capacity = list(capacities)  # without slowdowns
        self._valid_until = dict.fromkeys(self._slowed, 0)  # until when these links have their present capacity, ns
        self._changes_since_end = dict.fromkeys(self._slowed, 0)  # number of changes since a flow on them ended
        self._changes: list[tuple[int, int]] = []  # heap: when the capacity of a link changes, ns; the link
        self._flows_on: list[dict[Flow, None]] = [{} for _ in capacities]  # in order of their beginning
        self._weight = [0.0] * len(capacities)  # sum over the flows on each link
        self._equal_weights = True  # False as soon as a weight is not 1
        self._number = count()  # second in heaps: equal entries leave them in the order in which they entered
        # heap of the next end in each group: time (ns), number, version of the group, group
        self._ends: list[tuple[float, int, int, _Group]] = []
        self._arrivals: list[Flow] = []  # at the present time, without a rate
        self._alarm = math.inf  # next time at which `_wake` is called, ns
        self._now = 0.0  # time of the last division, ns; at most half a nanosecond ahead of the loop's

    def capacity(self, link: int) -> float:
        """Return the capacity of a link that is not slowed down, bytes per ns.

        Args:
            link: its number.
        """
        return self._full_capacity[link]

    def add_link(self, capacity: float) -> int:
        """Add a link, and return its number.

        Args:
            capacity: its capacity, bytes per ns.
        """
        self._full_capacity.append(capacity)
        self._capacity.append(capacity)
        self._flows_on.append({})
        self._weight.append(0.0)
        return len(self._capacity) - 1

    def send(self, path: Sequence[int], size: float, weight: float = 1.0, limit: float = math.inf) -> simpy.Event:
        """Begin to send `size` bytes now; return the event that happens when all have passed the links.

        Args:
            path: numbers of the links.
            size: bytes.
            weight: share of a link relative to other flows.
            limit: highest rate, bytes per ns.
        """
        bounded = tuple(link for link in path if self._capacity[link] < math.inf)
        if size <= 0 or (not bounded and limit == math.inf):
            return self._env.happened
        if not self._arrivals:
            self._env.later(0, self._wake)
        flow = Flow(bounded, size, weight, limit, self._env.event())
        self._arrivals.append(flow)
        self._equal_weights = self._equal_weights and weight == 1.0
        return flow.done

    def _wake(self) -> None:
        """Finish the flows that end by now, and begin those that were sent."""
        # Ends are real numbers, and the loop's clock is whole nanoseconds. An end is noticed at the nearest nanosecond, but
        # rates change at the end itself, so errors of rounding do not add up. All flows that are sent at one instant begin in
        # one call, which divides the links once for all of them.
        now = self._env._now
        while self._ends and self._ends[0][0] <= now + 0.5:
            self._finish(self._ends[0][0])
        self._now = max(self._now, now)
        affected = self._change_capacities(now) if self._changes else ()
        arrivals, self._arrivals = self._arrivals, []
        for flow in arrivals:
            self._put(flow)
        if arrivals or affected:
            self._divide((), arrivals, affected)
        self._set_alarm()

    def _change_capacities(self, now: int) -> dict[Flow, None]:
        """Change the capacities of links whose slowdown changes by now; return the flows on them."""
        # The next change of an idle link is not scheduled: _put sets its capacity when its next flow begins.
        affected = dict[Flow, None]()
        while self._changes and self._changes[0][0] <= now:
            link = heappop(self._changes)[1]
            if self._flows_on[link]:
                self._changes_since_end[link] += 1
                if self._changes_since_end[link] > _MAX_CHANGES:
                    raise FredError(
                        f"`contention` of links changes more than {_MAX_CHANGES:,} times while one message is sent: "
                        "give longer times between changes, or smaller messages"
                    )
                self._set_capacity(link)
                affected.update(self._flows_on[link])
        return affected

    def _set_capacity(self, link: int) -> None:
        """Set the present capacity of a link that slows down at times."""
        factor, self._valid_until[link] = self._slowed[link](self._env._now)
        self._capacity[link] = self._full_capacity[link] / factor
        heappush(self._changes, (self._valid_until[link], link))

    def _set_alarm(self) -> None:
        """Wake when the next flow ends, or a capacity changes."""
        while self._ends and self._ends[0][3].version != self._ends[0][2]:  # the group's next end has changed since
            heappop(self._ends)
        if self._ends:
            time = round(self._ends[0][0])
            if self._changes:
                time = min(time, self._changes[0][0])
            if time < self._alarm or self._alarm <= self._env._now:  # before the alarm, or the alarm is over
                self._alarm = time
                self._env.later(max(0, time - self._env._now), self._wake)

    def _finish(self, time: float) -> None:
        """Finish the flows that end at this time, ns."""
        self._now = max(self._now, time)
        departures = []
        while self._ends and self._ends[0][0] <= time:
            _, _, version, group = heappop(self._ends)
            if group.version != version:
                continue
            # The exact amount at the first end, not the product of level and time, whose rounding error might miss it.
            group.moved, group.last_change = group.amounts_at_end[0][0], self._now
            while group.amounts_at_end and group.amounts_at_end[0][0] <= group.moved:
                departures.append(heappop(group.amounts_at_end)[2])
        for flow in departures:
            for link in flow.path:
                del self._flows_on[link][flow]
                if self._equal_weights:
                    self._weight[link] -= 1.0
                else:  # a difference of very unequal weights would keep rounding errors of the larger ones
                    self._weight[link] = math.fsum(other.weight for other in self._flows_on[link])
                if link in self._changes_since_end:
                    self._changes_since_end[link] = 0
        if departures:
            self._divide(departures, ())
        for flow in departures:
            flow.done.succeed()

    def _put(self, flow: Flow) -> None:
        """Add a flow to its links."""
        for link in flow.path:
            if self._slowed and self._valid_until.get(link, math.inf) <= self._env._now:
                self._set_capacity(link)
            self._flows_on[link][flow] = None
            self._weight[link] += flow.weight

    def _divide(self, departures: Sequence[Flow], arrivals: Sequence[Flow], affected: Collection[Flow] = ()) -> None:
        """Set the rates again after flows have ended or begun, or the capacities of their links have changed."""
        groups: dict[_Group | None, None] = dict.fromkeys(flow.group for flow in (*departures, *affected))
        for flow in arrivals:
            for link in flow.path:
                for other in self._flows_on[link]:
                    if other.group is not None:
                        groups[other.group] = None
                        break  # in an isolated group, all flows of a link are of that group
        # An isolated group has no other group's flows on its links, so the search for connected flows is not needed.
        single = next(iter(groups)) if len(groups) == 1 and not affected else None
        if single is not None and single.isolated and self._stays(single, arrivals):
            return
        visited: set[Flow] = set()
        starts = dict.fromkeys((*arrivals, *affected))  # flows from which the search begins
        for flow in departures:
            for link in flow.path:
                starts.update(self._flows_on[link])
        for group in groups:
            if group is not None and group.link is None:  # all leave it, but links need not connect them any more
                starts.update(dict.fromkeys(flow for _, _, flow in group.amounts_at_end))
        for flow in starts:
            if flow not in visited:
                self._fill(self._connected(flow, visited))

    def _stays(self, group: _Group, arrivals: Sequence[Flow]) -> bool:
        """Let flows join an isolated group, if the same holds back all of them; return False if it does not."""
        # To divide the links among all connected flows anew gives the same rates, but looks at each of them at every beginning:
        # with 256 workers at one server's card, runs took nine times as long.
        for flow in arrivals:
            self._bound(flow)
        level = (
            self._level_by_limits(group, arrivals) if group.link is None else self._level_by_link(group, group.link, arrivals)
        )
        if level is None:
            return False
        group.advance(self._now)
        for flow in arrivals:
            self._join(group, flow)
        self._set_level(group, level)
        return True

    def _level_by_limits(self, group: _Group, arrivals: Sequence[Flow]) -> float | None:
        """Return the level of a group whose flows have their highest rates; None if one begins that cannot have the same."""
        equal_limits = all(flow.max_rate == group.level for flow in arrivals)
        fits = all(self._load(link) * group.level <= 1 for flow in arrivals for link in flow.shared)
        return group.level if equal_limits and fits else None

    def _level_by_link(self, group: _Group, link: int, arrivals: Sequence[Flow]) -> float | None:
        """Return the level of a group whose flows share this link; None if something else holds one of them back."""
        if any(link not in flow.path for flow in arrivals):
            return None
        for flow in arrivals:
            group.max_load = max(
                group.max_load, 1 / flow.max_rate, *(self._load(other) for other in flow.shared if other != link)
            )
        weight = self._weight[link]
        if group.max_load * self._capacity[link] > weight > 0:  # level > 1 / max_load: another link or limit may be tighter
            return None
        return self._capacity[link] / weight if weight else 0.0

    def _bound(self, flow: Flow) -> None:
        """Set the links that a flow shares with others, and the highest rate that its limit and its other links allow."""
        limit, flow.shared = flow.limit, []
        for link in flow.path:
            if len(self._flows_on[link]) > 1:
                flow.shared.append(link)
            elif (capacity := self._capacity[link]) < limit:
                limit = capacity
        flow.max_rate = limit / flow.weight

    def _load(self, link: int) -> float:
        """Return the weight per capacity on a link, ns per byte."""
        return self._weight[link] / self._capacity[link]

    def _join(self, group: _Group, flow: Flow) -> None:
        """Add a flow to a group."""
        flow.amount_at_end = group.moved + flow.size / flow.weight
        flow.group = group
        heappush(group.amounts_at_end, (flow.amount_at_end, next(self._number), flow))

    def _set_level(self, group: _Group, level: float) -> None:
        """Set the rate per weight of a group, bytes per ns."""
        group.level = level
        # Entries that the group already has in `_ends` stay there: their version is older, so they are skipped. Its first end
        # is nearest, as all its flows have one rate per weight.
        group.version += 1
        if group.amounts_at_end:
            remaining = group.amounts_at_end[0][0] - group.moved
            heappush(self._ends, (self._now + remaining / level, next(self._number), group.version, group))

    def _connected(self, flow: Flow, visited: set[Flow]) -> list[Flow]:
        """Return the flows that are connected with this one by links; add them to `visited`."""
        component, links = [flow], set()
        visited.add(flow)
        for member in component:
            for link in member.path:
                if link not in links:
                    links.add(link)
                    for other in self._flows_on[link]:
                        if other not in visited:
                            visited.add(other)
                            component.append(other)
        return component

    def _fill(self, flows: list[Flow]) -> None:
        """Divide the links among connected flows: raise all rates together, and stop those that a full link holds back."""
        # Progressive filling [Bertsekas, Gallager 1992, section 6.5.2]. Each turn finds the lowest level at which a link is
        # full or a limit is reached, and gives the flows that it holds back this rate per weight. Their rates are subtracted
        # from the other links on their paths, so the next level is no lower; only rounding could make it so. The list of these
        # flows is empty if links have already held back all flows of a limit.
        self._leave_groups(flows)
        unassigned = dict.fromkeys(flows)
        falling_limits = sorted({flow.max_rate for flow in flows if flow.max_rate < math.inf}, reverse=True)
        links = dict.fromkeys(link for flow in flows for link in flow.shared)
        unassigned_counts = {link: len(self._flows_on[link]) for link in links}  # flows without a rate
        capacity_left = {link: self._capacity[link] for link in links}
        unassigned_weight = {link: self._weight[link] for link in links}
        last_level, groups = 0.0, []
        while unassigned:
            level, link = math.inf, None
            for candidate in unassigned_counts:
                if (fair_level := capacity_left[candidate] / unassigned_weight[candidate]) < level:
                    level, link = fair_level, candidate
            if falling_limits and falling_limits[-1] <= level:
                level, link = falling_limits.pop(), None
                bottlenecked = [flow for flow in unassigned if flow.max_rate <= level]
            else:
                assert link is not None
                bottlenecked = [flow for flow in self._flows_on[link] if flow in unassigned]
            level = last_level = max(level, last_level)  # rounding does not lower it
            group = _Group(link, self._now)
            for flow in bottlenecked:
                del unassigned[flow]
                self._join(group, flow)
                for shared in flow.shared:
                    unassigned_counts[shared] -= 1
                    if unassigned_counts[shared]:
                        capacity_left[shared] = max(0.0, capacity_left[shared] - level * flow.weight)
                        unassigned_weight[shared] -= flow.weight
                    else:
                        del unassigned_counts[shared]
            if bottlenecked:
                self._set_level(group, level)
                groups.append(group)
        if len(groups) == 1:
            self._isolate(groups[0], flows, links)

    def _leave_groups(self, flows: list[Flow]) -> None:
        """Take flows out of their groups: what they have left is their size."""
        for flow in flows:
            if flow.group is not None:
                flow.group.advance(self._now)
                flow.group.version += 1  # nothing of it ends any more
                flow.size = (flow.amount_at_end - flow.group.moved) * flow.weight
            self._bound(flow)

    def _isolate(self, group: _Group, flows: list[Flow], links: Iterable[int]) -> None:
        """Note that a group holds all flows that these links connect, and what the next tightest limit is."""
        group.isolated = True
        loads = [self._load(link) for link in links if link != group.link]
        group.max_load = max([1 / flow.max_rate for flow in flows] + loads)
