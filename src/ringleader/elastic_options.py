"""How a job may change while it runs: what ``--min-np`` and its like ask for, as a value."""

from __future__ import annotations

from ringleader.errors import Fault
from ringleader.value_class import dataclass

RESET_LIMIT = "(--reset-limit)"
"""How the reason of a job ends that had more resets than were allowed."""
LONGEST_TIMEOUT = 7 * 86400.0
"""Seconds that a job may wait for hosts."""
LONGEST_COOLDOWN = 86400.0
"""Seconds that a host that failed may stay out."""
COOLDOWN = (10.0, 600.0)
"""Seconds that a host that failed stays out, shortest and longest, where hosts are discovered."""
COOLDOWN_OF_PODS = (5.0, 60.0)
"""The same where they are Pods: one that failed is replaced by another, which has its name."""


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Between which bounds an elastic job may change, and what it does where something fails."""

    min_np: int = 1
    """Ranks below which it waits for hosts."""
    max_np: int | None = None
    """Ranks at most; ``None``: as many as the hosts have slots."""
    min_hosts: int = 1
    max_hosts: int | None = None
    discovery_script: str | None = None
    """Command that prints the hosts; ``None``: they are fixed, or a hostfile's."""
    hostfile: str | None = None
    """Hostfile that is read again when it changes."""
    slurm_job: str | None = None
    """Slurm's number of the surrounding job, whose nodes are the hosts and are followed."""
    discovery_seconds: float | None = None
    """Between two looks at the hosts; ``None``: as often as befits where they come from."""
    slots: int | None = None
    """Slots of a host whose line in either says none; ``None``: as many as it has cores."""
    rank_restarts: int = 3
    """Starts of a slot's rank anew within 60 s before the slot is left out."""
    exclude_hosts: bool = False
    """A rank that fails takes its host out of the job, as in Horovod, instead of being replaced."""
    reset_limit: int | None = None
    """Generations after the first; ``None``: any number."""
    cooldown: tuple[float, float] | None = None
    """Seconds that a host that failed stays out, shortest and longest; ``None``: for good."""
    timeout: float = 600.0
    """Seconds for hosts to come, and for a rank to ask for its next generation."""
    hang_seconds: float | None = None
    """Seconds after which a rank that does not take part in an operation is ended; ``None``: ``timeout``
    counts, and only once its generation is over."""
    checkpoint_dir: str | None = None
    """Directory, on each host, for files of commits."""
    checkpoint_every: int = 10
    """Every so many commits one becomes a file."""

    def faults(self, np: int | None) -> list[Fault]:
        """Return what is wrong with it, ``np`` ranks being asked for."""
        found = [
            Fault(where=option, what=f"{value}", hint=f"use {least} or more")
            for option, value, least in self._whole_numbers()
            if value is not None and value < least
        ]
        found += [
            _below(f"--min-{what}, --max-{what}", least, most)
            for what, least, most in (
                ("np", self.min_np, self.max_np),
                ("hosts", self.min_hosts, self.max_hosts),
            )
            if most is not None and 1 <= most < least
        ]
        if np is not None and not found and not self.min_np <= np <= (self.max_np or np):
            what = f"{np} ranks asked for, from {self.min_np} to {self.max_np or 'any number'} allowed"
            found.append(Fault(where="-n", what=what, hint="-n is the number of ranks to begin with"))
        if self.cooldown is not None and not 0 < self.cooldown[0] <= self.cooldown[1] <= LONGEST_COOLDOWN:
            what = f"{self.cooldown[0]:g} {self.cooldown[1]:g} is no range of seconds"
            hint = f"two numbers of seconds, the shorter stay first, above 0 and at most {LONGEST_COOLDOWN:g}"
            found.append(Fault(where="--blacklist-cooldown-range", what=what, hint=hint))
        if self.checkpoint_dir == "":
            found.append(Fault(where="--checkpoint-dir", what="names no directory", hint="give its path"))
        seconds = (("--elastic-timeout", self.timeout), ("--elastic-hang-seconds", self.hang_seconds))
        found += [
            Fault(where=option, what=f"{value:g} seconds", hint=f"above 0, at most {LONGEST_TIMEOUT:g}")
            for option, value in seconds
            if value is not None and not 0 < value <= LONGEST_TIMEOUT
        ]
        return found

    def _whole_numbers(self) -> tuple[tuple[str, int | None, int], ...]:
        """Return option, value and the least that it may be."""
        return (
            ("--min-np", self.min_np, 1),
            ("--max-np", self.max_np, 1),
            ("--min-hosts", self.min_hosts, 1),
            ("--max-hosts", self.max_hosts, 1),
            ("--slots-per-host", self.slots, 1),
            ("--checkpoint-every", self.checkpoint_every, 1),
            ("--rank-restarts", self.rank_restarts, 0),
            ("--reset-limit", self.reset_limit, 0),
        )


def _below(where: str, least: int, most: int) -> Fault:
    return Fault(where=where, what=f"at least {least}, but at most {most}", hint="let the second be larger")
