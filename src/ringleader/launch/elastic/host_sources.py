"""Which hosts are there now? One port, and a source for each place that may know.

A source is asked with ``look``, which answers within its own deadline or raises; how often, and which
answers count, is ``host_watch``'s and ``host_answers``' business.
"""

from __future__ import annotations

import os
from typing import Protocol

from ringleader.batch_system import expand_nodes
from ringleader.host_list import parse_hostfile
from ringleader.job import Host
from ringleader.launch.elastic.host_answers import HostSourceError, hosts_in, no_answer, with_default_slots
from ringleader.launch.elastic.source_command import output_of
from ringleader.text_files import read_text
from ringleader.value_class import dataclass

SCRIPT_SECONDS = 30.0
"""What a discovery script may take."""


class HostSource(Protocol):
    """Whoever knows which hosts there are now."""

    @property
    def name(self) -> str:
        """What messages call it: a file's path, a program."""

    @property
    def period(self) -> float:
        """Seconds between two looks."""

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Return the hosts that there are now; none is an answer too.

        Raises HostSourceError where nobody can say, KeyboardInterrupt once ``stop``, a descriptor, is
        readable.
        """

    def close(self) -> None:
        """Let go of what is held; no look follows."""


@dataclass(frozen=True, kw_only=True)
class FixedHosts:
    """Hosts that are always the same."""

    hosts: tuple[Host, ...]
    name: str = "-H"
    period: float = 3600.0

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Return them."""
        return self.hosts

    def close(self) -> None:
        """Hold nothing."""


@dataclass(frozen=True, kw_only=True)
class DiscoveryScript:
    """A program that prints ``host`` or ``host:slots``, one a line."""

    argv: tuple[str, ...]
    """Program and arguments; see ``source_command.command_words``."""
    default_slots: int | None = None
    """For lines without slots; ``None``: as many as the host has cores."""
    seconds: float = SCRIPT_SECONDS
    """After which it is ended and has failed."""
    period: float = 1.0

    @property
    def name(self) -> str:
        """Return the program."""
        return self.argv[0]

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Run it."""
        hosts = hosts_in(output_of(self.argv, seconds=self.seconds, stop=stop), self.name)
        return with_default_slots(hosts, self.default_slots)

    def close(self) -> None:
        """Hold nothing: each run has ended."""


class Hostfile:
    """A hostfile that somebody edits while the job runs; read again when its size, time or inode changed."""

    period = 1.0

    def __init__(self, path: str, *, default_slots: int | None = None) -> None:
        """Read nothing yet."""
        self.name = path
        self._default_slots = default_slots
        self._state: tuple[int, ...] | None = None
        self._hosts: tuple[Host, ...] = ()

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Return what the file says. An empty file is a fault: an editor may be about to write it."""
        try:
            found = os.stat(self.name)  # noqa: PTH116 - every path that open() takes
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if state == self._state:
                return self._hosts
            parsed = parse_hostfile(read_text(self.name), self.name)
        except OSError as error:
            self._state = None
            raise no_answer(self.name, f"cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise no_answer(self.name, "is not a text in UTF-8") from None
        if parsed.faults:
            raise HostSourceError(parsed.faults)
        self._hosts = with_default_slots(parsed.hosts, self._default_slots)
        self._state = state
        return self._hosts

    def close(self) -> None:
        """Hold nothing."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """The nodes of the Slurm job that we run in, as Slurm's controller knows them now.

    They change where a node fails (``--no-kill``) or the job is resized; Slurm's variables do not follow.
    """

    hosts: tuple[Host, ...]
    """As they were when we started: they say the nodes' slots. One that came later gets the fewest."""
    job_id: str
    seconds: float = 20.0
    period: float = 30.0
    """Slurm's controller serves the whole cluster: it is asked seldom."""

    @property
    def name(self) -> str:
        """Return what is asked."""
        return f"scontrol show job {self.job_id}"

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Ask Slurm's controller."""
        argv = ("scontrol", "--oneliner", "show", "job", self.job_id)
        names = slurm_nodes(output_of(argv, seconds=self.seconds, stop=stop), self.name)
        slots = {host.name: host.slots for host in self.hosts}
        fewest = min((count for count in slots.values() if count is not None), default=1)
        return tuple(Host(name=name, slots=slots.get(name, fewest)) for name in names)

    def close(self) -> None:
        """Hold nothing."""


def slurm_nodes(text: str, where: str) -> tuple[str, ...]:
    """Read the nodes from a line of ``scontrol --oneliner show job``. Raises HostSourceError."""
    words = dict(word.partition("=")[::2] for word in text.split())
    nodes = words.get("NodeList", "")
    if nodes in ("", "(null)"):
        state = words.get("JobState", "")
        raise no_answer(where, f"the job has no nodes{f' ({state})' if state else ''}")
    try:
        return expand_nodes(nodes)
    except ValueError as error:
        raise no_answer(where, str(error)) from None
