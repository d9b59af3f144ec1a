"""The launcher with hosts that do not exist: how long each phase of a job takes, and how much memory.

    python benchmarks/control_plane.py [--hosts 64,256,1024] [--kind job|elastic] [--profile FILE]

The launcher is the real one (`launch/supervision`, `launch/elastic`), in a separate process, which is what is
measured. Its hosts are connections of a few other processes (`simulated_hosts.py`) that speak the agents'
protocol on the loopback interface: no ssh, no processes of ranks, no user's code. What is left is what the
launcher itself does for its hosts, so what grows faster than their number shows here.

    job      8 ranks on each host: start, lines, a host that fails, all ranks started again, lines, the end
    elastic  the same: start, lines, reports of steps, a host that fails, its return, the end

The longest turn is the longest for which the launcher served nobody, in seconds of its core: signals and
deadlines wait for it. Nothing may miss a deadline: a host, a rank or a world that is given up is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

from _pairs import keep
from ringleader.agents import job_directory
from ringleader.launch.elastic.available_hosts import AvailableHosts
from ringleader.launch.elastic.elastic_hosts import ElasticHosts, HostStart
from ringleader.launch.elastic.elastic_session import ElasticJob
from ringleader.launch.elastic.host_sources import MOST_RANKS, fixed_hosts
from ringleader.launch.elastic.launch_elastic import OPEN_FILES, elastic_context
from ringleader.launch.elastic_history import Event
from ringleader.launch.host_probe.host_answer import HostReport
from ringleader.launch.host_probe.probe import Probe
from ringleader.launch.launch_job import launch
from ringleader.launch.mpirun.mpirun_process import open_files
from ringleader.launch.supervision.agent_connections import LOOPBACK, AgentServer
from ringleader.launch.supervision.session import Channels
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Host, Job

SLOTS, LINES, REPORTS = 8, 100, 5
"""Ranks of a host; lines of 100 bytes, and reports of steps, of each rank."""
LOST = "h1"
"""The host that fails."""
SIMULATORS = 2
PATIENCE = 60.0
"""`start_timeout` and the elastic `timeout`, as without options."""
ALARM = 300
MOST_MIB = 500
EXPECTED = {"generation", "host_lost", "host_added", "notified"}
"""Events of a job in which nobody missed a deadline."""
MPIRUN = """
import json, os, pathlib, socket, sys
if "--version" in sys.argv:
    print("mpirun (Open MPI) 5.0.9")
    sys.exit()
hosts, size, paths = {}, 0, PATHS
for line in pathlib.Path(sys.argv[sys.argv.index("--hostfile") + 1]).read_text().splitlines():
    name, slots = line.split()[0], int(line.rpartition("=")[2])
    hosts[name] = [*range(size, size + slots)]
    size += slots
if world := int(os.environ.get("RINGLEADER_WORLD", 0)):
    orders = [{"do": "world", "world": world, "hosts": hosts, "size": size} for _ in paths]
else:
    found = {"control": os.environ["RINGLEADER_CONTROL"], "token": os.environ["RINGLEADER_TOKEN"]}
    ranks = [(rank, name) for name, ranks in hosts.items() for rank in ranks]
    parts = [ranks[number::len(paths)] for number in range(len(paths))]
    orders = [{"do": "ranks", "ranks": part, "size": size, **found} for part in parts]
sockets = []
for path, order in zip(paths, orders):
    sockets.append(socket.socket(socket.AF_UNIX))
    sockets[-1].connect(path)
    sockets[-1].sendall(json.dumps(order).encode() + b"\\n")
for one in sockets:
    one.recv(1)
