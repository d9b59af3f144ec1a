"""The MPI proxy: the program that mpirun starts beside each slot of an elastic job.

``python -m ringleader.engine.mpi_proxy``, with RINGLEADER_WORLD in its environment, and with
RINGLEADER_HOST_AGENT (the host agent's socket) or RINGLEADER_JOB_DIR, where that socket lies. It starts MPI,
tells the agent that it is ready, and does MPI for one rank, generation by generation, until the agent says
that the world is over, or goes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.agents.elastic.host_agent_client import (
    AGENT_NUMBERS,
    SOCKET,
    WORLD,
    AgentGoneError,
    Generation,
    LeaveError,
    ProxyConnection,
)
from ringleader.agents.rank_identity import machine_directory
from ringleader.agents.unix_messages import agent_socket
from ringleader.engine import mpi_library
from ringleader.engine.communicator import nap_seconds
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import WorldError
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.creation import CreationProtocol, PreparedCommunicators
from ringleader.engine.mpi_proxy.proxy_generation import ProxyGeneration

IDLE_SECONDS = 0.02
"""How often a proxy with nothing to do lets MPI move on, and answers other proxies."""
LONG_IDLE_SECONDS = 0.2
"""The same, when nothing has happened for `RECENT_SECONDS`."""
RECENT_SECONDS = 2.0
FINALIZE_SECONDS = 2.0
"""For MPI's own end, which waits for all proxies."""
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_TIMERSLACK = 29


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class DescriptorWait:
    """Waits until something can be read from one of these descriptors, with timeouts of microseconds.

    Python's own `select.poll` rounds these up to a millisecond; `select.select` takes none above 1023.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        """The descriptors stay the caller's."""
        self._polled = (_PollFd * len(fds))(*(_PollFd(fd, select.POLLIN) for fd in fds))
        self._time = _TimeSpec()
        self._arguments = self._polled, ctypes.c_ulong(len(fds)), ctypes.byref(self._time), None

    def ready(self, seconds: float) -> list[int]:
        """Wait at most this long; return those that can be read, or are at their end."""
        self._time.seconds = int(seconds)
        self._time.nanoseconds = int(seconds % 1 * 1e9)
        found = _libc.ppoll(*self._arguments)
        if found > 0:
            return [one.fd for one in self._polled if one.revents]
        if found < 0 and (error := ctypes.get_errno()) != errno.EINTR:
            raise OSError(error, os.strerror(error))
        return []


