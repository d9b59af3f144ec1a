"""Files of commits are written and read by a process beside the host agent, which hears how that goes.

The process that writes every n-th commit copies it out of its buffer while ranks write the next one into the
other; where they have come round to this buffer before the copy was complete, the file is given up and the
newest commit tried once more, from a copy in memory. One file at a time: a commit that is due meanwhile is
left out. A file system that hangs blocks that process only, and after a while it is killed.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import time

from ringleader.agents import checkpoint_file, process_tree
from ringleader.agents.checkpoint_file import CheckpointError, CommitFile
from ringleader.agents.commit_memory import CommitMemoryError
from ringleader.agents.fast_stdlib import signal, suppress
from ringleader.agents.process_tree import close_all_but
from ringleader.agents.rank_agents import WATCHED

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ringleader.agents.commit_memory import CommitStore

LONGEST_REASON = 4096
READ_SECONDS, WRITE_SECONDS = 30.0, 600.0
"""Without progress, after which reading or writing is given up. A written file is flushed at its end."""
TELL_SECONDS = 5.0
"""Between two messages to the launcher that reading makes progress, so that it waits for this host."""


class CheckpointWriter:
    """The files of one host."""

    def __init__(self, commits: CommitStore, say: Callable[..., None]) -> None:
        """Nothing is written until ``configure``. ``say``: tells the launcher."""
        self._commits = commits
        self._say = say
        self._directory, self._every = "", 0
        self._answer = self._memory = -1
        self._began = self._heard_at = self._told_at = 0.0
        self._number = 0
        self._reading = ""
        """The path that is being read."""
        self._heard = b""
        self._end: Mapping[str, Any] = {}
        """What the process said last: how it did."""
        self._is_over = True
        """Whether it is known how the process did, or it was given up."""
        self.pid = 0
        """The process that writes or reads; 0: there is none."""

    @property
    def writing(self) -> bool:
        """Whether a file is being written."""
        return self.pid != 0 and not self._is_over and self._memory < 0

    def configure(self, words: Mapping[str, Any]) -> None:
        """Write every so many commits, as the launcher says; 0: none."""
        self._directory, self._every = str(words["directory"]), int(words["every"])

    def committed(self, number: int) -> None:
        """Write this commit if it is one to be written."""
        if not self._every or number % self._every:
            return
        why = ""
        if self.pid:
            why = f"commit {self._number} is still being written, for {time.monotonic() - self._began:.1f} s"
        if why := why or self._start(number, lambda there: self._written(number, there), self._commits.fds):
            self._say(do="not_checkpointed", number=number, why=why)

    def load(self, words: Mapping[str, Any]) -> None:
        """Read the newest good file of a directory into memory, and say which, and what was refused."""
        self._reading = directory = str(words["directory"])
        self._memory = os.memfd_create("ringleader-commit-file", os.MFD_CLOEXEC)
        if why := self._start(0, lambda there: self._read(directory, there), (self._memory,)):
            self._loaded({"why": why})

    # --- the process beside us ----------------------------------------------------------------------------

    def _start(self, number: int, work: Callable[[int], int], kept: tuple[int, ...]) -> str:
        """Fork a process that does this; return why there is none, empty where there is.

        ``work`` is given where to say how it goes, and returns the exit code. ``kept``: what it needs open.
        """
        if self.pid:
            return "another file is still being written or read"
        self._number, self._heard, self._end, ours = number, b"", {}, os.getpid()
        self._began = self._heard_at = self._told_at = time.monotonic()
        answer, answer_there = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                signal.set_wakeup_fd(-1)
                process_tree.die_with_parent(signal.SIGKILL, ours)
                close_all_but((answer_there, *kept))  # nobody takes us for the agent
                with suppress(OSError):
                    os.nice(5)  # training comes first
                os._exit(work(answer_there))
            os.set_blocking(answer, False)
            self._answer, self._is_over = answer, False
            return ""
        except OSError as error:
            os.close(answer)
            return f"cannot fork: {error.strerror}"
        finally:
            os.close(answer_there)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def interests(self) -> list[tuple[int, int]]:
        """Return what to poll for."""
        return [(self._answer, select.POLLIN)] if self._answer >= 0 else []

    def serve(self) -> bool:
        """Take what the process says; return whether there may be more now."""
        if self._answer < 0:
            return False  # its end came first
        try:
            data = os.read(self._answer, 1 << 16)
        except BlockingIOError:
            return False
        self._heard, self._heard_at = self._heard + data, time.monotonic()
        if not data:
            os.close(self._answer)
            self._answer = -1
        *lines, self._heard = self._heard.split(b"\n")
        for line in filter(None, lines):
            words = json.loads(line)
            if "reading" in words:
                self._reading = words["reading"]
            else:
                self._end = words
        return bool(data)

    def tick(self, now: float) -> None:
        """Give up a process that says nothing for too long; tell that reading advances."""
        if self._is_over:
            return
        seconds = READ_SECONDS if self._memory >= 0 else WRITE_SECONDS
        if now > self._heard_at + seconds:
            process_tree.send([self.pid], signal.SIGKILL)  # which may be heeded later, if at all
            where = self._reading if self._memory >= 0 else self._directory
            self._over({"why": f"{where}: the file system has not answered for {seconds:g} s"})
        elif self._memory >= 0 and self._heard_at > self._told_at + TELL_SECONDS:
            self._told_at = now
            self._say(do="checkpoint_loading", path=self._reading)

    def ended(self, status: int) -> None:
        """Take the end of the process."""
        self.pid = 0
        while self.serve():
            pass
        if self._answer >= 0:
            os.close(self._answer)
            self._answer = -1
        if not self._is_over:
            why = f"the process that wrote or read it ended with status {status}"
            self._over(self._end or {"why": why})

    def stop(self) -> None:
        """Read no more: the job ends."""
        if self.pid and self._memory >= 0:
            process_tree.send([self.pid], signal.SIGKILL)

    def _over(self, words: Mapping[str, Any]) -> None:
        """Tell how it went."""
        self._is_over = True
        if self._memory >= 0:
            self._loaded(words)
        elif "path" in words:
            seconds = round(time.monotonic() - self._began, 3)
            self._say(do="checkpointed", number=words["number"], path=words["path"], seconds=seconds)
        else:
            self._say(do="not_checkpointed", number=self._number, why=str(words.get("why")))

    def _loaded(self, words: Mapping[str, Any]) -> None:
        """Take over the commit that was read; where there is none, only what was refused is told."""
        number, path = int(words.get("number", 0)), str(words.get("path", ""))
        refused = [*words.get("refused", ()), *([words["why"]] if "why" in words else ())]
        memory, self._memory = self._memory, -1
        try:
            if number:
                self._commits.take(number, int(words["nbytes"]), memory, path)
        except CommitMemoryError as error:
            refused, number, path = [*refused, f"{path}: {error}"], 0, ""
        if not number:
            os.close(memory)
        self._say(do="checkpoint_loaded", number=number, path=path, refused=refused)

    # --- in the process that writes -----------------------------------------------------------------------

    def _written(self, number: int, answer: int) -> int:
        """Write a file and say into the pipe where it is, or why not; return the exit code."""
        try:
            try:
                path = self._write(number, answer, in_memory=False)
            except CheckpointError:
                number = max(self._commits.held(), default=0)
                path = self._write(number, answer, in_memory=True)
            checkpoint_file.remove_older(path)
        except Exception as error:
            known = isinstance(error, CheckpointError)
            why = str(error) if known else f"{type(error).__name__}: {error}"
            _tell(answer, why=why[:LONGEST_REASON])
            return 1
        _tell(answer, number=number, path=path)
        return 0

    def _write(self, number: int, answer: int, *, in_memory: bool) -> str:
        nbytes = self._commits.nbytes(number)
        if not nbytes:
            raise CheckpointError(f"commit {number} was overwritten before it could be copied")
        mapped = mmap.mmap(self._commits.buffer(number), nbytes, prot=mmap.PROT_READ)
        content = memoryview(bytes(mapped) if in_memory else mapped)
        if in_memory and self._commits.nbytes(number) != nbytes:
            raise CheckpointError(
                f"commit {number} was overwritten while it was copied: commits come too fast"
            )
        return checkpoint_file.write(
            self._directory,
            content,
            number=number,
            intact=lambda: in_memory or self._commits.nbytes(number) == nbytes,
            progress=lambda: _tell(answer),
        )

    # --- in the process that reads ------------------------------------------------------------------------

    def _read(self, directory: str, answer: int) -> int:
        """Read the newest good file into our memory and say which; return the exit code."""
        refused: list[str] = []
        found: dict[str, Any] = {}
        for path in checkpoint_file.files_in(directory):
            _tell(answer, reading=path)
            try:
                found = self._read_file(path, answer)
                break
            except Exception as error:  # one that cannot be read must not keep the older ones from being read
                known = isinstance(error, (CheckpointError, CommitMemoryError))
                refused.append(str(error) if known else f"{path}: {type(error).__name__}: {error}")
        _tell(answer, **found, refused=refused)
        return 0

    def _read_file(self, path: str, answer: int) -> dict[str, Any]:
        file = CommitFile(path)
        self._commits.check(file.nbytes)
        os.ftruncate(self._memory, file.nbytes)
        with mmap.mmap(self._memory, file.nbytes) as mapped, memoryview(mapped) as target:
            file.read_into(target, lambda: _tell(answer))
        return {"number": file.number, "nbytes": file.nbytes, "path": path}


def _tell(answer: int, **words: Any) -> None:
    """Say something to the agent; without words, that it advances."""
    line = json.dumps(words).encode() if words else b""
    data = line + b"\n"
    while data:
        data = data[os.write(answer, data) :]
