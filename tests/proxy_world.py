"""Ranks over MPI proxies, without a launcher: a real mpirun of proxies, a service of generations for each
host, and what the launcher would decide: a generation begins when all ranks wait, and ends with a rank."""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fork_server import OVER_TCP
from tests.time_limits import patience

from ringleader.agents.elastic.commit_memory import CommitStore
from ringleader.agents.elastic.generation_server import GenerationService
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.plan.job import Family
from ringleader.render.mpirun_command import TABLE

START_SECONDS = 60.0
PROXY = ("-m", "ringleader.engine.mpi_proxy")


class ProxyWorld:
    """Hosts of one machine, each with this many slots; worlds of proxies, and generations of ranks."""

    def __init__(
        self, place: Path, environ: Mapping[str, str], *, slots: Sequence[int], mpirun: Sequence[str] = ()
    ) -> None:
        """``slots``: of each host. ``mpirun``: its words up to the number of processes."""
        self.place, self._slots = place, list(slots)
        self._environ = dict(environ) | ({} if mpirun else OVER_TCP)
        self._mpirun = tuple(mpirun) or (str(Path(sys.executable).with_name("mpirun")), "--oversubscribe")
        self.heard: list[dict[str, Any]] = []
        self.lock = threading.RLock()
        self._paths = [str(place / f"host{number}.sock") for number in range(len(slots))]
        self.stores = [CommitStore() for _ in slots]
        """The commits of each host."""
        self._services = [
            GenerationService(path, self._event, store)
            for path, store in zip(self._paths, self.stores, strict=True)
        ]
        self.members: list[tuple[int, int]] = []
        """(incarnation, slot among all) by rank: who is to be in the next generation."""
        self.waiting: set[int] = set()
        self.number = 0
        self.world = 0
        self.automatic = True
        """Whether a generation begins when all members wait."""
        self.proxies: dict[int, subprocess.Popen[bytes]] = {}
        """World → its mpirun."""
        self._ready: dict[int, set[int]] = {}
        self._arrivals: dict[int, str] = {}
        self._halt, self._halted = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # worlds

    def start_world(self) -> int:
        """Start the proxies of a world beside the present one; return its number when all are ready."""
        with self.lock:
            world = self.world + 1 + sum(number > self.world for number in self.proxies)
            self._ready[world] = set()
        words: list[str] = [*self._mpirun]
        for number, path in enumerate(self._paths):
            variables = ("env", f"RINGLEADER_HOST_AGENT={path}", f"RINGLEADER_WORLD={world}")
            words += [":"] if number else []
            words += ["-n", str(self._slots[number]), *variables, sys.executable, *PROXY]
        out = (self.place / f"world{world}").open("wb")
        with out:
            self.proxies[world] = subprocess.Popen(
                words, env=self._environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.until(lambda: len(self._ready[world]) == sum(self._slots), f"proxies of world {world}")
        return world

    def use_world(self, world: int) -> None:
        with self.lock:
            self.world = world

    def end_world(self, world: int, seconds: float = 20.0) -> int:
        """Have the proxies of a world end; return mpirun's exit code."""
        with self.lock:
            for service in self._services:
                service.end_world(world)
        return self.proxies.pop(world).wait(seconds)

    # ranks

    def environment(self, incarnation: int, slot: int) -> dict[str, str]:
        """Return what a rank on a slot has in its environment."""
        host = self._host(slot)
        return {
            **self._environ,
            "RINGLEADER_HOST_AGENT": self._paths[host],
            "RINGLEADER_INCARNATION": str(incarnation),
            "RANK_POOL_RANK": str(slot),
        }

    def _host(self, slot: int) -> int:
        for host, slots in enumerate(self._slots):
            if slot < slots:
                return host
            slot -= slots
        raise IndexError(slot)

    def until(self, ready: Callable[[], bool], words: str, seconds: float = START_SECONDS) -> None:
        """Wait until something is so; TimeoutError with what the proxies said."""
        end = time.monotonic() + patience(seconds)
        while True:
            with self.lock:
                if ready():
                    return
            if time.monotonic() > end:
                said = [path.read_text(errors="replace") for path in self.place.glob("world*")]
                raise TimeoutError(f"{words} after {seconds:g} s: {self.heard[-20:]}\n" + "\n".join(said))
            time.sleep(0.002)

    def pids(self) -> dict[int, int]:
        with self.lock:
            peers = [peer for service in self._services for peer in service._of_kind("rank")]
            return {peer.hello["incarnation"]: peer.hello["pid"] for peer in peers}

    def heard_of(self, kind: str) -> list[dict[str, Any]]:
        with self.lock:
            return [one for one in self.heard if one["do"] == kind]

    # what a launcher would do

    def _event(self, event: dict[str, Any]) -> None:
        self.heard.append(event)
        if event["do"] == "proxy_ready":
            self._ready[event["world"]].add(event["world_rank"])
        elif event["do"] == "rank_waiting":
            self.waiting.add(event["incarnation"])
            self._arrivals[event["incarnation"]] = event["arrival"]
        elif event["do"] == "rank_gone":
            self.waiting.discard(event["incarnation"])
            if event["generation"]:
                self._end(event["generation"], event["incarnation"])

    def _end(self, generation: int, incarnation: int) -> None:
        ranks = [one for one, _ in self._began]
        words = {"number": generation, "rank": ranks.index(incarnation), "incarnation": incarnation}
        for service in self._services:
            service.end({**words, "signal": 9})

    def begin(self) -> None:
        """Begin a generation of the members, if all of them wait."""
        if not self.members or not self.waiting >= {one for one, _ in self.members}:
            return
        self.number += 1
        self._began = list(self.members)
        members = [
            [incarnation, slot, self._host(slot), place]
            for place, (incarnation, slot) in enumerate(self.members)
        ]
        order = {
            "do": "generation",
            "number": self.number,
            "world": self.world,
            "restore": self._restore(),
            "members": members,
            "arrivals": [self._arrivals[incarnation] for incarnation, _ in self.members],
            "hosts": [f"host{number}" for number in range(len(self._slots))],
        }
        self.waiting -= {one for one, _ in self.members}
        for service, store in zip(self._services, self.stores, strict=True):
            store.keep_up_to(order["restore"])
            service.begin(order)

    def _restore(self) -> int:
        """Return the newest commit that every host which holds any holds."""
        held = [set(store.held()) for store in self.stores if store.held()]
        return max(set.intersection(*held), default=0) if held else 0

    def leave(self, incarnation: int) -> None:
        with self.lock:
            self.waiting.discard(incarnation)
            for service in self._services:
                service.leave(incarnation, "its host was removed")

    def notify(self, counter: int, result: int) -> None:
        with self.lock:
            for service in self._services:
                service.notify(counter, result)

    def _serve(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._halt, select.POLLIN)
            with self.lock:
                for service in self._services:
                    for fd, events in service.interests():
                        poll.register(fd, events)
            came = poll.poll(20)
            with self.lock:
                for fd, events in came:
                    if fd == self._halt:
                        return
                    for service in self._services:
                        service.serve(fd, events)
                if self.automatic and self.world:
                    self.begin()

    def close(self) -> None:
        for world in list(self.proxies):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.end_world(world, 10)
        os.write(self._halted, b".")
        self._thread.join(10)
        for service in self._services:
            service.close()
        for store in self.stores:
            store.close()
        for mpirun in self.proxies.values():
            mpirun.kill()
            mpirun.wait(10)
        os.close(self._halt)
        os.close(self._halted)


def said(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def other_mpi(name: str, place: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return mpirun's words and the variables by which proxies run under an MPI, as the launcher knows it."""
    mpi = find_mpi(name, environ=os.environ)
    options = TABLE[mpi.family]
    links = place / "links"
    links.mkdir(exist_ok=True)
    for wanted, own in options.names_for.items():
        if Path(mpi.library).name == own:
            (links / wanted).symlink_to(mpi.library)
    environ = {**options.environment, "MPI4PY_LIBMPI": mpi.library, "LD_LIBRARY_PATH": str(links)}
    context = {"prefix": mpi.prefix, "libdir": str(Path(mpi.library).parent)}
    for key, value in options.rank_environment.items():
        if "backing" not in value:
            environ[key] = value.format(**context)
    environ = {key: value.format(**context, session=str(place)) for key, value in environ.items()}
    more = ("--oversubscribe",) if mpi.family in (Family.OPENMPI4, Family.OPENMPI5) else ()
    return (mpi.mpirun, *more), environ
