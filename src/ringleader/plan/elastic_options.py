"""How a job may change while it runs: what ``--min-np`` and its like ask for, as a value."""

from __future__ import annotations

from typing import Any, ClassVar

from ringleader.errors import Fault
from ringleader.option_fields import SECONDS, faults_of_values, flag, option
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

_COUNT: dict[str, Any] = {"metavar": "N", "least": 1, "wrong": "{}"}


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Between which bounds an elastic job may change, and what it does where something fails."""

    SECTION: ClassVar[str] = "Elastic jobs"
    """Their heading in the help."""
    min_np: int = option(
        "Elastic: continue while at least N ranks can train. [default: -n with --host-discovery-script, "
        "else 1]",
        default=1,
        old=("--min-num-proc",),
        of="cluster",
        **_COUNT,
    )
    max_np: int | None = option(
        "Elastic: grow to up to N ranks as hosts join. [default: all their slots]",
        old=("--max-num-proc",),
        of="cluster",
        **_COUNT,
    )
    min_hosts: int = option("Minimum number of hosts. [default: 1]", default=1, of="cluster", **_COUNT)
    max_hosts: int | None = option("Maximum number of hosts.", of="cluster", **_COUNT)
    discovery_script: str | None = option(
        "Elastic: COMMAND, run every second, prints the hosts, one 'h1' or 'h1:2' per line. [default: the "
        "hosts of --hostfile or Slurm]",
        "--host-discovery-script",
        metavar="COMMAND",
    )
    hostfile: str | None = None
    """Hostfile that is read again when it changes."""
    slurm_job: str | None = None
    """Slurm's number of the surrounding job, whose nodes are the hosts and are followed."""
    discovery_seconds: float | None = None
    """Between two looks at the hosts; ``None``: as often as befits where they come from."""
    slots: int | None = option(
        "Slots for hosts listed without a slot count. [default: one per GPU, else per core]",
        "--slots-per-host",
        old=("--slots",),
        **_COUNT,
    )
    rank_restarts: int = option(
        "Replace a failed rank up to N times within 60 s; after that its slot is no longer used. "
        "[default: 3]",
        default=3,
        of="cluster",
        **(_COUNT | {"least": 0}),
    )
    exclude_hosts: bool = flag(
        "Do not replace a failed rank: remove its host from the job, as Horovod does.", of="cluster"
    )
    reset_limit: int | None = option(
        "Stop the job after ranks have been added or removed N times.",
        of="cluster",
        **(_COUNT | {"least": 0}),
    )
    """Generations after the first; ``None``: any number."""
    cooldown: tuple[float, float] | None = option(
        "How long to exclude a failed host, in seconds: starts at SHORTEST and doubles with each failure, "
        "up to LONGEST. [default: 10 and 600 with a discovery command, a hostfile, or Slurm; otherwise the "
        "host isn't used again]",
        "--blacklist-cooldown-range",
        nargs=2,
        metavar="SHORTEST LONGEST",
        unit="seconds",
        of="cluster",
    )
    """``None``: it stays out for good."""
    timeout: float = option(
        "How long to wait for enough hosts to join, and for ranks to reinitialize after a change. [default: "
        "600]",
        "--elastic-timeout",
        default=600.0,
        most=LONGEST_TIMEOUT,
        of="cluster",
        **SECONDS,
    )
    hang_seconds: float | None = option(
        "Replace a rank that keeps others waiting for this time.",
        "--elastic-hang-seconds",
        most=LONGEST_TIMEOUT,
        of="cluster",
        **SECONDS,
    )
    """``None``: ``timeout`` counts, and only once its generation is over."""
    checkpoint_dir: str | None = option(
        "Directory on each host for saved elastic states (state.commit()). A new job resumes from the "
        "latest one.",
        metavar="DIR",
        of="cluster",
    )
    checkpoint_every: int = option(
        "Save the state of every Nth commit(). [default: 10]", default=10, of="cluster", **_COUNT
    )

    def faults(self, np: int | None) -> list[Fault]:
        """Return what is wrong with it, ``np`` ranks being asked for."""
        found = faults_of_values(self)
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
            what = f"{self.cooldown[0]:g} {self.cooldown[1]:g} is not a range of seconds"
            hint = f"two numbers of seconds, the shorter stay first, above 0 and at most {LONGEST_COOLDOWN:g}"
            found.append(Fault(where="--blacklist-cooldown-range", what=what, hint=hint))
        if self.checkpoint_dir == "":
            found.append(Fault(where="--checkpoint-dir", what="names no directory", hint="give its path"))
        return found


def _below(where: str, least: int, most: int) -> Fault:
    return Fault(where=where, what=f"at least {least}, but at most {most}", hint="let the second be larger")
