"""Which transport carries a group's arrays, and which barrier its ranks meet at: shared memory where that
is."""

from __future__ import annotations

import sys

from ringleader.collectives.communicators import Communicators, RankLayout
from ringleader.collectives.digest_barrier import DigestBarrier, HostsBarrier, SharedFlags, SingleRankBarrier
from ringleader.collectives.engine_settings import EngineSettings
from ringleader.collectives.framework_adapter import FrameworkAdapter, TransportContext
from ringleader.collectives.launch_order import LaunchOrder
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.traffic import GroupTraffic
from ringleader.collectives.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.collectives.transports.plain_mpi import MpiReducer, MpiTransport
from ringleader.collectives.transports.registered_memory import RegisteredMemory
from ringleader.collectives.transports.staged_reductions import STAGING_BYTES
from ringleader.collectives.transports.transport import Transport
from ringleader.collectives.transports.window import CHUNK_BYTES, WindowTransport

LONGEST_SECONDS = 1800.0
"""The most that a framework's own transport, which begins when all ranks are there, may take for one step."""


def select_transport(
    comms: Communicators,
    kernels: FrameworkAdapter,
    peer_wait: PeerWait,
    flags: SharedFlags | None,
    settings: EngineSettings,
    *,
    number: int = 0,
) -> tuple[Transport, DigestBarrier]:
    """Return both for a group. Collective; ``flags`` are None where ranks share no memory.

    ``number`` is that of the process set.
    """
    ranks = comms.ranks
    if settings.uncoupled:
        meets = settings.in_step and ranks.size > 1
        barrier = _meeting(comms, peer_wait, flags) if meets else SingleRankBarrier()
        return UncoupledTransport(kernels, ranks.size, ranks.rank), barrier
    if ranks.size == 1:
        return LoopbackTransport(kernels), SingleRankBarrier()
    one_host = ranks.hosts == 1
    mpi_calls = comms.mpi_calls(peer_wait)
    plain = MpiTransport(mpi_calls, kernels, between_hosts=not one_host)
    flat = HostsBarrier(mpi_calls, cross=comms.comm, host=None, peer_wait=peer_wait)
    if settings.transport == "distributed":
        context = transport_context(
            ranks,
            peer_wait,
            settings,
            plain,
            mpi_calls,
            comms.traffic,
            number=number,
            generation=comms.world.generation,
        )
        return kernels.host_transport(context), (flags if flags is not None and one_host else flat)
    if flags is None or settings.transport == "mpi" or ranks.most_local == 1:
        return plain, flat
    staging = _new_segment(comms, STAGING_BYTES)
    if staging is None:
        return plain, flat
    registered = RegisteredMemory(
        kernels,
        me=ranks.local_rank,
        slices=ranks.least_local,
        chunk_bytes=CHUNK_BYTES,
        new_segment=lambda nbytes: _new_segment(comms, nbytes),
        free_segment=comms.give_back,
    )
    transport = WindowTransport(
        kernels=kernels,
        flags=flags,
        staging=staging,
        registered=registered,
        plain=plain,
        traffic=comms.traffic,
        cross=None if one_host else MpiReducer(comms.cross_calls(peer_wait), kernels, between_hosts=True),
        equal=ranks.homogeneous,
    )
    if one_host or not ranks.homogeneous:
        return transport, flags if one_host else flat
    return transport, HostsBarrier(mpi_calls, cross=comms.cross, host=flags, peer_wait=peer_wait)


def _meeting(comms: Communicators, peer_wait: PeerWait, flags: SharedFlags | None) -> DigestBarrier:
    """Return the barrier that the ranks of a coupled job would meet at."""
    if flags is not None and comms.ranks.hosts == 1:
        return flags
    host = flags if comms.ranks.homogeneous else None
    return HostsBarrier(
        comms.mpi_calls(peer_wait),
        cross=comms.comm if host is None else comms.cross,
        host=host,
        peer_wait=peer_wait,
    )


def transport_context(
    ranks: RankLayout,
    peer_wait: PeerWait,
    settings: EngineSettings,
    host: Transport,
    mpi_calls: MpiCalls | None,
    traffic: GroupTraffic,
    *,
    number: int = 0,
    generation: int = 0,
    launch_order: LaunchOrder | None = None,
) -> TransportContext:
    """Return what a framework's own transports are told of a group."""
    return TransportContext(
        ranks=ranks,
        peer_wait=peer_wait,
        deadline_seconds=min(settings.deadline_seconds, LONGEST_SECONDS),
        mpi_calls=mpi_calls,
        host=host,
        requested=settings.transport,
        traffic=traffic,
        number=number,
        generation=generation,
        launch_order=launch_order or LaunchOrder(),
    )


def _new_segment(comms: Communicators, nbytes: int) -> Segment | None:
    """Return shared memory, None where a host has none left; the user is told so."""
    segment = comms.new_segment(nbytes)
    if segment is None and comms.ranks.rank == 0:
        print(  # noqa: T201
            "ringleader: /dev/shm is too small on one of the hosts, so gradients go through plain MPI, which "
            "is slower. Give it more room (docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory).",
            file=sys.stderr,
            flush=True,
        )
    return segment
