"""Checks of NCCL's variables that tune or trace it: what is for debugging, threads, timeouts, logs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, warned
from ringleader.fabric.checks.conditions import NVIDIA, RDMA_DEVICE
from ringleader.fabric.checks.nccl_variables import nccl_variable
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="NCCL's variables")

DEBUGGING = (
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_BUFFSIZE",
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_POINTERS",
    "NCCL_NVB_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_PXN_DISABLE",
    "NCCL_LL_THRESHOLD",
    "NCCL_TREE_THRESHOLD",
    "NCCL_SINGLE_RING_THRESHOLD",
)
"""Variables of NCCL's documentation, section Debugging, which asks to keep them out of production.

Left out: those with a check of their own, and those that clusters' vendors ask for
(NCCL_IB_QPS_PER_CONNECTION).
"""


@_check(
    "nccl.debugging",
    "No variable of NCCL's is set that is for debugging",
    reads=f"{', '.join(DEBUGGING[:5])} …; /etc/nccl.conf",
    why="such variables switch off transports or fix what NCCL tunes; left over from debugging they cost"
    " speed",
    remedy="unset it, unless a measurement on these machines says otherwise",
    passes="none is set",
    warns="one is",
    source="NCCL's documentation, section Debugging",
)
def debugging(facts: HostFacts) -> Iterator[CheckResult]:
    found = {name: nccl_variable(facts, name) for name in DEBUGGING if nccl_variable(facts, name)}
    for name, value in found.items():
        yield warned(f"{name}={value}", expected="not set", subject=name)
    if not found:
        yield passed("none")


@_check(
    "nccl.gdr-level",
    "GPUDirect RDMA is not forbidden",
    reads="NCCL_NET_GDR_LEVEL, NCCL_IB_CUDA_SUPPORT",
    why="with level LOC each byte goes through the host's memory: about half the speed",
    remedy="unset it: NCCL chooses by distance (up to PXB)",
    passes="not forbidden",
    warns="NCCL_NET_GDR_LEVEL is LOC or 0, or SYS, which also uses ways that are slower than the host's"
    " memory",
    source="NCCL's documentation of NCCL_NET_GDR_LEVEL",
    needs=NVIDIA,
)
def gdr_level(facts: HostFacts) -> Iterator[CheckResult]:
    level = nccl_variable(facts, "NCCL_NET_GDR_LEVEL").upper()
    if level in ("0", "LOC"):
        yield warned(f"NCCL_NET_GDR_LEVEL={level}", expected="not set, PIX, PXB or PHB")
    else:
        yield passed(level or "not set: NCCL chooses")


@_check(
    "nccl.sockets",
    "NCCL's socket threads are within its limit",
    reads="NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD",
    why="their product may be 64 at most; NCCL lowers it with a warning",
    remedy="lower one of them; 4 × 4 is a good start at 100 Gbit/s",
    passes="the product is at most 64",
    warns="it is more",
    fails="one is not a number",
    source="NCCL's documentation of NCCL_NSOCKS_PERTHREAD",
)
def sockets(facts: HostFacts) -> Iterator[CheckResult]:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    texts = {name: nccl_variable(facts, name).strip() for name in names}
    odd = [name for name, text in texts.items() if text and not text.isdecimal()]
    if odd:
        yield failed(", ".join(f"{name}={texts[name]}" for name in odd), expected="a number")
        return
    threads, each = (int(text or 1) for text in texts.values())
    if threads * each > 64:
        yield warned(f"{threads} × {each} sockets", expected="at most 64")
    else:
        yield passed("not set" if not any(texts.values()) else f"{threads} × {each} sockets")


@_check(
    "nccl.timeout",
    "RDMA's timeout is long enough, and not too long",
    reads="NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT",
    why="the timeout is 4.096 µs × 2^value × tries: too short and a switch that reroutes ends the job, too"
    " long and"
    " a job stands still",
    remedy="unset it, or use 18 to 23",
    passes="not set, or from 14 to 24",
    warns="outside of that; 0 waits forever",
    fails="not a number from 0 to 31",
    source="NCCL's documentation of NCCL_IB_TIMEOUT; 14: its oldest default; 24 (8 minutes with 7 tries):"
    " ours",
    needs=RDMA_DEVICE,
)
def timeout(facts: HostFacts) -> Iterator[CheckResult]:
    text = nccl_variable(facts, "NCCL_IB_TIMEOUT").strip()
    if not text:
        yield passed("not set")
    elif not text.isdecimal() or int(text) > 31:
        yield failed(f"NCCL_IB_TIMEOUT={text}", expected="14 to 24")
    elif not 14 <= int(text) <= 24:
        yield warned(f"NCCL_IB_TIMEOUT={text}", expected="14 to 24")
    else:
        yield passed(text)


@_check(
    "nccl.log",
    "NCCL does not log each call",
    reads="NCCL_DEBUG, NCCL_DEBUG_SUBSYS",
    why="TRACE, and the subsystems COLL and CALL, write lines for each operation: slow, and large files",
    remedy="NCCL_DEBUG=INFO tells the transports; WARN is enough every day",
    passes="not set, VERSION, WARN or INFO",
    warns="TRACE, or INFO with the subsystems ALL, COLL or CALL",
    source="NCCL's documentation of NCCL_DEBUG",
)
def log(facts: HostFacts) -> Iterator[CheckResult]:
    level, subsystems = (nccl_variable(facts, name).upper() for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"))
    chatty = {"ALL", "COLL", "CALL"} & set(subsystems.replace(" ", "").split(","))
    if level == "TRACE" or (level == "INFO" and chatty):
        yield warned(f"NCCL_DEBUG={level}" + (f", NCCL_DEBUG_SUBSYS={subsystems}" if subsystems else ""))
    else:
        yield passed(f"NCCL_DEBUG={level}" if level else "not set")


CHECKS: tuple[Check, ...] = (
    debugging,
    gdr_level,
    sockets,
    timeout,
    log,
)
