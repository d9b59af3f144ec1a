"""Which hosts are there now? A source for each place that may know, and the programs that some run.

A source is probed with ``look``, which answers within its own deadline or raises; how often that is done, and
which answers count, is ``available_hosts``' business.
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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ringleader.agents import parent_death
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.plan.batch_system import expand_nodes
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.host_list import parse_hostfile
from ringleader.plan.job import Host, Job
from ringleader.text_files import read_text
from ringleader.value_class import dataclass

MOST_RANKS = 16_384
"""Ranks that an elastic job may have at a time, and so slots that a host may."""
SCRIPT_SECONDS = 30.0
"""What a discovery script may take."""
SLURM_SECONDS = 20.0
"""What Slurm's controller may take."""
MOST_OUTPUT = 1 << 20
"""Bytes that a program may print: more are no list of hosts."""
_END_SECONDS = 1.0
"""Between SIGTERM and SIGKILL of a program that is ended."""
_TICK_SECONDS = 0.02
_LAST_WORDS = 300
"""Characters of a program's own explanation."""


class HostSourceError(RefusedError):
    """A source of hosts does not answer, or answers with something that names no hosts."""


def no_answer(where: str, what: str, hint: str = "") -> HostSourceError:
    """Return the error of a source that could not be probed."""
    return HostSourceError(Fault(where=where, what=what, hint=hint))


@dataclass(frozen=True, kw_only=True)
class HostSource:
    """Whoever knows which hosts there are now."""

    name: str
    """What messages call it: a file's path, a program."""
    probe: Callable[[int | None], Sequence[Host]]
    """See ``look``."""
    period: float | None = 1.0
    """Seconds between two looks; ``None``: its hosts are always the same."""
    known: tuple[Host, ...] = ()
    """Those that a job begins on where the source cannot be probed then; empty: it does not begin."""

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        """Return the hosts that there are now; none is an answer too.

        Raises HostSourceError where nobody can say, or a host has more slots than a job may have ranks;
        KeyboardInterrupt once ``stop``, a descriptor, is readable.
        """
        hosts = tuple(self.probe(stop))
        faults = [
            Fault(
                where=self.name,
                what=f"{host.name} has {host.slots} slots; an elastic job has at most {MOST_RANKS} ranks",
                hint="correct the number of slots",
            )
            for host in hosts
            if (host.slots or 0) > MOST_RANKS
        ]
        if faults:
            raise HostSourceError(faults)
        return hosts


def source_of(job: Job, options: ElasticOptions) -> HostSource:
    """Return the source of a job's hosts. Raises RequestError for a command that cannot be run."""
    if options.discovery_script is not None:
        words = command_words(options.discovery_script, "--host-discovery-script")
        return discovery_script(words, default_slots=options.slots)
    if options.hostfile is not None:
        return hostfile(str(Path(job.workdir, options.hostfile)), default_slots=options.slots)
    if options.slurm_job is not None:
        return slurm_job(options.slurm_job, job.hosts)
    # Without hosts this machine has as many slots as are asked for, whatever it has of cores.
    return fixed_hosts(job.hosts or (Host(name="localhost", slots=options.max_np or job.np),))


def fixed_hosts(hosts: tuple[Host, ...]) -> HostSource:
    """Hosts that are always the same."""
    return HostSource(name="-H", probe=lambda stop: hosts, period=None)


def discovery_script(argv: tuple[str, ...], *, default_slots: int | None = None) -> HostSource:
    """A program that prints ``host`` or ``host:slots``, one a line; ``argv``: see ``command_words``.

    ``default_slots``: for lines without slots; ``None``: one for each GPU of the host, else for each core.
    """

    def probe(stop: int | None) -> Sequence[Host]:
        hosts = hosts_in(output_of(argv, seconds=SCRIPT_SECONDS, stop=stop), argv[0])
        return with_default_slots(hosts, default_slots)

    return HostSource(name=argv[0], probe=probe)


