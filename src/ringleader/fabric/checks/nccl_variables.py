"""Checks of NCCL's variables, in the environment and in nccl.conf: contradictions, unknown names. Pure.

Sources: NCCL's documentation, page "Environment Variables" (docs/userguide/source/env.rst).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import (
    RDMA_DEVICE,
    active_ports,
    ports,
    usable_devices,
    usable_gpus,
)
from ringleader.fabric.facts import HostFacts, NetDevice, RdmaDevice, RdmaPort
from ringleader.fabric.nccl_name_list import matches

_check = partial(check, group="NCCL's variables")

FALSE = ("", "0", "n", "no", "off", "false")


def nccl_variable(facts: HostFacts, name: str) -> str:
    """Return what NCCL uses: the environment's value, else the first nccl.conf's; empty: not set."""
    if name in facts.environment:
        return facts.environment[name]
    return next((values[name] for values in facts.nccl_files.values() if name in values), "")


def _is_set(facts: HostFacts, name: str) -> bool:
    return nccl_variable(facts, name).strip().lower() not in FALSE


@_check(
    "nccl.ib-disable",
    "NCCL may use RDMA",
    reads="NCCL_IB_DISABLE, NCCL_NET, NCCL_NET_PLUGIN; /etc/nccl.conf",
    why="each of these variables can switch RDMA off, although the NICs are here",
    remedy="unset it, where it was not meant",
    passes="RDMA is not switched off",
    fails="NCCL_IB_DISABLE is 1, or NCCL_NET is Socket",
    needs=RDMA_DEVICE,
)
def ib_disabled(facts: HostFacts) -> Iterator[CheckResult]:
    net = nccl_variable(facts, "NCCL_NET")
    if _is_set(facts, "NCCL_IB_DISABLE"):
        yield failed(f"NCCL_IB_DISABLE={nccl_variable(facts, 'NCCL_IB_DISABLE')}", expected="not set")
    elif net.lower() == "socket":
        yield failed(f"NCCL_NET={net}", expected="not set, or IB")
    else:
        yield passed("not switched off" + (f", NCCL_NET={net}" if net else ""))


@_check(
    "nccl.contradiction",
    "NCCL's variables agree with each other",
    reads="NCCL_* of the environment and nccl.conf",
    why="two that exclude each other: NCCL fails at its start, or takes neither",
    remedy="keep one of the two",
    passes="no two of them contradict each other",
    fails="NCCL_NET=IB with NCCL_IB_DISABLE=1; NCCL_NET=IB with a list that leaves no device",
    warns="NCCL_IB_HCA together with NCCL_IB_DISABLE=1; GPUDirect asked for and forbidden",
)
def contradiction(facts: HostFacts) -> Iterator[CheckResult]:
    disabled = _is_set(facts, "NCCL_IB_DISABLE")
    wants_ib = nccl_variable(facts, "NCCL_NET").upper() == "IB"
    hca = nccl_variable(facts, "NCCL_IB_HCA")
    level = nccl_variable(facts, "NCCL_NET_GDR_LEVEL").upper()
    if wants_ib and disabled:
        yield failed("NCCL_NET=IB and NCCL_IB_DISABLE=1")
    elif hca and disabled:
        yield warned(f"NCCL_IB_HCA={hca} and NCCL_IB_DISABLE=1")
    elif level in ("0", "LOC") and _is_set(facts, "NCCL_NET_GDR_READ"):
        yield warned(f"NCCL_NET_GDR_LEVEL={level} forbids GPUDirect, NCCL_NET_GDR_READ=1 asks for it")
    else:
        yield passed("no contradiction")


@_check(
    "nccl.conf",
    "nccl.conf and the environment agree",
    reads="/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE",
    why="values hide in that file: the environment wins, and a rank that lacks the variable uses another"
    " value",
    remedy="remove one of the two values",
    passes="no variable has two values",
    warns="a variable has another value in the file",
    skips="there is no such file",
    source="NCCL's documentation: the environment wins over the file",
)
def conf_file(facts: HostFacts) -> Iterator[CheckResult]:
    odd = 0
    for path, values in facts.nccl_files.items():
        for name, value in values.items():
            if name in facts.environment and facts.environment[name] != value:
                odd += 1
                yield warned(f"{value} in {path}, {facts.environment[name]} in the environment", subject=name)
    if not facts.nccl_files:
        yield skipped("no nccl.conf here")
    elif not odd:
        yield passed(f"{', '.join(sorted(facts.nccl_files))}: no other values than in the environment")


@_check(
    "nccl.hca",
    "NCCL_IB_HCA names devices that are here",
    reads="NCCL_IB_HCA, /sys/class/infiniband",
    why="a name that fits no device leaves NCCL without RDMA, and it goes on with sockets",
    remedy="name devices of this host; = before the list asks for whole names, otherwise they are prefixes",
    passes="it is not set, or fits devices",
    warns="a part of the list fits none; or it leaves out half or more of equal ports, and more GPUs than"
    " ports are left",
    fails="no port is left that is ACTIVE",
    source="NCCL's documentation of NCCL_IB_HCA",
    needs=RDMA_DEVICE,
)
def hca(facts: HostFacts) -> Iterator[CheckResult]:
    names = nccl_variable(facts, "NCCL_IB_HCA")
    if not names:
        yield passed("not set: NCCL takes all that are ACTIVE")
        return
    active = {_nccl_name(device, port): (device, port) for device, port in active_ports(facts)}
    lost, chosen = matches(names, [_nccl_name(device, port) for device, port in ports(facts)])
    used = [one for one in chosen if one in active]
    here = ", ".join(one.name for one in usable_devices(facts))
    if not chosen:
        yield failed(f"NCCL_IB_HCA={names} leaves no port", expected=here)
    elif active and not used:
        seen = f"NCCL_IB_HCA={names} leaves {', '.join(chosen)}, of which none is ACTIVE"
        yield failed(seen, expected=", ".join(active))
    elif lost:
        yield warned(f"NCCL_IB_HCA={names}: {', '.join(lost)} is not here", expected=here)
    elif idle := _equal_but_left_out(facts, active, used):
        seen = f"NCCL_IB_HCA={names}: {len(used)} of {len(used) + len(idle)} equal ports"
        yield warned(seen, expected=f"all of them, for {len(usable_gpus(facts))} GPUs")
    else:
        yield passed(f"{names}: {', '.join(chosen)}")


def _nccl_name(device: RdmaDevice, port: RdmaPort) -> str:
    return f"{device.name}:{port.number}"


def _equal_but_left_out(
    facts: HostFacts, active: Mapping[str, tuple[RdmaDevice, RdmaPort]], used: Sequence[str]
) -> list[str]:
    """Return active ports like those used that are left out, where half of them or more are.

    Empty where there is a used port for each GPU: then the others may be for storage.
    """
    if not used or len(used) >= len(usable_gpus(facts)):
        return []
    sorts = {name: (device.board_id, port.link_layer, port.rate) for name, (device, port) in active.items()}
    kinds = {sorts[one] for one in used}
    idle = [name for name, kind in sorts.items() if name not in used and kind in kinds]
    return idle if len(idle) >= len(used) else []


@_check(
    "nccl.ifname",
    "NCCL_SOCKET_IFNAME names an interface that is up",
    reads="NCCL_SOCKET_IFNAME, /sys/class/net",
    why="ranks find each other over it; one that is not here ends with 'no socket interface found'",
    remedy="name the interface on which hosts reach each other, or unset it",
    passes="it is not set, or an interface that is up and is not the loopback fits",
    warns="it names the loopback or Docker's bridge, on which no other host is",
    fails="none fits, or those that fit are down",
    source="NCCL's documentation of NCCL_SOCKET_IFNAME",
)
def socket_interface(facts: HostFacts) -> Iterator[CheckResult]:
    names = nccl_variable(facts, "NCCL_SOCKET_IFNAME")
    if names:
        yield judge_interfaces(facts, "NCCL_SOCKET_IFNAME", names)
    else:
        yield passed("not set: NCCL chooses")


def judge_interfaces(facts: HostFacts, variable: str, names: str) -> CheckResult:
    """Return the verdict on a list of interfaces in NCCL's syntax."""
    every = {one.name: one for one in facts.net_devices}
    _, chosen = matches(names, list(every))
    up = [name for name in chosen if every[name].up]
    if not chosen:
        return failed(f"{variable}={names}: no such interface", expected=", ".join(every))
    if not up:
        return failed(f"{variable}={names}: {', '.join(chosen)} is down")
    if all(_is_local(every[name]) for name in up):
        return warned(f"{variable}={names}: on {', '.join(up)} no other host is reached")
    return passed(f"{names}: {', '.join(up)}")


def _is_local(interface: NetDevice) -> bool:
    return interface.kind == "loopback" or interface.name.startswith(("docker", "virbr", "cni0"))


CHECKS: tuple[Check, ...] = (
    ib_disabled,
    contradiction,
    conf_file,
    hca,
    socket_interface,
)
