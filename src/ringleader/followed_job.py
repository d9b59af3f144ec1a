"""How far a job that was sent somewhere has come, and how it ended: on Kubernetes, and in Slurm. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

TIMED_OUT = 124
"""Exit code of a job that ran longer than it was allowed to."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a job has come."""

    text: str
    """One line."""
    key: tuple[str, ...]
    """What must change before it is worth a new line where lines are not overwritten."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a job as its caller sees it."""

    exit_code: int
    whose: str
    """``launcher``, ``the cluster``, ``Slurm``, ``ringleader``; empty for 0."""
    reason: str = ""
    """What happened, in one sentence; empty where all went well."""
    state: str = ""
    """The job's state."""
    launcher: str = ""
    """The launcher's last Pod; empty in Slurm."""


class Listener(Protocol):
    """Whoever waits for the job."""

    def output(self, data: bytes) -> None:
        """Take a piece of the launcher's log."""

    def progress(self, progress: Progress) -> None:
        """Take how far the job has come."""

    def warning(self, text: str) -> None:
        """Take something worth knowing although the job continues."""


class Named(Protocol):
    """A job that was sent."""

    @property
    def name(self) -> str:
        """By which commands find it."""


Sent = TypeVar("Sent", bound=Named)
Sent_co = TypeVar("Sent_co", covariant=True)
Sent_contra = TypeVar("Sent_contra", contravariant=True)


class Work(Protocol[Sent_co]):
    """What is done with a job in one kind of place."""

    @property
    def cleans_up(self) -> bool:
        """Whether nothing of the job may be left when we leave: then nobody is asked."""

    async def send(self) -> Sent_co:
        """Bring the job there."""

    async def remove(self) -> None:
        """Take away everything of it that is there, also after half a ``send``."""


class Place(Protocol[Sent_contra]):
    """Where jobs run: how one is followed there, and which commands continue what we leave."""

    @property
    def ends(self) -> tuple[str, str]:
        """What ends a job there, as a verb and its participle: ``delete``, ``deleting``."""

    @property
    def where(self) -> str:
        """Where a job continues that we leave: `` in namespace team``, or nothing."""

    def command(self, verb: str, name: str = "") -> str:
        """Return the command line that does this with a job."""

    async def follow(
        self, job: Sent_contra, listener: Listener, *, shows_log: bool, start_timeout: float | None
    ) -> End:
        """Return how a job ended, once it has."""