"""
"""An mpirun whose ranks, or proxies, are those of the simulated hosts; it ends when they have."""


class Simulators:
    """The processes whose connections are the hosts."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        program = str(Path(__file__).with_name("simulated_hosts.py"))
        paths = [f"{folder}/{number}.sock" for number in range(SIMULATORS)]
        for path in paths:
            process = subprocess.Popen((sys.executable, program, path))
            stack.callback(process.wait)
            stack.callback(process.kill)
        self.sockets = []
        for path in paths:
            while not Path(path).is_socket():
                time.sleep(0.05)
            time.sleep(0.1)
            self.sockets.append(socket.socket(socket.AF_UNIX))
            self.sockets[-1].connect(path)
        (folder / "mpi/bin").mkdir(parents=True)
        code = folder / "mpirun.py"
        code.write_text(MPIRUN.replace("PATHS", repr(paths), 1), encoding="utf-8")
        self.mpirun = folder / "mpi/bin/mpirun"
        self.mpirun.write_text(
            f'#!/bin/sh\nexec {shlex.join((sys.executable, "-I", "-S", str(code)))} "$@"\n'
        )
        self.mpirun.chmod(0o755)

    def order(self, do: str, *, only: int | None = None, **words: Any) -> None:
        for sock in self.sockets if only is None else [self.sockets[only % SIMULATORS]]:
            sock.sendall(json.dumps({"do": do, **words}).encode() + b"\n")


class Watch:
    """A listener that has the next phase begin when one is over, and remembers how long each took."""

    def __init__(self, simulators: Simulators, ranks: int) -> None:
        self.simulators, self.ranks = simulators, ranks
        self.lines = self.reports = self.missed = 0
        self.began, self.cpu = time.monotonic(), time.process_time()
        self.phases: list[tuple[str, float, float]] = []
        self.turn = 0.0
        self.out = os.open(os.devnull, os.O_WRONLY)
        self.pieces: list[bytes] = []

    def over(self, phase: str) -> None:
        """Note the end of a phase."""
        now, cpu = time.monotonic(), time.process_time()
        self.phases.append((phase, now - self.began, cpu - self.cpu))
        self.began, self.cpu = now, cpu
        print(f"    {phase} {self.phases[-1][1]:.2f} s", file=sys.stderr, flush=True)

    def print(self) -> None:
        self.lines = 0
        self.simulators.order("print", lines=LINES)

    # --- what the launcher says ---------------------------------------------------------------------------

    def output(self, rank: int, stream: str, line: bytes) -> None:
        self.pieces.append(b"[%4d] %s" % (rank, line))
        self.lines += 1
        if self.lines == LINES * self.ranks:
            self.printed()

    def flush(self) -> None:
        os.write(self.out, b"".join(self.pieces))
        self.pieces.clear()

    def waiting(self) -> int:
        return 0

    def report(self, rank: int, message: dict[str, Any]) -> None:
        if message["kind"] == "step":
            self.reports += 1
            if self.reports == REPORTS * self.ranks:
                self.reported()

    def progress(self, text: str) -> None: ...

    def warning(self, text: str) -> None:
        if self.is_trouble(text):
            self.missed += 1
            print(f"control_plane: {text}", file=sys.stderr)

    def is_trouble(self, text: str) -> bool:
        return True

    def printed(self) -> None:
        raise NotImplementedError

    def reported(self) -> None:
        raise NotImplementedError


class WatchedJob(Watch):
    """Of a job that is not elastic."""

    starts, is_starting, is_lost = 0, False, False

    def progress(self, text: str) -> None:
        begins, self.is_starting = self.is_starting and not text, bool(text)
        if begins:
            self.starts += 1
            self.over("start" if self.starts == 1 else "a host fails, all start again")
            self.print()

    def is_trouble(self, text: str) -> bool:
        return not self.is_lost or "restart 1 of 1" not in text

    def printed(self) -> None:
        self.over("output" if self.starts == 1 else "output again")
        if self.starts == 1:
            self.is_lost = True
            self.simulators.order("lose", host=LOST)
        else:
            self.simulators.order("end")


class WatchedElasticJob(Watch):
    """Of an elastic job."""

    def printed(self) -> None:
        self.over("output")
        for number in range(1, REPORTS + 1):
            self.simulators.order("step", number=number)

    def reported(self) -> None:
        self.over("reports of steps")
        self.simulators.order("lose", host=LOST)

    def event(self, event: Event) -> None:
        """An event of the job."""
        of_lost = event.kind == "rank_failed" and event.who.endswith(f" on {LOST}")
        if event.kind not in EXPECTED and not of_lost:
            self.missed += 1
            print(f"control_plane: {event.kind}: {event.who}: {event.why}", file=sys.stderr)
        elif event.kind == "host_added" and self.phases[-1][0] == "a host fails":
            self.over("waiting for its return")
        elif event.kind == "generation":
            names = {1: "start", 2: "a host fails", 3: "it returns"}
            self.over(names.get(event.generation, f"generation {event.generation}"))
            if event.generation == 1:
                self.print()
            elif event.size == self.ranks:
                self.simulators.order("end")

    def is_trouble(self, text: str) -> bool:
        return False  # they are the events


