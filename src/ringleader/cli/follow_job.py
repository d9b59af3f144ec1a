"""A job on a cluster or in Slurm, from its sending to its end: what the terminal shows, what Ctrl-C does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, BinaryIO, Generic, Protocol

from ringleader.cli.options.kubernetes_options import FollowOptions
from ringleader.cli.returned_files import ReturnedFiles
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.errors import Fault, OutputError, RingleaderError
from ringleader.followed_job import End, Listener, Place, Progress, Sent, Work


class JobTerminal:
    """The launcher's log goes to standard output, everything of ours to standard error."""

    files: ReturnedFiles | None = None
    """What the log carries besides, where something is expected."""

    def __init__(
        self, name: str, *, stdout: BinaryIO, stderr: BinaryIO, is_tty: bool, quiet: bool = False
    ) -> None:
        """``is_tty``: standard error is a terminal, which gets a line that the next one overwrites."""
        self.name = name
        """Of the job, as lines of progress begin."""
        self._stdout, self._stderr = stdout, stderr
        self._is_tty, self._quiet = is_tty, quiet
        self._told: tuple[str, ...] = ()
        self._line = ProgressLine(is_tty=is_tty, write=self._write)
        self._at_line_start = True
        self._held: list[bytes] | None = None

    def output(self, data: bytes) -> None:
        """Show a piece of the log."""
        self._show(data if self.files is None else self.files.feed(data))

    def _show(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif data and not self._quiet:
            self._line.clear()
            self._stdout.write(data)
            self._stdout.flush()
            self._at_line_start = data.endswith(b"\n")

    def progress(self, progress: Progress) -> None:
        """Show how far the job has come."""
        if self._held is not None:
            return
        if self._is_tty:
            self._begin_line()
            self._line.show(f"{self.name}: {progress.text}")
        elif progress.key != self._told:
            self.say(f"{self.name}: {progress.text}")
        self._told = progress.key

    def warning(self, text: str) -> None:
        """Show something worth knowing although the job continues."""
        self.say(text)

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._begin_line()
        self._write(f"ringleader: {text}\n")

    def finish(self, end: End | None) -> None:
        """Leave the terminal on a new line and say how the job ended; a good end is silent."""
        if self.files is not None:
            self._show(self.files.rest())
        self._begin_line()
        if end is not None and end.exit_code:
            if end.reason:
                self.say(end.reason)
            self.say(f"exit code {end.exit_code} ({end.whose})")

    async def ask(self, question: str) -> str:
        """Show a question and return the line that is typed; what the job writes meanwhile is held back.

        The empty text: there is nobody to ask, or standard input was closed.
        """
        if not _can_ask():
            return ""
        self._begin_line()
        self._write(f"ringleader: {question} ")
        self._held = []
        try:
            return await _typed_line()
        finally:
            held, self._held = self._held, None
            for data in held:
                self._show(data)

    def _begin_line(self) -> None:
        self._line.clear()
        if not self._at_line_start:
            self._stdout.write(b"\n")
            self._stdout.flush()
            self._at_line_start = True

    def _write(self, text: str) -> None:
        self._stderr.write(text.encode(errors="replace"))
        self._stderr.flush()


def job_terminal(name: str, *, quiet: bool = False, output_to_stderr: bool = False) -> JobTerminal:
    """Return a terminal on this process's own streams."""
    return JobTerminal(
        name,
        stdout=sys.stderr.buffer if output_to_stderr else sys.stdout.buffer,
        stderr=sys.stderr.buffer,
        is_tty=sys.stderr.isatty(),
        quiet=quiet,
    )


def _can_ask() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:  # closed
        return False


async def _typed_line() -> str:
    """Read a line from the terminal without blocking what else happens."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    fd = sys.stdin.fileno()

    def read() -> None:
        try:
            data = os.read(fd, 4096)
        except OSError:  # the terminal hung up
            data = b""
        if not line.done():
            line.set_result(data.decode(errors="replace").strip())

    loop.add_reader(fd, read)
    try:
        return await line
    finally:
        loop.remove_reader(fd)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENDING = 30.0
"""Seconds that a job which is being sent is waited for after Ctrl-C: only then it is known what is left."""
QUESTION = "{verb} the job? y: {verb} it, n: leave it running, c: continue following [n]"


class Terminal(Listener, Protocol):
    """Who is informed about the job's progress, and may be asked."""

    name: str
    """Of the job."""
    files: ReturnedFiles | None
    """What its log carries besides; ``None``: nothing is expected."""

    def say(self, text: str) -> None:
        """Take a line that stays."""

    async def ask(self, question: str) -> str:
        """Return the answer to a question; the empty text where nobody answers."""


class Interrupts:
    """Signals to us, one after the other."""

    def __init__(self) -> None:
        """Begin with none."""
        self._came: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self.is_leaving = asyncio.Event()
        """Set by the second Ctrl-C."""
        self.count = 0

    def came(self, number: signal.Signals) -> None:
        """Note one."""
        self.count += 1
        if self.count > 1:
            self.is_leaving.set()
        self._came.put_nowait(number)

    async def first(self, work: asyncio.Future[Any]) -> signal.Signals | None:
        """Wait for work or for a signal; return the signal if that was first (else it waits)."""
        press = asyncio.ensure_future(self._came.get())
        both: set[asyncio.Future[Any]] = {work, press}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not press.done():
                return None
            if not work.done():
                return press.result()
            self._came.put_nowait(press.result())
            return None
        finally:
            press.cancel()

    async def until_leaving(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what work returns, or ``None`` where the user presses Ctrl-C once more."""
        doing = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self.is_leaving.wait())
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        return doing.result() if doing.done() else await _cancelled(doing)


async def _cancelled(work: asyncio.Future[Any]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Catch signals while inside. One that we were started with ignored (``nohup``) stays ignored."""
    loop, found = asyncio.get_running_loop(), Interrupts()
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, found.came, number)
    try:
        yield found
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


async def attend(
    place: Place[Sent], work: Work[Sent], terminal: Terminal, options: FollowOptions, *, name: str
) -> End:
    """Send a job of this name and stay with it. Raises what the sending and the following raise."""
    with interrupts() as pressed:
        session = _Session(place, work, terminal, options, pressed, name)
        try:
            return await session.run()
        except OutputError:
            # Whoever read the log is gone (``| head``), or the disk is full: that says nothing about the job.
            await session.leave()
            raise
        except RingleaderError as error:
            hints = await session.leave()
            if hints:
                error.faults = (*error.faults, Fault(where="", what=hints))
            raise


class _Session(Generic[Sent]):
    def __init__(
        self,
        place: Place[Sent],
        work: Work[Sent],
        terminal: Terminal,
        options: FollowOptions,
        pressed: Interrupts,
        name: str,
    ) -> None:
        self._place, self._work, self._terminal = place, work, terminal
        self._options, self._pressed, self._name = options, pressed, name
        self._is_sent = False

    async def run(self) -> End:
        sending = asyncio.ensure_future(self._work.send())
        number = await self._pressed.first(sending)
        if number is not None:
            return await self._stop_sending(sending, number)
        job = self._sent(sending.result())
        if self._options.detach:
            if not self._options.json.json:
                print(job.name, flush=True)
            self._terminal.say(self._how_to_go_on())
            return End(exit_code=0, whose="", state="Pending")
        end = await self._follow(job)
        if self._work.cleans_up or self._options.rm:
            await self._remove()
        return end

    def _sent(self, job: Sent) -> Sent:
        self._is_sent, self._name, self._terminal.name = True, job.name, job.name
        return job

    async def leave(self) -> str:
        """Leave the job alone, or take it away where nothing of it may be left; return how to continue."""
        if self._work.cleans_up:
            await self._remove()
            return ""
        return self._how_to_go_on() if self._is_sent else ""

    async def _stop_sending(self, sending: asyncio.Future[Sent], number: signal.Signals) -> End:
        """End while the job is on its way: what has begun is undone, or it is said that it went out."""
        if self._work.cleans_up:
            sending.cancel()
            await asyncio.wait({sending}, timeout=SENDING)
            await self._remove()
            return _stopped(number)
        leaving = asyncio.ensure_future(self._pressed.is_leaving.wait())
        both: set[asyncio.Future[Any]] = {sending, leaving}
        await asyncio.wait(both, timeout=SENDING, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not sending.done():
            sending.cancel()
            self._terminal.say(f"{self._name} may have been sent: {self._place.command('status')}")
            return _stopped(number)
        self._sent(sending.result())
        return await self._stop(number) or _stopped(number)

    async def _follow(self, job: Sent) -> End:
        start_timeout = self._options.start_timeout
        shows_log = not self._options.quiet or self._terminal.files is not None
        following = asyncio.ensure_future(
            self._place.follow(job, self._terminal, shows_log=shows_log, start_timeout=start_timeout)
        )
        try:
            while (number := await self._pressed.first(following)) is not None:
                end = await self._stop(number)
                if end is not None:
                    return end
            return following.result()
        finally:
            await _cancelled(following)

    async def _stop(self, number: signal.Signals) -> End | None:
        """Do what a signal asks for; ``None``: continue."""
        if self._work.cleans_up:
            await self._remove()
            return _stopped(number)
        answer = ""
        if number == signal.SIGINT:
            verb = self._place.ends[0]
            question = QUESTION.replace("{verb}", verb.capitalize(), 1).replace("{verb}", verb)
            answer = str(await self._pressed.until_leaving(self._terminal.ask(question)) or "")[:1].lower()
        if answer == "c":
            self._pressed.count = 0  # the user wants to continue
            return None
        if answer == "y":
            await self._remove()
        else:
            self._terminal.say(self._how_to_go_on())
        return _stopped(number)

    async def _remove(self) -> None:
        """Delete or cancel the job; a second Ctrl-C leaves at once and says what is left."""

        async def removed() -> bool:
            await self._work.remove()
            return True

        self._terminal.say(f"{self._place.ends[1]} {self._name}")
        is_done = False
        try:
            is_done = bool(await self._pressed.until_leaving(removed()))
        except RingleaderError as error:
            self._terminal.say(str(error))
        if not is_done:
            command = self._place.command(self._place.ends[0], self._name)
            self._terminal.say(f"some of {self._name} may be left: {command}")

    def _how_to_go_on(self) -> str:
        name, place = self._name, self._place
        return (
            f"the job {name} continues{place.where}\n"
            f"    → follow it: {place.command('logs -f', name)}\n"
            f"    → {place.ends[0]} it: {place.command(place.ends[0], name)}"
        )


def _stopped(number: signal.Signals) -> End:
    return End(exit_code=128 + number, whose="ringleader", reason=f"stopped by {number.name}")
