"""Ranks that live through many tests: one start of mpirun and of PyTorch for all programs of a size.

A program runs in the living ranks as it would in ranks of its own (`rank_pool_member.py`); what fails or
hangs takes its ranks along, and the next program gets new ones. What is about a process's own start or end
is not a program for a pool.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tests.fork_server import OVER_TCP, RANKS, clean_environment

MEMBER = Path(__file__).with_name("rank_pool_member.py")
START_SECONDS = 120.0
FOLLOW_SECONDS = 10.0
"""Within so long ranks end that wait for one that has failed."""
STACK_SECONDS = 1.0
SLOWEST = 3.0
"""A program gets at most this many times its seconds on a machine that others use."""


@dataclass(frozen=True, kw_only=True)
class PoolResult:
    codes: tuple[int, ...]
    """Exit codes, as they would be, by rank."""
    outs: tuple[str, ...]
    """Standard output by rank."""
    errs: tuple[str, ...]
    """Standard error by rank."""
    cpu_seconds: float
    """Processor time of all ranks together."""

    @property
    def code(self) -> int:
        """The first code of a rank that is not 0; 0 if there is none."""
        return next((code for code in self.codes if code), 0)


class RankPool:
    """This many ranks, started when the first program comes."""

    def __init__(self, size: int, place: Path, environ: Mapping[str, str]) -> None:
        """``place``: a directory for its socket and what the ranks print."""
        self.size, self._place, self._environ = size, place, environ
        self._mpirun: subprocess.Popen[bytes] | None = None
        """The process that the ranks end with."""
        self._lines: list[socket.socket] = []
        self._pids: list[int] = []
        self._serial = 0

    def run(self, program: Path, *arguments: str, timeout: float, **environ: str) -> PoolResult:
        """Carry out a program on all ranks; TimeoutError, with the ranks' stacks, where one hangs."""
        if self._mpirun is None:
            self._start()
        self._serial += 1
        files = [
            [str(self._place / f"{self._serial}.{rank}.{stream}") for stream in ("out", "err")]
            for rank in range(self.size)
        ]
        task = {"program": str(program), "arguments": arguments, "environ": environ}
        for line, streams in zip(self._lines, files, strict=True):
            line.sendall(json.dumps(task | {"streams": streams}).encode() + b"\n")
        try:
            answers = self._answers(timeout)
        except BaseException:
            self.kill()
            raise
        hang = [rank for rank in range(self.size) if rank not in answers]
        if hang:
            self._tell_stacks(hang)
        outs, errs = (tuple(_taken(one[stream]) for one in files) for stream in (0, 1))
        if hang or any(answer["broken"] for answer in answers.values()):
            self.kill()
        if hang and not any(answer["code"] for answer in answers.values()):
            said = "\n".join((*outs, *errs))
            raise TimeoutError(f"ranks {hang} of {program.name} hang after {timeout:g} s\n{said}")
        return PoolResult(
            codes=tuple(answers[rank]["code"] if rank in answers else 1 for rank in range(self.size)),
            outs=outs,
            errs=errs,
            cpu_seconds=sum(answer["seconds"] for answer in answers.values()),
        )

    def _start(self) -> None:
        path = self._place / "socket"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as door, (self._place / "mpirun").open("wb") as words:
            door.bind(str(path))
            door.listen(self.size)
            door.settimeout(START_SECONDS)
            self._mpirun = self._started(RANKS.command(str(MEMBER), str(path)), words)
            try:
                lines = [door.accept()[0] for _ in range(self.size)]
                hellos = sorted(((_answer(line), line) for line in lines), key=lambda one: one[0]["rank"])
            except OSError as error:
                self.kill()
                said = (self._place / "mpirun").read_text(errors="replace")
                raise TimeoutError(f"{self.size} ranks did not start: {said}") from error
        self._lines = [line for _, line in hellos]
        self._pids = [hello["pid"] for hello, _ in hellos]

    def _started(self, command: list[str], words: BinaryIO) -> subprocess.Popen[bytes]:
        """Start the command as all ranks, what it says goes to ``words``."""
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        return subprocess.Popen(
            [mpirun, "--oversubscribe", "-n", str(self.size), *command],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )

    def _answers(self, seconds: float) -> dict[int, Any]:
        """Return rank → answer, without ranks that do not answer in time."""
        answers: dict[int, Any] = {}
        began, latest = time.monotonic(), float("inf")
        while len(answers) < self.size:
            left = min(latest, began + seconds * slowness(self.size)) - time.monotonic()
            if left <= 0:
                break
            waiting = {line: rank for rank, line in enumerate(self._lines) if rank not in answers}
            for line in select.select(list(waiting), [], [], left)[0]:
                answers[waiting[line]] = _answer(line)
            if any(answer["code"] for answer in answers.values()):
                latest = min(latest, time.monotonic() + FOLLOW_SECONDS)
        return answers

    def _tell_stacks(self, ranks: list[int]) -> None:
        """Have ranks that hang print where they stand."""
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], signal.SIGUSR1)
        time.sleep(STACK_SECONDS)

    def end(self) -> None:
        for line in self._lines:
            line.close()

    def close(self) -> None:
        """Let the ranks end by themselves."""
        self.end()
        if self._mpirun is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._mpirun.wait(30)
            self._mpirun = None
            assert code == 0, (code, (self._place / "mpirun").read_text(errors="replace"))
        self.kill()

    def kill(self) -> None:
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
        for line in self._lines:
            line.close()
        self._mpirun, self._lines, self._pids = None, [], []


