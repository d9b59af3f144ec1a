"""The worlds of an elastic job: one mpirun each, which starts an MPI proxy for every slot."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ringleader.errors import RingleaderError
from ringleader.launch.elastic.job_context import ElasticContext, prepared_world, world_environment
from ringleader.launch.elastic.layout import Layout, slots_of
from ringleader.launch.exit_reason import cause_in, daemons_lost_in, signal_name
from ringleader.launch.host_probe.host_answer import HostReport
from ringleader.launch.launch_plan import Prepared
from ringleader.launch.mpirun.mpirun_process import MpirunProcess, allow_open_files, open_files_needed
from ringleader.launch.ssh.connections import SshConnections
from ringleader.render.hostfile import bare_name

LEAVE_SECONDS = 4.0
"""For the proxies of a world that is over to end by themselves, before its mpirun is ended."""


class World:
    """One of them."""

    def __init__(self, number: int, layout: Layout, prepared: Prepared, mpirun: MpirunProcess) -> None:
        """Its mpirun has been started."""
        self.number, self.prepared, self.mpirun = number, prepared, mpirun
        self.places = {slot: place for place, slot in enumerate(slots_of(layout))}
        """The number of each slot's proxy."""
        self.told = False
        """Its end was reported."""
        self.end_at: float | None = None
        """When its mpirun is ended."""


class Worlds:
    """All that have not ended."""

    def __init__(
        self,
        context: ElasticContext,
        selector: selectors.BaseSelector,
        tell: Callable[..., None],
    ) -> None:
        """``tell`` takes messages for the decider."""
        self._context, self._selector, self._tell = context, selector, tell
        self._standby: MpirunProcess | None = None
        self.worlds: dict[int, World] = {}
        self.prepared: Prepared | None = None
        """What the newest world was started with."""

    def start(
        self,
        number: int,
        layout: Layout,
        reports: Mapping[str, HostReport],
        ssh: SshConnections | None,
    ) -> None:
        """Start a world; where that is not possible, ``world_ended`` follows."""
        context = self._context
        try:
            prepared = prepared_world(context, layout, reports, number=number, ssh=ssh)
            needed = open_files_needed(prepared.plan, files=context.job.output_dir is not None)
            allow_open_files(needed, os.getpid())
            hostfile = Path(context.directory, context.key, f"hostfile-{number}")
            hostfile.write_text(prepared.command.hostfile, encoding="utf-8")
        except RingleaderError as error:
            self._tell("world_ended", world=number, why=str(error))
            return
        except OSError as error:
            self._tell("world_ended", world=number, why=f"{error.filename}: {error.strerror}")
            return
        mpirun, self._standby = self._standby or MpirunProcess(), None
        mpirun.start(
            self._selector,
            argv=prepared.command.argv,
            environment=world_environment(prepared),
            directory=context.directory,
            key=context.key,
            grace=0.0,
        )
        self.prepared = prepared
        self.worlds[number] = World(number, layout, prepared, mpirun)

    def end(self, number: int, *, hard: bool) -> None:
        """End a world: its proxies were ordered to leave; ``hard``: nobody is waited for."""
        world = self.worlds.get(number)
        if world is not None and world.end_at is None:
            world.end_at = time.monotonic() + (0.0 if hard else LEAVE_SECONDS)
            if hard:
                world.mpirun.stop(hard=True)

    def tick(self, now: float) -> None:
        """Report ends, and end what was to end by itself and has not; have the next supervisor ready."""
        if self._standby is None:
            self._standby = MpirunProcess()
        for world in list(self.worlds.values()):
            world.mpirun.watch()
            if world.mpirun.exit_code is not None and not world.told:
                world.told = True
                self._tell_end(world)
            if world.end_at is not None and now > world.end_at and world.mpirun.exit_code is None:
                world.mpirun.stop(hard=True)
                world.end_at = now + LEAVE_SECONDS
            if world.told and world.mpirun.process.poll() is not None:
                world.mpirun.close()
                del self.worlds[world.number]

    def _tell_end(self, world: World) -> None:
        mpirun, mpi = world.mpirun, self._context.mpi
        code = mpirun.exit_code or 0
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        nodes = set(daemons_lost_in(mpirun.output()))
        hosts = [
            one.host.name
            for one in world.prepared.plan.hosts
            if nodes & {one.hostname, bare_name(one.host.name)}
        ]
        names = ", ".join(hosts)
        lost = f"the MPI's daemon on {names} ended" if names else ""
        cause = cause_in(mpirun.output())
        why = mpirun.failure or lost or f"mpirun of {mpi.name} {how}" + (f": {cause}" if cause else "")
        self._tell("world_ended", world=world.number, why=why, hosts=hosts)

    def close(self) -> None:
        """End all of them and wait for that."""
        for world in self.worlds.values():
            world.mpirun.stop(hard=True)
        for world in self.worlds.values():
            world.mpirun.close()
        self.worlds = {}
        if self._standby is not None:
            self._standby.close()
