"""What containers have said and how commands run in them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.kube.fake.store import Document


class Log:
    """The output of one run of one container; it grows until the run ends."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.times: list[int] = []
        """When each was written: nanoseconds since the epoch."""
        self.is_ended = False
        self._grown = asyncio.Event()

    def write(self, text: bytes) -> None:
        found = text.splitlines(keepends=True)
        now = time.time_ns()
        self.lines += found
        self.times += range(now, now + len(found))
        self._grown.set()

    def end(self) -> None:
        self.is_ended = True
        self._grown.set()

    def text(self, start: int = 0, *, stamped: bool = False, since: float = 0.0) -> list[bytes]:
        """Return lines from a place on, as the kubelet does: Kubernetes 1.36, cri-client/pkg/logs/logs.go."""
        found = []
        for place in range(start, len(self.lines)):
            seconds, nano = divmod(self.times[place], 10**9)
            if seconds < since:
                continue
            is_start = place == 0 or self.lines[place - 1].endswith(b"\n")
            stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nano:09d}Z "
            found.append((stamp.encode() if stamped and is_start else b"") + self.lines[place])
        return found

    async def follow(self, start: int, *, stamped: bool = False) -> AsyncIterator[bytes]:
        """Yield lines from a place on, until the run ends."""
        while True:
            self._grown.clear()
            found = b"".join(self.text(start, stamped=stamped))
            start = len(self.lines)
            if found:
                yield found
            elif self.is_ended:
                return
            else:
                await self._grown.wait()


@dataclass(kw_only=True)
class Execution:
    """A command that is to run in a container."""

    pod: Document
    container: str
    command: tuple[str, ...]
    input: asyncio.Queue[bytes | None]
    """Standard input as it comes; ``None``: it has ended."""
    write: Callable[[int, bytes], Awaitable[None]]
    """Takes (1, standard output) and (2, standard error)."""


Handler = Callable[[Execution], Awaitable[int]]
"""Carries out a command; returns its exit code."""


@dataclass
class Containers:
    """Logs and commands of all containers."""

    handler: Handler | None = None
    logs: dict[tuple[str, str, str], list[Log]] = field(default_factory=dict)
    """Namespace, Pod's uid, container → its runs, the present one last."""

    def log(self, namespace: str, uid: str, container: str) -> Log:
        """The present run's log, begun if need be."""
        runs = self.logs.setdefault((namespace, uid, container), [])
        if not runs:
            runs.append(Log())
        return runs[-1]

    def begin_run(self, namespace: str, uid: str, container: str) -> None:
        """A container has started anew: what it said before is its previous log."""
        runs = self.logs.setdefault((namespace, uid, container), [])
        if runs:
            runs[-1].end()
        runs.append(Log())
        del runs[:-2]

    def forget(self, namespace: str, uid: str) -> None:
        """A Pod has gone, and its logs with it."""
        for key in [key for key in self.logs if key[:2] == (namespace, uid)]:
            for log in self.logs.pop(key):
                log.end()


def local_process(
    *, prefix: Callable[[Execution], Sequence[str]], environment: Callable[[Execution], dict[str, str]]
) -> Handler:
    """Return a handler that runs commands as processes of this machine.

    ``prefix`` names what to put in front of a command, for instance how to enter a network namespace.
    """

    async def run(execution: Execution) -> int:
        process = await asyncio.create_subprocess_exec(
            *prefix(execution),
            *execution.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(execution),
        )
        feed = asyncio.create_task(_feed(execution, process.stdin))
        try:
            await asyncio.gather(_drain(process.stdout, execution, 1), _drain(process.stderr, execution, 2))
            return await process.wait()
        finally:
            feed.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()

    return run


async def _feed(execution: Execution, stdin: asyncio.StreamWriter) -> None:
    try:
        while (data := await execution.input.get()) is not None:
            stdin.write(data)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return  # the command reads no more
    stdin.close()


async def _drain(stream: asyncio.StreamReader, execution: Execution, channel: int) -> None:
    while data := await stream.read(65536):
        await execution.write(channel, data)
