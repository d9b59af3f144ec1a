"""What comes back from a launch, and who is informed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ringleader.plan.job import Mpi
from ringleader.plan.rank_placement import Plan
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts
    from ringleader.fabric.transport_proof.proof import TransportProof
    from ringleader.launch.elastic_history import ElasticHistory
    from ringleader.launch.hang_verdict import Verdict
    from ringleader.launch.stragglers import Straggler
    from ringleader.metrics import Sample


class Listener(Protocol):
    """Whoever started the job: told what happens, in order, from one thread."""

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Take one line of ``stdout`` or ``stderr`` with its line feed; the last one may lack it."""

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Take a message that the rank wrote to its report pipe."""

    def progress(self, text: str) -> None:
        """Take a word on how far the start has come; the empty text says that the ranks run."""

    def warning(self, text: str) -> None:
        """Take something the user should know although the job continues."""

    def flush(self) -> None:
        """Pass on the lines that came: there is none more for the moment.

        Raises BrokenPipeError where whoever reads them has gone: the job is ended as by SIGPIPE.
        """

    def waiting(self) -> int:
        """Return how many bytes of output were taken but could not be passed on yet.

        Many: the ranks are slowed down. The launch ends when there are none, or nobody takes them.
        """


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended."""

    rank: int
    host: str
    """Its host's name as the user wrote it."""
    exit_code: int | None
    """``None`` where a signal ended it, or nobody knows."""
    signal: int | None
    """The signal that ended it."""
    seconds: float
    """From its start to its end."""
    at: float
    """Seconds from the job's start to this rank's end, by the launcher's clock; to the exception, where one
    left its script and its exit handlers ran on."""
    stopped: str = ""
    """Who ended it, where it did not end by itself (``ringleader``, the MPI); then it is not a failure."""
    orphaned: bool = False
    """True where it ended by itself, but after the MPI that started it had ended."""
    reason: str = ""
    """Why there is no exit code, or why the command could not be started."""
    log: str = ""
    """Path of its standard error in the output directory; empty without one."""

    @property
    def failed(self) -> bool:
        """True where the rank itself failed: not when it was stopped because of something else."""
        return not self.stopped and (self.exit_code != 0)

    @property
    def code(self) -> int:
        """The exit code a shell would give: 128+n for signal n; 3 where nobody knows."""
        if self.signal is not None:
            return 128 + self.signal
        return 3 if self.exit_code is None else self.exit_code


@dataclass(frozen=True, kw_only=True)
class JobExit:
    """How a job ended, as a whole."""

    exit_code: int
    """0, the first failing rank's code, 124 for a time-out, 128+n for signal n to the launcher."""
    whose: str
    """Whose code that is: ``rank 1``, ``ringleader``, ``mpirun``."""
    reason: str
    """What happened, in one sentence; empty where all ranks ended with 0."""
    first_failure: RankEnd | None
    """The rank that failed first in time."""


Exit = TypeVar("Exit", bound=JobExit)


@dataclass(frozen=True, kw_only=True)
class HostFault:
    """What a host's kernel said of a device while the job ran, or errors that a port counted."""

    at: float
    """Seconds from the launch."""
    host: str
    kind: str
    """``kernel.xid``, ``kernel.link``, ``port.errors`` …: as the doctor's checks."""
    number: int = 0
    """Of an Xid."""
    device: str = ""
    """PCI address, or port: ``mlx5_0/1``."""
    gpu: int | None = None
    """Index of the GPU."""
    text: str
    """What it means, with the kernel's own words."""
    remedy: str = ""
    is_fault: bool = False
    """The device is not well; otherwise a program's own error, or one that was corrected."""

    def __str__(self) -> str:
        said = "the kernel reports: " if self.kind.startswith("kernel.") else ""
        return f"{self.host}: {said}{self.text}\n    → {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class Restart:
    """All ranks were started again, or that was tried."""

    number: int
    """From 1."""
    most: int
    """How many there may be."""
    at: float
    """Seconds from the launch."""
    reason: str
    """What had failed, in one sentence."""
    rank: int | None = None
    """The rank that failed first; ``None``: it was no rank's failure."""
    host: str = ""
    """That rank's host, as the user named it."""
    exit_code: int | None = None
    """What the job's exit code would have been; ``None``: the ranks could not be started."""

    def __str__(self) -> str:
        return f"{self.reason}\n    → all ranks start again: restart {self.number} of {self.most}"


@dataclass(frozen=True, kw_only=True)
class Outcome(JobExit):
    """How a job ended, and each of its ranks."""

    ends: tuple[RankEnd, ...]
    """One for each rank, by rank."""
    plan: Plan
    mpi: Mpi
    seconds: float
    """From the launch to the end of everything."""
    restarts: tuple[Restart, ...] = ()
    """How often all ranks were started again, and why; the ends are those of the last start."""
    results: tuple[bytes | None, ...] = ()
    """What each rank of ``ringleader.run`` sent back, pickled; empty for commands."""
    proof: TransportProof | None = None
    """Which wires carried the bytes that the ranks exchanged; ``None``: nothing was gathered of them."""
    elastic: ElasticHistory | None = None
    """What an elastic job went through."""
    differences: tuple[dict[str, Any], ...] = ()
    """What ranks reported of parameters that differ between them; see ``consistency`` in ``--json``."""
    hang: Verdict | None = None
    """What was said last of ranks that wait for each other; ``None``: nobody asked."""
    stragglers: tuple[Straggler, ...] = ()
    """Ranks that the others waited for while they were slow."""
    rate: Sample | None = None
    """How fast it trained, where it reported samples or steps; who listened has measured it."""
    host_faults: tuple[HostFault, ...] = ()
    """What the kernels of hosts said while the ranks of the last start ran, and errors of RDMA ports."""
    profile: Mapping[str, Any] | None = None
    """Where the steps of ``--profile`` went, as JSON values; who listened has read the traces."""
    devices: Mapping[str, HostFacts] = field(default_factory=dict)
    """Host → its GPUs and NICs, for hosts of a job on several that have RDMA devices."""