class RankPools:
    """A pool for each number of ranks, and what all of them share."""

    def __init__(self, place: Path, new_pool: type[RankPool] = RankPool) -> None:
        """``new_pool`` makes the pool of a size."""
        self._place, self._new_pool = place, new_pool
        self._pools: dict[int, RankPool] = {}
        self.shared_memory = Path(tempfile.mkdtemp(prefix="rank-pools-", dir="/dev/shm"))
        """Where Open MPI keeps windows and segments of these ranks, apart from those of other jobs."""
        self.environ = clean_environment() | {
            f"OMPI_MCA_{part}_backing_directory": str(self.shared_memory)
            for part in ("btl_sm", "osc_sm", "osc_rdma")
        }
        self.environ |= OVER_TCP
        # As the engine has it: a program that starts MPI itself must not make later ones print an error line.
        self.environ["OMPI_MCA_osc"] = "^ucx"

    def of(self, size: int) -> RankPool:
        if size not in self._pools:
            place = self._place / str(size)
            place.mkdir()
            self._pools[size] = self._new_pool(size, place, self.environ)
        return self._pools[size]

    def close(self) -> None:
        """Let all ranks end, each as a process does; what killed ones have left in memory goes."""
        try:
            for pool in self._pools.values():
                pool.end()
            for pool in self._pools.values():
                pool.close()
        finally:
            shutil.rmtree(self.shared_memory, ignore_errors=True)


def slowness(ranks: int) -> float:
    """Return how many times longer than alone this many ranks take here, where others keep cores busy."""
    others = max(0.0, os.getloadavg()[0] - ranks)
    return min(SLOWEST, 1 + others / (os.cpu_count() or 1))


def _answer(line: socket.socket) -> Any:
    """Return the one line of JSON that comes; a rank that has ended has failed."""
    text = b""
    while not text.endswith(b"\n"):
        try:
            part = line.recv(65536)
        except ConnectionError:
            part = b""
        if not part:
            return {"code": 1, "broken": True, "seconds": 0.0, "rank": -1, "pid": 0}
        text += part
    return json.loads(text)


def _taken(path: str) -> str:
    """Return what a file holds and remove it; a rank that died early has made none."""
    file = Path(path)
    text = file.read_text(errors="replace") if file.exists() else ""
    file.unlink(missing_ok=True)
    return text
