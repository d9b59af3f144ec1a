"""Ranks of an elastic job that are killed: the others hear of it, and continue in the next generation."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fork_server import RANKS, clean_environment
from tests.proxy_world import PROXY, ProxyWorld, other_mpi

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
PROGRAM = Path(__file__).parent / "programs" / "surviving.py"
SECONDS = 60.0
PHASES = ("allreduce", "fused", "gradients", "broadcast", "allgather")


class Job:
    """Ranks that continue."""

    def __init__(self, place: Path, slots: Sequence[int], *, mpi: str = "", transport: str = "") -> None:
        mpirun, more = other_mpi(mpi, place) if mpi else ((), {})
        more |= {"RINGLEADER_TRANSPORT": transport} if transport else {}
        self.world = ProxyWorld(place, clean_environment() | more, slots=slots, mpirun=mpirun)
        self.said: list[dict[str, Any]] = []
        self._ranks: list[subprocess.Popen[bytes]] = []
        output, self._output = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(output,), daemon=True)
        self._reader.start()
        self.world.use_world(self.world.start_world())

    def _read(self, output: int) -> None:
        with os.fdopen(output) as lines:
            for line in lines:
                with self.world.lock:
                    self.said.append(json.loads(line))

    def spawn(self, slot: int, phase: str) -> int:
        number = 101 + len(self._ranks)
        command = RANKS.command(str(PROGRAM), phase)
        environ = self.world.environment(number, slot)
        self._ranks.append(
            subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=self._output)
        )
        return number

    def start(self, phase: str) -> None:
        with self.world.lock:
            slots = range(sum(self.world._slots))
            self.world.members = [(self.spawn(slot, phase), slot) for slot in slots]
        self.good(1)

    def good(self, generation: int) -> list[dict[str, Any]]:
        """Wait until all ranks have done a step in a generation, or a later one; return what they said."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.said if one.get("good", 0) == max(generation, self.world.number)]

        def ready() -> bool:
            failed = [one for one in self.said if "failed" in one]
            assert not failed, failed
            return self.world.number >= generation and len(found()) == len(self.world.members)

        self.world.until(ready, f"a step of all ranks in generation {generation}: {self.said[-5:]}", SECONDS)
        return sorted(found(), key=lambda one: one["rank"])

    def kill(self, rank: int, *, replace: str = "", how: int = signal.SIGKILL) -> int:
        """Kill a rank; the next generation has another one on its slot, or continues without it."""
        with self.world.lock:
            incarnation, slot = self.world.members[rank]
            pids = self.world.pids()
            members = [one for one in self.world.members if one[0] != incarnation]
            if replace:  # a new one comes last, but ranks of a host stay together
                members.insert(rank, (self.spawn(slot, replace), slot))
            self.world.members = members
            os.kill(pids[incarnation], how)
        return incarnation

    def proxies(self, world: int = 0) -> dict[int, tuple[int, int]]:
        """Return the proxies of a world (0: of all): process id → descriptors and mapped memory of ranks."""
        found = {}
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            try:
                environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
                command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                maps = Path(f"/proc/{pid}/maps").read_text()
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
            ours = any(one.startswith(f"RINGLEADER_HOST_AGENT={self.world.place}/") for one in environ)
            its = not world or f"RINGLEADER_WORLD={world}" in environ
            if ours and its and PROXY[-1] in command and "python" in command[0]:
                found[pid] = (descriptors, maps.count("memfd:ringleader"))
        return found

    def close(self) -> None:
        with self.world.lock:
            self.world.automatic = False
        for rank in self._ranks:
            rank.kill()
            rank.wait(10)
        os.close(self._output)
        self._reader.join(10)
        self.world.close()


@pytest.fixture
def new_job(tmp_path: Path) -> Iterator[Any]:
    made: list[Job] = []

    def make(slots: Sequence[int], **more: Any) -> Job:
        made.append(Job(tmp_path, slots, **more))
        return made[-1]

    yield make
    for job in made:
        job.close()


def repeated(job: Job, phase: str, kills: int, seed: int) -> None:
    """Kill ranks again and again; all ranks make a step after each."""
    chance = random.Random(seed)
    full = [slot for _, slot in job.world.members]
    for _ in range(kills):
        generation, members = job.world.number, len(job.world.members)
        victim = chance.choice((0, members - 1, chance.randrange(members)))
        missing = sorted(set(full) - {slot for _, slot in job.world.members})
        time.sleep(chance.random() * 0.03)
        if missing:  # a rank returns with the next failure
            job.kill(victim)
            with job.world.lock:
                job.world.members.insert(missing[0], (job.spawn(missing[0], phase), missing[0]))
                job.world.members.sort(key=lambda one: one[1])
        else:
            stays = chance.random() < 0.7 or members < 3  # of two, one must be left that hears of it
            job.kill(victim, replace=phase if stays else "")
        said = job.good(generation + 1)
        named = [error for one in said for error in one["errors"]]
        assert any(f"rank {victim} has ended" in error for error in named), (victim, named)


