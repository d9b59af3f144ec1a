"""Ranks that answer one line of JSON after another: for tests that carry out thousands of small programs.

The program of the ranks connects to a socket, sends ``{"rank", "pid"}``, and answers each line with one. An
answer with "failed" in it is a failure; then the ranks get null, and begin a new life of the engine. Ranks of
`tests.rank_pool` carry out whole programs instead.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fork_server import RANKS
from tests.rank_pool import START_SECONDS, slowness

ANSWER_SECONDS = 60.0
"""A program that takes longer hangs; the engine's own deadline, which is shorter, must have ended it."""
LIFE_SECONDS = 5.0
"""Ranks that wait for one that failed, or begin anew, take less."""
SILENT = {"failed": "no answer"}


class Line:
    """The way to one rank and back."""

    def __init__(self, line: socket.socket) -> None:
        self.socket = line
        self._text = line.makefile("r")

    def fileno(self) -> int:
        return self.socket.fileno()

    def answer(self) -> Any:
        text = self._text.readline()
        return json.loads(text) if text else {"failed": "it ended"}


class ServedRanks:
    """A job whose ranks carry out one program after another."""

    def __init__(self, program: Path, *, size: int, place: Path, environ: dict[str, str]) -> None:
        """``program`` is what the ``size`` ranks run; ``place``: a directory for sockets and their output."""
        self._program, self._size, self._place, self._environ = program, size, place, environ
        self._lines: list[Line] = []
        self._pids: list[int] = []
        self._mpirun: subprocess.Popen[bytes] | None = None
        self._lives = 0

    def _start(self) -> None:
        self._lives += 1
        path = self._place / f"socket{self._lives}"
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        environ = {**self._environ, "OMPI_MCA_osc": "^ucx"}
        with socket.socket(socket.AF_UNIX) as door, (self._place / "ranks").open("wb") as words:
            door.bind(str(path))
            door.listen(self._size)
            door.settimeout(START_SECONDS * slowness(self._size))
            command = [mpirun, "--oversubscribe", "-n", str(self._size)]
            command += RANKS.command(str(self._program), str(path))
            self._mpirun = subprocess.Popen(command, env=environ, stdout=words, stderr=words)
            try:
                lines = [Line(door.accept()[0]) for _ in range(self._size)]
            except TimeoutError as error:
                self._mpirun.kill()
                raise TimeoutError(f"{self._size} ranks did not start: {self._words()}") from error
        hellos = [(line.answer(), line) for line in lines]
        self._lines = [line for _, line in sorted(hellos, key=lambda hello: hello[0]["rank"])]
        self._pids = [hello["pid"] for hello, _ in hellos]

    def carry_out(self, program: Any) -> list[Any]:
        """Return every rank's answer; AssertionError, with the program, where one failed or hangs."""
        answers = self.answers(program)
        failed = [
            f"rank {rank}: {answer['failed']}" for rank, answer in enumerate(answers) if "failed" in answer
        ]
        if failed:
            words = self._words()[-3000:]
            raise AssertionError("\n".join([*failed, words, f"program: {json.dumps(program)}"]))
        return answers

    def answers(self, program: Any) -> list[Any]:
        if self._mpirun is None:
            self._start()
        answers = self._ask(program, ANSWER_SECONDS)
        if any("failed" in answer for answer in answers):
            # A new life costs a hundredth of a new job, and shrinking takes hundreds of failures.
            lost = SILENT in answers
            if lost or any("failed" in answer for answer in self._ask(None, LIFE_SECONDS)):
                self.kill()
        return answers

    def _ask(self, program: Any, seconds: float) -> list[Any]:
        answers: dict[int, Any] = {}
        end = time.monotonic() + seconds * slowness(self._size)
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.socket.sendall(json.dumps(program).encode() + b"\n")
        while len(answers) < self._size and (left := end - time.monotonic()) > 0:
            waiting = [line for rank, line in enumerate(self._lines) if rank not in answers]
            for line in select.select(waiting, [], [], left)[0]:
                answers[self._lines.index(line)] = line.answer()
            if any("failed" in answer for answer in answers.values()):
                # The others may wait for the one that failed; they are told that it has shut down.
                end = min(end, time.monotonic() + LIFE_SECONDS * slowness(self._size))
        return [answers.get(rank, SILENT) for rank in range(self._size)]

    def close(self) -> str:
        for line in self._lines:
            line.socket.shutdown(socket.SHUT_WR)
        if self._mpirun is not None:
            try:
                code = self._mpirun.wait(90)  # a busy machine
            except subprocess.TimeoutExpired:
                raise AssertionError(f"no end within 90 s\n{self._where_ranks_stand()}") from None
            assert code == 0, self._words()
        return self._words()

    def _words(self) -> str:
        return (self._place / "ranks").read_text(errors="replace")

    def _where_ranks_stand(self) -> str:
        """Return what ranks have said and, of each that is there still, the stacks of its threads."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
                time.sleep(0.5)  # so that they do not write at once
        return self._words()[-8000:]

    def kill(self) -> None:
        """End a job that went wrong."""
        if self._mpirun is None:
            return
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self._mpirun.wait(15)
        except subprocess.TimeoutExpired:
            self._mpirun.kill()
            self._mpirun.wait()
        self._mpirun = None
        self._lines = []
