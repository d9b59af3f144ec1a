"""Which hosts are there now? One port, a source for each place that may know, and the programs that some run.

A source is probed with ``look``, which answers within its own deadline or raises; how often that is done, and
which answers count, is ``host_offers``' business.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ringleader.agents import parent_death
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.plan.batch_system import expand_nodes
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.host_list import parse_hostfile
from ringleader.plan.job import Host, Job
from ringleader.text_files import read_text
from ringleader.value_class import dataclass

MOST_RANKS = 4096
"""Ranks that an elastic job may have at a time, and so slots that a host may."""
SCRIPT_SECONDS = 30.0
"""What a discovery script may take."""
MOST_OUTPUT = 1 << 20
"""Bytes that a program may print: more are no list of hosts."""
_END_SECONDS = 1.0
"""Between SIGTERM and SIGKILL of a program that is ended."""
_TICK_SECONDS = 0.05
_LAST_WORDS = 300
"""Characters of a program's own explanation."""


class HostSourceError(RefusedError):
    """A source of hosts does not answer, or answers with something that names no hosts."""


def no_answer(where: str, what: str, hint: str = "") -> HostSourceError:
    """Return the error of a source that could not be probed."""
    return HostSourceError(Fault(where=where, what=what, hint=hint))


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


def source_of(job: Job, options: ElasticOptions) -> HostSource:
    """Return the source of a job's hosts. Raises RequestError for a command that cannot be run."""
    if options.discovery_script is not None:
        words = command_words(options.discovery_script, "--host-discovery-script")
        return DiscoveryScript(argv=words, default_slots=options.slots)
    if options.hostfile is not None:
        return Hostfile(str(Path(job.workdir, options.hostfile)), default_slots=options.slots)
    if options.slurm_job is not None:
        return SlurmJob(hosts=job.hosts, job_id=options.slurm_job)
    # Without hosts this machine has as many slots as are asked for, whatever it has of cores.
    return FixedHosts(hosts=job.hosts or (Host(name="localhost", slots=options.max_np or job.np),))


@dataclass(frozen=True, kw_only=True)
class FixedHosts:
    """Hosts that are always the same."""

    hosts: tuple[Host, ...]
    name: str = "-H"
    period: float = 3600.0

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Return them."""
        return self.hosts


@dataclass(frozen=True, kw_only=True)
class DiscoveryScript:
    """A program that prints ``host`` or ``host:slots``, one a line."""

    argv: tuple[str, ...]
    """Program and arguments; see ``command_words``."""
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


# --- what they answer -------------------------------------------------------------------------------------


def hosts_in(text: str, where: str) -> tuple[Host, ...]:
    """Read what a discovery script printed: ``host``, ``host:2`` or ``host slots=2``, one a line.

    No line is no fault: there is no host now. HostSourceError with every line that names no host, as
    ``where:line``.
    """
    parsed = parse_hostfile(text, where)
    if not parsed.hosts and [fault.where for fault in parsed.faults] == [where]:
        return ()
    if parsed.faults:
        raise HostSourceError(parsed.faults)
    return parsed.hosts


def usable(hosts: Sequence[Host], where: str) -> tuple[Host, ...]:
    """Return the hosts of an answer; HostSourceError where one has more slots than a job may have ranks."""
    faults = [
        Fault(
            where=where,
            what=f"{host.name} has {host.slots} slots; an elastic job has at most {MOST_RANKS} ranks",
            hint="correct the number of slots",
        )
        for host in hosts
        if (host.slots or 0) > MOST_RANKS
    ]
    if faults:
        raise HostSourceError(faults)
    return tuple(hosts)


def with_default_slots(hosts: Sequence[Host], slots: int | None) -> tuple[Host, ...]:
    """Give ``slots`` to each host whose source did not say how many it has."""
    return tuple(replace(host, slots=slots) if host.slots is None else host for host in hosts)


# --- programs: without a shell, with a deadline; they outlive nobody ---------------------------------------


def command_words(text: str, option: str) -> tuple[str, ...]:
    """Split a program and its arguments as a shell would, but run nothing; a file's name is taken as it is.

    RequestError where there is no such program, or it may not be run.
    """
    try:
        words = (text,) if Path(text).is_file() else tuple(shlex.split(text))
    except ValueError as error:
        raise RequestError(f"{text!r} has unmatched quotes: {error}", where=option) from None
    if not words:
        raise RequestError(
            "names no program", where=option, hint="give the path of a script that prints hosts"
        )
    program = words[0]
    if shutil.which(program) is None:
        if not Path(program).is_file():
            hint = "give its path; words behind it are its arguments"
            raise RequestError(f"there is no program {program}", where=option, hint=hint)
        raise RequestError(f"{program} may not be run", where=option, hint=f"chmod +x {program}")
    return words


def output_of(
    argv: tuple[str, ...],
    *,
    seconds: float,
    environ: Mapping[str, str] | None = None,
    stop: int | None = None,
) -> str:
    """Run a program and return what it printed to standard output.

    Raises HostSourceError where it cannot be started, fails, prints too much, or runs for more than
    ``seconds``, after which it is ended; KeyboardInterrupt once ``stop`` (a descriptor) is readable.
    """
    name = argv[0]
    try:
        process = subprocess.Popen(
            parent_death.argv(_by_shell(argv), seconds=_END_SECONDS),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environ,
        )
    except OSError as error:
        raise no_answer(name, f"cannot be started: {error.strerror}") from None
    try:
        out, err = _read(process, name, time.monotonic() + seconds, seconds, stop)
    finally:
        _end(process)
    if process.returncode:
        raise no_answer(name, _failure(process.returncode, err))
    return out.decode("utf-8", errors="replace")


def _by_shell(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that run a program; a text without ``#!`` is one for ``sh``, as in every shell."""
    path = shutil.which(argv[0])
    if path is None:
        return argv
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(256)
    except OSError:
        return argv
    return argv if start.startswith(b"#!") or b"\0" in start else ("/bin/sh", path, *argv[1:])


def _read(
    process: subprocess.Popen[bytes], name: str, until: float, seconds: float, stop: int | None
) -> tuple[bytes, bytes]:
    """Read both streams to the program's end; what it left in the background is not waited for."""
    assert process.stdout is not None and process.stderr is not None
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = streams.values()
    poll = select.poll()
    for fd in streams:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    if stop is not None:
        poll.register(stop, select.POLLIN)
    while True:
        ended = process.poll() is not None
        for fd, _ in poll.poll(0 if ended else _TICK_SECONDS * 1000):
            if fd == stop:
                raise KeyboardInterrupt
            if not _take(fd, streams[fd]):
                poll.unregister(fd)
        if len(out) > MOST_OUTPUT:
            raise no_answer(
                name, f"printed more than {MOST_OUTPUT >> 20} MiB", "it has to print one host a line"
            )
        if ended:
            return bytes(out), bytes(err)
        if time.monotonic() > until:
            raise no_answer(name, f"was ended: it had not answered after {seconds:g} s")


def _take(fd: int, into: bytearray) -> bool:
    """Read what is there; say whether more may come."""
    with contextlib.suppress(BlockingIOError):
        while len(into) <= MOST_OUTPUT:
            data = os.read(fd, 65536)
            if not data:
                return False
            into += data
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program if it still runs, with all that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS + 2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _failure(code: int, err: bytes) -> str:
    how = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    words = err.decode("utf-8", errors="replace").strip().splitlines()
    return f"{how}: {words[-1][:_LAST_WORDS]}" if words else how