@pytest.mark.parametrize(
    ("slots", "phase", "more"),
    [
        ([3], "allreduce", {}),
        ([1, 1, 1], "fused", {}),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                ([3], "gradients", {}),
                ([1, 1, 1], "broadcast", {}),
                # The code that uses NCCL on GPUs, over Gloo: each generation has its own groups.
                ([3], "allreduce", {"transport": "distributed"}),
                ([2], "with_children", {}),
                ([2, 1], "allreduce", {"mpi": "mpich"}),
                ([2, 1], "allreduce", {"mpi": "openmpi4"}),
            )
        ),
    ],
    ids=str,
)
def test_ranks_are_killed(new_job: Any, slots: list[int], phase: str, more: dict[str, str]) -> None:
    """The others hear of it and continue, also where its children live on."""
    job = new_job(slots, **more)
    job.start(phase)
    repeated(job, phase, kills=3, seed=1)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("slots", [[4], [1, 1, 1], [2, 2]], ids=["4", "1+1+1", "2+2"])
@pytest.mark.long
def test_fifty_killed_ranks_leave_nothing_behind(new_job: Any, slots: list[int], phase: str) -> None:
    """Neither descriptors nor memory grow, and the proxies stay the same processes."""
    job = new_job(slots)
    job.start(phase)
    before = set(Path("/dev/shm").iterdir())
    repeated(job, phase, kills=10, seed=3)
    first, proxies = job.good(0), job.proxies()
    repeated(job, phase, kills=40, seed=4)
    last, later = job.good(0), job.proxies()
    assert set(later) == set(proxies)
    for pid, (descriptors, mapped) in proxies.items():
        assert later[pid][0] <= descriptors + 4
        assert later[pid][1] <= mapped + 8
    for name, room in (("fds", 8), ("maps", 8), ("resident", 64 << 20)):
        assert max(one[name] for one in last) <= max(one[name] for one in first) + room, (name, last)
    # A directory is a launcher's, of another job of this machine.
    left = {path for path in set(Path("/dev/shm").iterdir()) - before if "ringleader" in path.name}
    assert not [path for path in left if path.is_file()]


@pytest.mark.parametrize("slots", [[3], pytest.param([1, 1, 1], marks=pytest.mark.long)])
def test_a_rank_that_is_killed_in_init(new_job: Any, slots: list[int]) -> None:
    """Wherever the others are meanwhile, they come to the next generation."""
    job, chance = new_job(slots), random.Random(6)
    job.start("allreduce")
    for _ in range(2):
        generation = job.world.number
        job.kill(1, replace="allreduce")
        job.world.until(lambda: job.world.number > generation, "the next generation")  # noqa: B023
        time.sleep(chance.random() * 0.03)
        job.kill(chance.randrange(3), replace="allreduce")
        job.good(generation + 2)


@pytest.mark.long
def test_another_world_with_and_without_a_stopped_proxy(new_job: Any) -> None:
    """Ranks continue over the proxies of another mpirun; those of the old one change nothing any more."""
    job = new_job([1, 1])
    job.start("allreduce")
    for stopped in (False, True):
        old, world = job.world.world, job.world.start_world()
        pids = list(job.proxies(old))
        if stopped:  # in the middle of whatever it does
            os.kill(pids[0], signal.SIGSTOP)
        generation = job.world.number
        job.world.use_world(world)
        job.kill(1, replace="allreduce")
        job.good(generation + 1)
        if stopped:
            os.kill(pids[0], signal.SIGCONT)
            time.sleep(0.5)
            # What it had of the old generation is done or given up now: sums are right after it too.
            job.kill(0, replace="allreduce")
            job.good(generation + 2)
        assert job.world.end_world(old) is not None
        assert not job.proxies(old)


@pytest.mark.long
def test_what_was_sent_arrives_whole_where_the_end_of_a_generation_is_heard_later(new_job: Any) -> None:
    """A rank gets what its peer sent, or an error: never the memory of a proxy that has let go."""
    job = new_job([1, 1])
    job.start("from_the_first")
    pids = {one["world_rank"]: one["pid"] for one in job.world.heard_of("proxy_ready")}
    for _ in range(3):
        generation = job.world.number
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(0.1)  # rank 0 sends, and waits for the other proxy
        words = {"number": generation, "rank": None, "incarnation": None}
        with job.world.lock:
            job.world._services[0].end(words)
        incarnation = job.world.members[0][0]
        job.world.until(lambda: incarnation in job.world.waiting, "rank 0 leaves")  # noqa: B023
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(0.1)
        with job.world.lock:
            job.world._services[1].end(words)
        job.good(generation + 1)
