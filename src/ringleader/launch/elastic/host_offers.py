"""Which hosts an elastic job may use now: what its source names, less those that failed it lately."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from ringleader.elastic_options import ElasticOptions
from ringleader.job import Host, Job
from ringleader.launch.elastic.facts import HostsSeen
from ringleader.launch.elastic.host_answers import HostsChanged, HostSourceError, usable
from ringleader.launch.elastic.host_blacklist import CooldownRange, HostBlacklist
from ringleader.launch.elastic.host_sources import (
    DiscoveryScript,
    FixedHosts,
    Hostfile,
    HostSource,
    SlurmJob,
)
from ringleader.launch.elastic.host_watch import HostWatch
from ringleader.launch.elastic.source_command import command_words


class HostOffers:
    """A source that is watched, and the hosts that are out for a while."""

    def __init__(self, source: HostSource, hosts: tuple[Host, ...], options: ElasticOptions) -> None:
        """``hosts``: what the source said first."""
        cooldown = options.cooldown
        span = None if cooldown is None else CooldownRange(shortest=cooldown[0], longest=cooldown[1])
        self._blacklist = HostBlacklist(cooldown=span)
        self._hosts = hosts
        self._now = 0.0
        self._changed = False
        self.source = source.name
        """What messages call the source."""
        self._watch = None
        if not isinstance(source, FixedHosts):
            self._watch = HostWatch(source, hosts, period=options.discovery_seconds)

    def fileno(self) -> int | None:
        """Return a descriptor that is readable while there is news."""
        return self._watch.fileno() if self._watch is not None else None

    def first(self) -> HostsSeen:
        """Return what is on offer now."""
        allowed = self._blacklist.allowed(self._hosts, self._now)
        return HostsSeen(hosts=tuple((host.name, host.slots or 0) for host in allowed))

    def exclude(self, name: str) -> None:
        """Leave a host out for a while: it failed the job."""
        self._blacklist = self._blacklist.after_failure(name, now=self._now, jitter=random.random())
        self._changed = True

    def news(self, now: float) -> tuple[HostsSeen | None, list[str]]:
        """Return what is on offer, where that has changed, and what the user should know."""
        back = self._blacklist.next_return(self._now)
        self._changed = self._changed or (back is not None and now >= back)
        self._now = now
        warnings = []
        for one in self._watch.news() if self._watch is not None else ():
            if isinstance(one, HostsChanged):
                self._hosts, self._changed = one.hosts, True
            else:
                warnings.append(one.text)
        changed, self._changed = self._changed, False
        return (self.first() if changed else None), warnings

    def refresh(self) -> bool:
        """Have the source probed now; False where its hosts are always the same."""
        if self._watch is not None:
            self._watch.refresh()
        return self._watch is not None

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()


def source_of(job: Job, options: ElasticOptions) -> HostSource:
    """Return the source of a job's hosts. Raises RequestError for a command that cannot be run."""
    if options.discovery_script is not None:
        words = command_words(options.discovery_script, "--host-discovery-script")
        return DiscoveryScript(argv=words, default_slots=options.slots)
    if options.hostfile is not None:
        path = options.hostfile
        return Hostfile(str(Path(job.workdir, path)), default_slots=options.slots)
    if options.slurm_job is not None:
        return SlurmJob(hosts=job.hosts, job_id=options.slurm_job)
    # Without hosts this machine has as many slots as are asked for, whatever it has of cores.
    return FixedHosts(hosts=job.hosts or (Host(name="localhost", slots=options.max_np or job.np),))


def first_hosts(source: HostSource, stop: int | None, *, warn: Callable[[str], None]) -> tuple[Host, ...]:
    """Return what a source says at the start; arguments and errors are ``HostSource.look``'s.

    Slurm's controller may be out of reach from here, in a container without its programs: Slurm's own
    variables have told the nodes, so that the job can begin. ``warn`` hears of it.
    """
    try:
        return usable(source.look(stop), source.name)
    except HostSourceError as error:
        if not isinstance(source, SlurmJob):
            raise
        warn(f"{error}\n    → the job begins on the nodes that Slurm's variables name")
        return source.hosts