def report(name: str) -> HostReport:
    return HostReport(
        host=Host(name=name, slots=SLOTS),
        hostname=name,
        identity=name,
        is_local=False,
        cpus=tuple(range(4 * SLOTS)),
        addresses=(LOOPBACK,),
        python_version="3.11.7",
        ringleader_version="",
        ringleader_checksum="",
        mpirun="",
        mpi_version="",
        interfaces={},
        names={},
        workdir=True,
    )


@contextlib.contextmanager
def turns_measured(watch: Watch) -> Iterator[None]:
    """Have the longest turn of a session's loop measured, its wait left out."""
    turned = [time.thread_time()]

    class Measured(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
        def select(self, timeout: float | None = None) -> Any:
            watch.turn = max(watch.turn, time.thread_time() - turned[0])
            found = super().select(timeout)
            turned[0] = time.thread_time()
            return found

    before, selectors.DefaultSelector = selectors.DefaultSelector, Measured  # type: ignore[misc]
    try:
        yield
    finally:
        selectors.DefaultSelector = before  # type: ignore[misc]


def run_job(simulators: Simulators, hosts: int) -> tuple[Watch, str]:
    """Run a job that is not elastic."""
    names = tuple(Host(name=f"h{number}", slots=SLOTS) for number in range(hosts))
    facts = tuple(report(host.name) for host in names)
    job = Job(
        command=("train",),
        np=SLOTS * hosts,
        hosts=names,
        mpi=str(simulators.mpirun),
        start_timeout=PATIENCE,
        max_restarts=1,
    )
    watch = WatchedJob(simulators, SLOTS * hosts)
    with turns_measured(watch):
        outcome = launch(
            job,
            environ=dict(os.environ),
            listener=watch,
            prober=lambda *_, **__: Probe(facts=facts, ssh=None),
        )
    return watch, outcome.reason if outcome.exit_code else ""


class SimulatedHosts(ElasticHosts):
    """Hosts that are not probed, and whose agents another process has."""

    def __init__(self, simulators: Simulators, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._simulators = simulators
        self.agents._start = self._start_agent  # type: ignore[method-assign, assignment]

    def _reach(self, hosts: tuple[Host, ...]) -> None: ...

    def _look(self, name: str, job: Job, start: HostStart) -> None:
        self._answers.put((name, report(name)))
        os.eventfd_write(self._wake, 1)

    def _start_agent(self, host: HostReport, number: int, seconds: float, until: list[float]) -> None:
        name = host.host.name
        self._simulators.order("host", only=int(name[1:]), config=self.agents.config | {"host": name})


class SimulatedJob(ElasticJob):
    """An elastic job on such hosts."""

    def __init__(self, simulators: Simulators, watch: WatchedElasticJob, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.watch = watch
        self.hosts = SimulatedHosts(simulators, self.context, self.server, self.take, wake=self._wake)

    def _event(self, event: Event) -> None:
        super()._event(event)
        self.watch.event(event)


def run_elastic(simulators: Simulators, hosts: int) -> tuple[Watch, str]:
    """Run an elastic job: what `launch_elastic` does, with such hosts."""
    names = tuple(Host(name=f"h{number}", slots=SLOTS) for number in range(hosts))
    elastic = ElasticOptions(min_np=SLOTS, timeout=PATIENCE, cooldown=(10.0, 10.5))
    job = Job(
        command=("train",),
        np=SLOTS * hosts,
        hosts=names,
        mpi=str(simulators.mpirun),
        elastic=elastic,
        start_timeout=PATIENCE,
    )
    watch = WatchedElasticJob(simulators, SLOTS * hosts)
    context = elastic_context(job, environ=dict(os.environ), listener=watch, job_id=os.urandom(6).hex())
    with contextlib.ExitStack() as stack:
        stack.enter_context(turns_measured(watch))
        stack.enter_context(open_files(OPEN_FILES, os.getpid()))
        offers = AvailableHosts(fixed_hosts(names), names, cooldown=elastic.cooldown)
        directory = job_directory.JobDirectory(context.directory, context.key)
        stack.callback(directory.leave)
        selector = stack.enter_context(selectors.DefaultSelector())
        server = AgentServer(selector, token=context.token, addresses=(LOOPBACK,), ranks=MOST_RANKS)
        stack.callback(server.close)
        channels = Channels(selector=selector, server=server, listener=watch)
        running = SimulatedJob(simulators, watch, context, channels, offers)
        stack.callback(running.close)
        running.run()
    result = running.state.result
    assert result is not None
    return watch, result.reason if result.exit_code else ""


def measured(kind: str, hosts: int, profile: str | None) -> dict[str, Any]:
    """Run one job in this process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulators = Simulators(folder, stack)
        signal.alarm(ALARM)
        run = {"job": run_job, "elastic": run_elastic}[kind]
        if profile is None:
            watch, why = run(simulators, hosts)
        else:
            import cProfile

            profiler = cProfile.Profile()
            watch, why = profiler.runcall(run, simulators, hosts)
            profiler.dump_stats(profile)
        watch.over("end")
    if why or watch.missed:
        raise SystemExit(f"control_plane: {watch.missed} deadlines missed; {why or 'the job ended well'}")
    memory = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return {
        "kind": kind,
        "hosts": hosts,
        "ranks": SLOTS * hosts,
        "phases": {name: (round(seconds, 2), round(cpu, 2)) for name, seconds, cpu in watch.phases},
        "longest_turn": round(watch.turn, 3),
        "peak_mib": round(int(memory.split()[1]) / 1024),
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return a table for each kind of job: seconds, and seconds of a core."""
    blocks = []
    for kind in dict.fromkeys(one["kind"] for one in results):
        ours = [one for one in results if one["kind"] == kind]
        names = [name for name in ours[0]["phases"] if not name.startswith("waiting")]
        rows = [[name, *("{:.2f} ({:.2f})".format(*one["phases"][name]) for one in ours)] for name in names]
        rows.append(["longest turn", *(f"{one['longest_turn']:.2f}" for one in ours)])
        rows.append(["peak memory, MiB", *(str(one["peak_mib"]) for one in ours)])
        header = [f"{kind}: seconds (of a core)", *(f"{one['hosts']:,} hosts" for one in ours)]
        blocks.append(tabulate(rows, header, tablefmt="github", disable_numparse=True))
    return "\n\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="64,256,1024")
    parser.add_argument("--kind", choices=("job", "elastic"), action="append")
    parser.add_argument("--profile", help="write cProfile's numbers of the launcher to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    words = parser.parse_args()
    sizes = [int(word) for word in words.hosts.split(",")]
    if words.one is not None:
        print(json.dumps(measured(words.one, sizes[0], words.profile)))
        return
    results = []
    for kind in words.kind or ("job", "elastic"):
        for size in sizes:
            print(f"{kind}, {size} hosts", file=sys.stderr)
            command = [sys.executable, __file__, "--one", kind, "--hosts", str(size)]
            command += ["--profile", words.profile] if words.profile else []
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            results.append(json.loads(done.stdout))
    print(table(results))
    if any(one["peak_mib"] > MOST_MIB for one in results):
        raise SystemExit(f"control_plane: more than {MOST_MIB} MiB")
    if sizes == [64, 256, 1024] and words.profile is None:
        kept = Path(__file__).parent / "results/control_plane.json"
        before = json.loads(kept.read_text())["runs"] if kept.is_file() else []
        measured_now = {one["kind"] for one in results}
        others = [one for one in before if one["kind"] not in measured_now]
        keep("control_plane", {"simulators": SIMULATORS, "runs": [*others, *results]})


if __name__ == "__main__":
    main()
