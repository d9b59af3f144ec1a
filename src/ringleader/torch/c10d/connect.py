"""Makes groups of `torch.distributed`: ranks that know each other by MPI meet in a store, and connect.

No file, no fixed port, no name service: rank 0 opens a store on a free port and tells where; every rank
tries which of the addresses of that host it can reach, and all take the first one that all of them can. So
hosts with several networks, or whose own name leads to the loopback, need no settings. Where the environment
names interfaces (``NCCL_SOCKET_IFNAME``, ``GLOO_SOCKET_IFNAME``), their addresses are tried first.

The store is new for each group of each generation: a rank 0 that dies takes no later group's store with it.
What a group writes there is below the numbers of its generation and process set.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch

from ringleader.adapters.util import env
from ringleader.agents.host_facts_script import interfaces
from ringleader.engine.exceptions import HorovodInternalError, is_transport_error
from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.group_communicators import count_over
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.peer_wait import PeerWait
from ringleader.torch.c10d.group_watch import GroupWatch, ThreadedCall
from ringleader.torch.c10d.process_group import ProcessGroup, missing

WATCHED_BY_US = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1"}
"""Variables with which a group for an elastic job is made. Else PyTorch would end the process of every rank
whose peer has died, after it had held the group's locks for a minute to write a dump."""
PROBE_SECONDS = 3.0
"""How long an address of rank 0's host may take to answer before it counts as out of reach."""
STORE_SECONDS = 300.0
"""How long the store may take to answer."""
LOOPBACK = "127.0.0.1"
_TOKEN = "ringleader/token"

T = TypeVar("T")


def open_process_group(
    backend: str, context: TransportContext, device: torch.device, watch: GroupWatch
) -> ProcessGroup:
    """Make a group for this rank's tensors on ``device``. Collective; `HorovodInternalError` on every rank.

    The context's deadline bounds an operation inside the backend; where it has passed in NCCL, PyTorch ends
    the process, or in an elastic job ``watch``.
    """
    calls, peer_wait, generation = context.mpi_calls, context.peer_wait, context.generation
    assert calls is not None
    agree(calls, missing(backend))
    whole, own_address = rendezvous(calls, peer_wait, one_host=context.ranks.hosts == 1)
    below: Any = torch.distributed.PrefixStore  # type: ignore[attr-defined]
    store = below(store_prefix(generation, context.number), whole)
    limit = timedelta(seconds=context.deadline_seconds)
    group, problem = None, ""

    def make() -> Any:
        if backend == "gloo":
            return _gloo(store, own_address, calls, limit)
        return _nccl(store, calls, limit, device, elastic=generation > 0)

    try:
        raw = call_in_thread(peer_wait, make)
        group = ProcessGroup(
            backend,
            raw,
            store,
            peer_wait,
            count_over(context.ranks, context.traffic, backend),
            name=f"process set {context.number}" if context.number else "",
            watch=watch,
            timeout=context.deadline_seconds,
        )
        watch.add(group, generation=generation, why_broken=peer_wait.why_broken)
        call_in_thread(peer_wait, lambda: group.connect(device))
    except (RuntimeError, TypeError, AttributeError) as error:
        if isinstance(error, HorovodInternalError) or (
            isinstance(error, RuntimeError) and not is_transport_error(error)
        ):
            _give_up(group)
            raise
        problem = f"{backend} could not connect: {error}"
    try:
        agree(calls, problem)
    except HorovodInternalError:
        _give_up(group)
        raise
    assert group is not None
    return group


def store_prefix(generation: int, number: int) -> str:
    """Return below what a group of a process set writes in the store."""
    return f"ringleader/generation.{generation}/set.{number}"


def _give_up(group: ProcessGroup | None) -> None:
    if group is not None:
        group.close(together=False)


