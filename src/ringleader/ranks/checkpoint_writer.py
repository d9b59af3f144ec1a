"""Every n-th commit of a host becomes a file, written by a process of its own while ranks go on.

That process copies the commit out of its buffer while ranks write the next one into the other; where they
have come round to this buffer before the copy was complete, the file is given up and the newest commit tried
once more, from a copy in memory. One file at a time: a commit that is due meanwhile is left out.
"""

from __future__ import annotations

import mmap
import os
import time

from ringleader.ranks import checkpoint_file, process_tree
from ringleader.ranks.checkpoint_file import CheckpointError
from ringleader.ranks.commit_memory import CommitMemoryError
from ringleader.ranks.fast_stdlib import signal, suppress
from ringleader.ranks.host_agent_signals import WATCHED
from ringleader.ranks.open_descriptors import close_all_but

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ringleader.ranks.commit_memory import CommitStore

LONGEST_REASON = 4096


class CheckpointWriter:
    """The files of one host."""

    def __init__(self, commits: CommitStore, say: Callable[..., None]) -> None:
        """Nothing is written until ``configure``. ``say``: tells the launcher."""
        self._commits = commits
        self._say = say
        self._directory, self._every = "", 0
        self._answer = -1
        self._began = 0.0
        self._number = 0
        self.pid = 0
        """The process that writes; 0: there is none."""

    @property
    def busy(self) -> bool:
        """Whether a file is being written."""
        return self.pid != 0

    def configure(self, words: Mapping[str, Any]) -> None:
        """Write every so many commits, as the launcher says; 0: none."""
        self._directory, self._every = str(words["directory"]), int(words["every"])

    def committed(self, number: int) -> None:
        """Write this commit if it is one to be written."""
        if not self._every or number % self._every:
            return
        if self.busy:
            why = f"commit {self._number} is still being written, for {time.monotonic() - self._began:.1f} s"
            self._say(do="not_checkpointed", number=number, why=why)
            return
        self._number, self._began, ours = number, time.monotonic(), os.getpid()
        answer, answer_there = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            self.pid = os.fork()
        except OSError as error:
            os.close(answer)
            self._say(do="not_checkpointed", number=number, why=f"cannot fork: {error.strerror}")
            return
        else:
            if self.pid == 0:
                signal.set_wakeup_fd(-1)
                process_tree.die_with_parent(signal.SIGKILL, ours)
                close_all_but((answer_there, *self._commits.fds))  # nobody takes us for the agent
                os._exit(self._written(number, answer_there))
            self._answer = answer
        finally:
            os.close(answer_there)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

    def ended(self, status: int) -> None:
        """Take the end of the process that wrote, and tell how it went."""
        self.pid = 0
        said = os.read(self._answer, LONGEST_REASON).decode(errors="replace")
        os.close(self._answer)
        kind, _, text = said.partition(" ")
        seconds = round(time.monotonic() - self._began, 3)
        if kind.isdigit():
            self._say(do="checkpointed", number=int(kind), path=text, seconds=seconds)
        else:
            why = text or f"the process that wrote it ended with status {status}"
            self._say(do="not_checkpointed", number=self._number, why=why)

    # --- in the process that writes -----------------------------------------------------------------------

    def _written(self, number: int, answer: int) -> int:
        """Write a file and say into the pipe where it is, or why not; return the exit code."""
        with suppress(OSError):
            os.nice(5)  # training comes first
        try:
            try:
                path = self._write(number, in_memory=False)
            except CheckpointError:
                number = max(self._commits.held(), default=0)
                path = self._write(number, in_memory=True)
            checkpoint_file.remove_older(self._directory)
        except Exception as error:
            known = isinstance(error, CheckpointError)
            words = str(error) if known else f"{type(error).__name__}: {error}"
            os.write(answer, f"failed {words}".encode()[:LONGEST_REASON])
            return 1
        os.write(answer, f"{number} {path}".encode())
        return 0

    def _write(self, number: int, *, in_memory: bool) -> str:
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
        )

    # --- reading ------------------------------------------------------------------------------------------

    def load(self, words: Mapping[str, Any]) -> None:
        """Read the newest good file of a directory into memory, and say which, and what was refused."""
        refused = []
        for path in checkpoint_file.files_in(str(words["directory"])):
            try:
                number = self._load(path)
            except (CheckpointError, CommitMemoryError) as error:
                refused.append(str(error))
                continue
            self._say(do="checkpoint_loaded", number=number, path=path, refused=refused)
            return
        self._say(do="checkpoint_loaded", number=0, path="", refused=refused)

    def _load(self, path: str) -> int:
        found = checkpoint_file.head(path)
        number, nbytes = int(found["number"]), int(found["nbytes"])
        self._commits.descriptors(nbytes)
        self._commits.keep_up_to(0)
        mapped = mmap.mmap(self._commits.buffer(number), nbytes)
        with memoryview(mapped) as target:
            checkpoint_file.read_into(path, found, target)
        mapped.close()
        self._commits.put(number, nbytes, path)
        return number