def hostfile(path: str, *, default_slots: int | None = None) -> HostSource:
    """A hostfile that somebody edits while the job runs; read again when its size, time or inode changed.

    An empty file is a fault: an editor may be about to write it.
    """
    known: dict[tuple[int, ...], Sequence[Host]] = {}

    def probe(stop: int | None) -> Sequence[Host]:
        try:
            found = os.stat(path)  # noqa: PTH116 - every path that open() takes
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if state in known:
                return known[state]
            known.clear()
            parsed = parse_hostfile(read_text(path), path)
        except OSError as error:
            known.clear()
            raise no_answer(path, f"cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise no_answer(path, "is not a text in UTF-8") from None
        if parsed.faults:
            raise HostSourceError(parsed.faults)
        known[state] = with_default_slots(parsed.hosts, default_slots)
        return known[state]

    return HostSource(name=path, probe=probe)


def slurm_job(job_id: str, hosts: tuple[Host, ...]) -> HostSource:
    """The nodes of the Slurm job that we run in, as Slurm's controller knows them now.

    They change where a node fails (``--no-kill``) or the job is resized; Slurm's variables do not follow.
    ``hosts``: as they were when we started: they say the nodes' slots. One that came later gets the fewest.
    The controller serves the whole cluster, and is asked seldom.
    """
    argv = ("scontrol", "--oneliner", "show", "job", job_id)
    name = f"scontrol show job {job_id}"
    slots = {host.name: host.slots for host in hosts}
    fewest = min((count for count in slots.values() if count is not None), default=1)

    def probe(stop: int | None) -> Sequence[Host]:
        names = slurm_nodes(output_of(argv, seconds=SLURM_SECONDS, stop=stop), name)
        return [Host(name=one, slots=slots.get(one, fewest)) for one in names]

    return HostSource(name=name, probe=probe, period=30.0, known=hosts)


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

    No line is not a fault: there is no host now. HostSourceError with every line that names no host, as
    ``where:line``.
    """
    parsed = parse_hostfile(text, where)
    if not parsed.hosts and [fault.where for fault in parsed.faults] == [where]:
        return ()
    if parsed.faults:
        raise HostSourceError(parsed.faults)
    return parsed.hosts


def with_default_slots(hosts: Sequence[Host], slots: int | None) -> list[Host]:
    """Give ``slots`` to each host whose source did not say how many it has."""
    return [replace(host, slots=slots) if host.slots is None else host for host in hosts]


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


def output_of(argv: tuple[str, ...], *, seconds: float, stop: int | None = None) -> str:
    """Run a program and return what it printed to standard output.

    What it left in the background is not waited for. Raises HostSourceError where it cannot be started,
    fails, prints too much, or runs for more than ``seconds``, after which it is ended; KeyboardInterrupt once
    ``stop`` (a descriptor) is readable.
    """
    name = argv[0]
    try:
        process = subprocess.Popen(
            parent_death.argv(_by_shell(argv), seconds=_END_SECONDS),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # no file: a script may open /dev/stdout, which would empty one
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise no_answer(name, f"cannot be started: {error.strerror}") from None
    with process:  # closes its streams
        try:
            out, err = _read(process, name, seconds, stop)
        finally:
            _end(process)
    if process.returncode:
        raise no_answer(name, _failure(process.returncode, err.decode("utf-8", errors="replace")))
    return out.decode("utf-8", errors="replace")


def _read(
    process: subprocess.Popen[bytes], name: str, seconds: float, stop: int | None
) -> tuple[bytearray, bytearray]:
    """Read both streams to the program's end; of standard error the last part is kept."""
    assert process.stdout is not None and process.stderr is not None
    until, poll = time.monotonic() + seconds, select.poll()
    if stop is not None:
        poll.register(stop, select.POLLIN)
    out, err = bytearray(), bytearray()
    streams = {process.stdout.fileno(): out, process.stderr.fileno(): err}
    for fd in streams:
        os.set_blocking(fd, False)
    while True:
        ended = process.poll() is not None  # before reading: then all that it wrote is there
        for fd, into in streams.items():
            with contextlib.suppress(BlockingIOError):
                while len(out) <= MOST_OUTPUT and (data := os.read(fd, 65536)):
                    into += data
                    del err[:-MOST_OUTPUT]
        if len(out) > MOST_OUTPUT:
            what = f"printed more than {MOST_OUTPUT >> 20} MiB"
            raise no_answer(name, what, "it has to print one host a line")
        if ended:
            return out, err
        if poll.poll(_TICK_SECONDS * 1000):
            raise KeyboardInterrupt
        if time.monotonic() > until:
            raise no_answer(name, f"was ended: it had not answered after {seconds:g} s")


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


def _failure(code: int, err: str) -> str:
    how = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    words = err.strip().splitlines()
    return f"{how}: {words[-1][:_LAST_WORDS]}" if words else how
