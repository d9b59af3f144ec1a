"""Checks of memory: what is left, what the kernel promises, NUMA nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, Condition, check, failed, passed, skipped, warned
from ringleader.fabric.checks.limits import GIB
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="Memory")

SEVERAL_NODES = Condition(
    id="several-numa-nodes",
    holds=lambda facts: len(facts.numa_nodes) > 1,
    otherwise="fewer than two NUMA nodes",
)


@_check(
    "host.memory",
    "There is memory left",
    reads="MemTotal and MemAvailable of /proc/meminfo, the control group's limit",
    why="ranks, their data loaders and pinned buffers need it; without it the kernel ends one of them",
    remedy="look what else runs here; fewer ranks, or fewer data loaders",
    passes="a tenth or more is available",
    warns="less than a tenth",
    fails="less than 1 GiB",
    source="ours",
)
def memory(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.memory or facts.memory_available is None:
        yield skipped("not readable")
        return
    seen = f"{byte_size(facts.memory_available)} of {byte_size(facts.memory)} available"
    if facts.memory_available < GIB:
        yield failed(seen, expected="1 GiB or more")
    elif facts.memory_available * 10 < facts.memory:
        yield warned(seen, expected="a tenth or more")
    else:
        yield passed(seen)


@_check(
    "host.overcommit",
    "The kernel promises memory generously",
    reads="vm.overcommit_memory",
    why="with 2 a large process cannot fork, and CUDA cannot reserve its address space",
    remedy="sysctl -w vm.overcommit_memory=0",
    passes="0 or 1",
    warns="2",
    source="Linux, Documentation/mm/overcommit-accounting",
)
def overcommit(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.sysctls.get("vm.overcommit_memory")
    if value is None:
        yield skipped("not readable")
    elif value == "2":
        yield warned("2 (never more than there is)", expected="0 or 1")
    else:
        yield passed(value)


@_check(
    "host.maps",
    "A process may map enough regions",
    reads="vm.max_map_count",
    why="CUDA, NCCL and data loaders with many files map many regions: 'Cannot allocate memory' although"
    " there is some",
    remedy="sysctl -w vm.max_map_count=262144",
    passes="65530 (the default) or more",
    warns="less",
    source="Linux, Documentation/admin-guide/sysctl/vm: the default is 65530",
)
def maps(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.sysctls.get("vm.max_map_count", "")
    if not value.isdecimal():
        yield skipped("not readable")
    else:
        yield (warned if int(value) < 65530 else passed)(value, expected="65530 or more")


@_check(
    "host.numa-balancing",
    "The kernel does not move memory between NUMA nodes",
    reads="kernel.numa_balancing",
    why="it takes pages away for a moment to see who uses them: ranks that are bound pay for nothing",
    remedy="sysctl -w kernel.numa_balancing=0",
    passes="0",
    warns="it is on, with several NUMA nodes",
    source="AMD's ROCm documentation asks to switch it off on GPU servers",
    needs=SEVERAL_NODES,
)
def numa_balancing(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.sysctls.get("kernel.numa_balancing")
    if value is None:
        yield skipped("not readable")
    else:
        yield (passed if value == "0" else warned)(value, expected="0")


@_check(
    "host.numa-memory",
    "Each NUMA node has memory",
    reads="/sys/devices/system/node/node*/meminfo",
    why="a node without memory lets ranks there work in the memory of another: half the bandwidth",
    remedy="look whether its memory modules are in place and well",
    passes="each node with processors has memory, none less than half of the largest",
    warns="one has less",
    source="one half: ours",
    needs=SEVERAL_NODES,
)
def numa_memory(facts: HostFacts) -> Iterator[CheckResult]:
    known = {one.number: one.memory for one in facts.numa_nodes if one.memory is not None and one.cpus}
    most = max(known.values(), default=0)
    poor = {number: value for number, value in known.items() if value * 2 < most}
    for number, value in poor.items():
        yield warned(byte_size(value), expected=f"about {byte_size(most)}", subject=f"NUMA node {number}")
    if not known:
        yield skipped("not readable")
    elif not poor:
        yield passed(f"{len(known)} nodes, at least {byte_size(min(known.values()))}")


CHECKS: tuple[Check, ...] = (
    memory,
    overcommit,
    maps,
    numa_balancing,
    numa_memory,
)