class Proxy:
    """This process."""

    def __init__(
        self,
        mpi: Any,
        agent: ProxyConnection,
        control: MpiCommunicator,
        prepared: PreparedCommunicators,
    ) -> None:
        """``control``: a communicator of all proxies that nothing else uses.

        ``prepared``: others, for the ranks.
        """
        self._mpi, self._agent, self._prepared = mpi, agent, prepared
        self._creations = CreationProtocol(control, MpiCommunicator(mpi, mpi.COMM_SELF), prepared)
        self._present: ProxyGeneration | None = None
        self._descriptors = DescriptorWait([agent.fileno()])
        self._kept: list[Any] = []
        self._busy = time.monotonic()

    def serve(self) -> None:
        """Serve until the world is over: `LeaveError` or `AgentGoneError` then."""
        while True:
            if self._turn():
                self._busy = time.monotonic()
            else:
                self._sleep()

    def _turn(self) -> bool:
        prepared = self._prepared.turn()
        made = self._creations.turn()
        if made is not None:
            (creation, comm), present = made, self._present
            if present is None or creation.generation != present.generation.number:
                self._kept.append(comm)
            elif comm is not None:
                present.created(creation, comm)
            else:  # its leader has heard that the generation is broken, as we shall: it has no communicator
                present.end_requests()
        moved = self._present.turn() if self._present is not None else False
        return moved or prepared or made is not None

    def _sleep(self) -> None:
        """Sleep until the rank or the agent wants something, until MPI has done something, or a while."""
        present = self._present if self._present is not None and not self._present.broken else None
        waits = self._creations.pending is not None
        if present is not None and not waits and not present.ring.proxy_sleeps():
            return
        idle = time.monotonic() - self._busy
        if waits or self._prepared.busy:
            ready = self._descriptors.ready(nap_seconds(idle))
        elif present is not None and present.waits_for_mpi():
            ready = self._wait_for_mpi(present)
        else:
            ready = self._descriptors.ready(IDLE_SECONDS if idle < RECENT_SECONDS else LONG_IDLE_SECONDS)
        if present is not None:
            present.ring.proxy_awake()
            if present.generation.wake_fd in ready:
                os.eventfd_read(present.generation.wake_fd)
        if self._agent.fileno() in ready or self._agent.waiting:
            self._obey()

    def _wait_for_mpi(self, present: ProxyGeneration) -> list[int]:
        """Look at what MPI does, between naps; return the descriptors that can be read, if any.

        Nothing but MPI is looked at for `IDLE_SECONDS`: the processor is the ranks'.
        """
        begun, now = self._busy, time.monotonic()
        until = now + IDLE_SECONDS
        while now < until:
            if ready := self._descriptors.ready(nap_seconds(now - begun)):
                return ready
            if present.look():
                self._busy = time.monotonic()
                break
            now = time.monotonic()
        return []

    def _obey(self) -> None:
        while (order := self._agent.order()) is not None:
            message, fds = order
            if message["do"] == "generation":
                generation = Generation(message, fds)
                self._break(generation.number - 1)
                if self._present is not None:  # no rank takes part in it any more
                    self._kept.extend(self._present.end())
                    self._present = None
                self._prepared.begin_generation()
                if generation.rank >= 0:
                    self._present = ProxyGeneration(self._mpi, self._agent, self._creations, generation)
                    self._descriptors = DescriptorWait([self._agent.fileno(), generation.wake_fd])
            else:
                self._break(message["number"])
        self._busy = time.monotonic()

    def _break(self, number: int) -> None:
        """Take nothing more from ranks in generations up to this one."""
        self._creations.close(number)
        present = self._present
        if present is not None and present.generation.number <= number:
            present.end_requests()
            self._descriptors = DescriptorWait([self._agent.fileno()])


def main() -> int:
    """Start MPI, serve, and end; return the exit code."""
    try:
        mpi = mpi_library.load(read_settings(os.environ))
    except WorldError as error:
        print(f"ringleader: MPI proxy: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    world = MpiCommunicator(mpi, mpi.COMM_WORLD)
    control = world.duplicate()
    prepared = PreparedCommunicators(world)
    try:
        agent = ProxyConnection(
            socket_path(os.environ, world.rank),
            world=int(os.environ[WORLD]),
            world_rank=world.rank,
            size=world.size,
            library=mpi.Get_library_version().strip("\0 \n").splitlines()[0],
        )
    except (AgentGoneError, KeyError, ValueError) as error:
        print(f"ringleader: MPI proxy {world.rank}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        world.comm.Abort(1)
        return 1
    threading.Thread(target=_end_with_agent, args=(agent.fileno(),), daemon=True).start()
    # Sleeps end when they are due: Linux adds up to 50 microseconds otherwise.
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    try:
        Proxy(mpi, agent, control, prepared).serve()
    except LeaveError:
        _finalize(mpi)
    except AgentGoneError:
        pass
    return 0


def _end_with_agent(fd: int) -> None:
    """End this process when the host agent goes, also where MPI keeps the main thread."""
    poll = select.poll()
    poll.register(fd, 0)
    poll.poll()
    os._exit(0)


def _finalize(mpi: Any) -> None:
    """Let MPI end, but not for ever: what was given up may keep it waiting."""
    timer = threading.Timer(FINALIZE_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    mpi.Finalize()


def socket_path(environ: Mapping[str, str], world_rank: int) -> str:
    """Return where the host agent of a proxy listens; KeyError where the environment does not tell."""
    if environ.get(SOCKET):
        return environ[SOCKET]
    numbers = json.loads(environ.get(AGENT_NUMBERS, "[]"))
    number = numbers[world_rank] if world_rank < len(numbers) else 0
    return agent_socket(machine_directory(environ), number)