def _gloo(store: Any, own_address: str, mpi_calls: MpiCalls, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    group: Any = ProcessGroupGloo
    options = group._Options()
    # Gloo's own choice is the address of the host's name, which other hosts may not reach.
    options._devices = [group.create_device(hostname=own_address)]
    options._timeout = timeout
    options._threads = 2
    return group(store, mpi_calls.rank, mpi_calls.size, options)


def _nccl(store: Any, mpi_calls: MpiCalls, timeout: timedelta, device: torch.device, *, elastic: bool) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    torch.cuda.set_device(device)  # of this thread: NCCL's set-up looks at the current one
    with env(**(WATCHED_BY_US if elastic else {})):
        return ProcessGroupNCCL(store, mpi_calls.rank, mpi_calls.size, options)


# the store


def rendezvous(mpi_calls: MpiCalls, peer_wait: PeerWait, *, one_host: bool) -> tuple[Any, str]:
    """Open a `torch.distributed.TCPStore` that rank 0 serves to all. Collective; fails on every rank.

    Also return this rank's address on the network on which all reach rank 0. ``one_host`` says that all ranks
    share a host, which needs no network.
    """
    candidates, reached = [LOOPBACK], {LOOPBACK: LOOPBACK}
    if not one_host:
        there: Mapping[str, Sequence[str]] = interfaces() if mpi_calls.rank == 0 else {}
        # In the kernel's order: networks of containers come behind those that the machine was made with.
        there = {name: there[name] for _, name in socket.if_nameindex() if name in there}
        of_rank_0 = of_all(mpi_calls, addresses(os.environ, there) if mpi_calls.rank == 0 else [])[0]
        candidates, reached = _probe_all(mpi_calls, of_rank_0)
    address = candidates[0]
    token = secrets.token_hex(16) if mpi_calls.rank == 0 else ""
    store, problem = None, ""
    if mpi_calls.rank == 0:
        try:
            store = _store(address, 0, serves=True)
            store.set(_TOKEN, token)
        except RuntimeError as error:
            problem = f"rank 0 could not open a store: {error}"
    port = store.port if store is not None else 0
    port, token, problem = of_all(mpi_calls, [port, token, problem])[0]
    if not problem and mpi_calls.rank:
        store, problem = call_in_thread(peer_wait, lambda: _connect_to_store(address, port, token))
    agree(mpi_calls, problem)
    return store, reached[address]


def agree(mpi_calls: MpiCalls, problem: str) -> None:
    """Raise on every rank of ``mpi_calls`` if one of them has a problem. Collective."""
    for rank, text in enumerate(of_all(mpi_calls, problem)):
        if text:
            raise HorovodInternalError(f"torch.distributed cannot be used: {text} (rank {rank})")


def call_in_thread(peer_wait: PeerWait, call: Callable[[], T]) -> T:
    """Return what the call returns, or raise what it raises.

    The call may block inside a library; the wait for it ends by the deadline, or when a peer has ended.
    """
    threaded = ThreadedCall(call, "ringleader-rendezvous")
    peer_wait.until(threaded.ended, lambda: None)
    return threaded.result()


def _store(address: str, port: int, *, serves: bool) -> Any:
    timeout = timedelta(seconds=STORE_SECONDS)
    make: Any = torch.distributed.TCPStore  # type: ignore[attr-defined]
    return make(address, port, is_master=serves, timeout=timeout, wait_for_workers=False)


def _connect_to_store(address: str, port: int, token: str) -> tuple[Any, str]:
    """Connect to rank 0's store; the token tells that it is that one and no other program."""
    try:
        store = _store(address, port, serves=False)
        if store.get(_TOKEN).decode() == token:
            return store, ""
    except (RuntimeError, UnicodeDecodeError) as error:
        return None, f"no store at {address}:{port}: {error}"
    return None, f"another program answers at {address}:{port}"


def of_all(mpi_calls: MpiCalls, value: Any) -> list[Any]:
    """Return every rank's value, which JSON can carry, in rank order. Collective."""
    return [json.loads(one) for one in mpi_calls.messages(json.dumps(value).encode())]


def _probe_all(mpi_calls: MpiCalls, candidates: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the addresses that every rank reaches, and this rank's own address on the way to each."""
    listener = None
    if mpi_calls.rank == 0:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listener = socket.create_server(("", 0), family=family, backlog=4096, dualstack_ipv6=both)
    port = listener.getsockname()[1] if listener else 0
    port = mpi_calls.integers(port)[0]
    if mpi_calls.rank == 0:
        reached = {address: address for address in candidates}
    else:
        with ThreadPoolExecutor(max(1, len(candidates))) as pool:
            own_addresses = list(pool.map(lambda address: _own_address(address, port), candidates))
        reached = {address: own for address, own in zip(candidates, own_addresses, strict=True) if own}
    reached_by_rank = of_all(mpi_calls, list(reached))
    if listener:
        listener.close()
    common = [address for address in candidates if all(address in one for one in reached_by_rank)]
    if not common:
        blind = [rank for rank, one in enumerate(reached_by_rank) if not one][:8] or "some"
        raise HorovodInternalError(
            f"torch.distributed cannot be used: of the addresses of rank 0's host ({', '.join(candidates)}) "
            f"none is reached by all ranks (none at all by ranks {blind}). Name the interface to use with "
            "NCCL_SOCKET_IFNAME, and look for a firewall between the hosts."
        )
    return common, reached


def _own_address(address: str, port: int) -> str:
    """Return this host's address on the way to another one, empty where that does not answer."""
    try:
        with socket.create_connection((address, port), timeout=PROBE_SECONDS) as connection:
            return str(connection.getsockname()[0])
    except OSError:
        return ""


def addresses(environ: Mapping[str, str], there: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the addresses of this host but the loopback's, the preferred ones first, IPv4 before IPv6.

    ``there``: interface → its addresses.
    """
    wanted = environ.get("NCCL_SOCKET_IFNAME") or environ.get("GLOO_SOCKET_IFNAME") or ""
    chosen = chosen_interfaces(wanted, list(there))
    found = [one for v6 in (False, True) for name in chosen for one in there[name] if (":" in one) is v6]
    for family, v6 in ((socket.AF_INET, False), (socket.AF_INET6, True)):
        with suppress(OSError):
            named = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
            found += [str(entry[4][0]) for entry in named]
        found += [one for each in there.values() for one in each if (":" in one) is v6]
    return [one for one in dict.fromkeys(found) if not one.startswith(("127.", "fe80:")) and one != "::1"]


def chosen_interfaces(wanted: str, names: Sequence[str]) -> list[str]:
    """Return the interfaces that NCCL's setting means: ``eth,ib`` prefixes, ``=eth0`` exact, ``^`` not."""
    if not wanted:
        return []
    unwanted, exact = wanted.startswith("^"), "=" in wanted[:2]
    words = [word for word in wanted.lstrip("^=").split(",") if word]

    def meant(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [name for name in names if meant(name) is not unwanted]
