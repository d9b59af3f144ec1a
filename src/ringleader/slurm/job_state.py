"""What is known of a job in Slurm, read from squeue or sacct, and what it says in plain words. Pure.

The names of states and reasons are those of Slurm's ``job_state_string`` and ``job_reason_string``
(src/common/slurm_protocol_defs.c, 17.11 to 24.05); a reason that is not known here is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ringleader.followed_job import TIMED_OUT, End, Progress
from ringleader.value_class import dataclass

SEPARATOR = "\x1f"
"""Between the fields of a line: no name of a job has it."""
SQUEUE_FIELDS = (
    *("JobArrayID", "State", "Reason", "NodeList", "NumNodes", "exit_code", "RestartCnt", "TimeUsed"),
    *("TimeLimit", "StartTime", "Partition", "UserName", "Name", "STDOUT"),
)
SACCT_FIELDS = (
    *("JobID", "State", "Reason", "NodeList", "NNodes", "ExitCode", "Elapsed"),
    *("Timelimit", "Start", "Partition", "User", "JobName"),
)
_GOOD, _NONE = "COMPLETED", ("", "(null)", "None", "N/A", "Unknown", "None assigned")
_ENDS = {
    _GOOD: "",
    "FAILED": "",
    "TIMEOUT": "it ran longer than its time limit ({limit})",
    "CANCELLED": "it was cancelled",
    "NODE_FAIL": "a node failed ({nodes})",
    "OUT_OF_MEMORY": "it used more memory than it was given: see --sbatch-arg=--mem=…",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "DEADLINE": "it would not have ended before its deadline",
    "BOOT_FAIL": "a node did not boot ({nodes})",
    "LAUNCH_FAILED": "a node could not start it ({nodes})",
    "REVOKED": "another cluster runs it",
}
"""State of a job that has ended → why, where its own output does not say it."""
_REASONS = {
    "None": "Slurm has not considered it yet",
    "Priority": "jobs with higher priority are ahead",
    "Resources": "not enough nodes are free",
    "Dependency": "it depends on another job",
    "DependencyNeverSatisfied": "its dependency can never be satisfied: cancel it",
    "BeginTime": "may not begin yet; a requeued job waits about two minutes",
    "JobHeldUser": "is held: scontrol release {id}",
    "JobHeldAdmin": "held by an administrator: ask them to release it",
    "ReqNodeNotAvail": "a required node is down, drained or reserved (see sinfo -R)",
    "NodeDown": "a required node is down (see sinfo -R)",
    "PartitionConfig": "the partition {partition} never has the nodes that it asks for: cancel it",
    "PartitionDown": "the partition {partition} takes no jobs now",
    "PartitionInactive": "the partition {partition} is inactive",
    "PartitionNodeLimit": "asks for more nodes than the partition {partition} allows: lower --nodes",
    "PartitionTimeLimit": "asks for more time than the partition {partition} allows: lower --time",
    "BadConstraints": "no node has what it asks for: cancel it, and ask for less",
    "Licenses": "no license is free",
    "Reservation": "its reservation has not started",
    "InvalidAccount": "its account is not valid: --account",
    "InvalidQOS": "its QOS is not valid",
    "AccountNotAllowed": "its account may not use the partition {partition}",
    "QOSNotAllowed": "its QOS may not be used in the partition {partition}",
    "JobHoldMaxRequeue": "held after too many requeues: scontrol release {id}",
    "launch_failed_requeued_held": "could not be started and is held: scontrol release {id}",
    "Cleaning": "its last run is being cleaned up",
}
"""Reason of a job that waits → what that means."""
_LIMIT = re.compile(r"(Assoc|QOS|MaxJobs|Association|Job(Array)?TaskLimit)")
_DRAINED = "Nodes required for job are DOWN, DRAINED"


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """One job, as Slurm knows it now."""

    id: str
    state: str
    """``PENDING``, ``RUNNING``, …; see `_ENDS` for those that are an end."""
    reason: str = ""
    nodes: str = ""
    """As Slurm writes lists: ``n[1-4]``."""
    node_count: str = ""
    code: int = 0
    """Exit code of the batch script, 128+n for a signal; while it has not ended, 0."""
    restarts: str = "0"
    """How often it was requeued."""
    elapsed: str = ""
    limit: str = ""
    start: str = ""
    """When it started, or is expected to; empty: that is not known."""
    partition: str = ""
    user: str = ""
    title: str = ""
    """Its name, which several jobs may have."""
    log: str = ""
    """Path of its output."""

    @property
    def name(self) -> str:
        """By which commands find it: its number."""
        return self.id

    @property
    def has_ended(self) -> bool:
        """Nothing will change any more."""
        return self.state in _ENDS


def jobs_of(text: str, *, accounting: bool = False) -> list[SlurmJob]:
    """Read the lines of squeue, or with ``accounting`` of sacct; lines of another shape are passed over."""
    found = []
    separator = "|" if accounting else SEPARATOR
    for line in text.splitlines():
        values = [value.strip() for value in line.split(separator)][: len(SQUEUE_FIELDS)]
        values = ["" if value in _NONE and index != 2 else value for index, value in enumerate(values)]
        if len(values) >= len(SACCT_FIELDS) and re.match(r"\d", values[0]) and "." not in values[0]:
            if accounting:
                values.insert(SQUEUE_FIELDS.index("RestartCnt"), "")  # an older sacct refuses its Restarts
            found.append(_job(values, accounting=accounting))
    return found


def _job(values: Sequence[str], *, accounting: bool) -> SlurmJob:
    job, state, reason, nodes, count, code, restarts, elapsed, limit, start, partition, user, *rest = values
    last = () if accounting else (rest.pop(),) if len(rest) > 1 else ()
    return SlurmJob(
        id=job,
        state=state.split()[0].rstrip("+") if state else "",  # CANCELLED by 1000
        reason=reason,
        nodes=nodes,
        node_count=count,
        code=_exit_code(code, is_status=not accounting),
        restarts=restarts or "0",
        elapsed=elapsed,
        limit=limit,
        start=start,
        partition=partition,
        user=user,
        title=rest[0] if rest else "",
        log="".join(last),
    )


def _exit_code(text: str, *, is_status: bool) -> int:
    """Return the code of ``1:0`` or ``0:15``. ``is_status``: a single number is what ``wait`` returned."""
    code, _, number = text.partition(":")
    if not code.isdigit() or (number and not number.isdigit()):
        return 0
    if is_status and not number:
        return int(code) >> 8 or (128 + (int(code) & 127) if int(code) & 127 else 0)
    return 128 + int(number) if int(number or 0) else int(code)


def why_waiting(job: SlurmJob, drained: Iterable[str] = ()) -> str:
    """Return in plain words why a job waits. ``drained``: unavailable nodes, each with its reason."""
    name, _, rest = job.reason.partition(",")
    words = {"id": job.id, "partition": job.partition}
    if job.reason.startswith(_DRAINED):
        name, rest = "ReqNodeNotAvail", ""
    text = _REASONS.get(name, "")
    if not text and _LIMIT.match(name):
        text = f"a limit of your account, QOS or user is reached ({name})"
    text = text.format(**words) if text else f"Slurm says: {job.reason}"
    nodes = rest.partition("UnavailableNodes:")[2].strip(" )")
    text += f": {nodes}" if nodes else ""
    some = list(drained)
    if some and name in ("ReqNodeNotAvail", "NodeDown", "Resources"):
        text += (
            "; unavailable: " + ", ".join(some[:4]) + (f" and {len(some) - 4} more" if len(some) > 4 else "")
        )
    return text


def progress(job: SlurmJob, drained: Iterable[str] = ()) -> Progress:
    """Return where a job stands and what it waits for."""
    again = "" if job.restarts in ("", "0") else f" (restart {job.restarts})"
    if job.state == "PENDING":
        text = f"waiting{again}: {why_waiting(job, drained)}"
        expected = f"; expected to start {job.start}" if job.start else ""
        return Progress(text=f"{text}{expected}", key=(job.state, again, text))
    some = f"{job.node_count} nodes: " if job.node_count not in ("", "1") else ""
    texts = {
        "RUNNING": f"running{again} on {some}{job.nodes}",
        "CONFIGURING": f"its nodes are being prepared: {job.nodes}",
        "COMPLETING": "ending",
        "SUSPENDED": "suspended",
    }
    text = texts.get(job.state, job.state.lower().replace("_", " "))
    return Progress(text=text, key=(job.state, again))


def end_of(job: SlurmJob) -> End | None:
    """Return how a job has ended, or ``None`` while it has not."""
    if not job.has_ended:
        return None
    if job.state == _GOOD:
        return End(exit_code=0, whose="", state=job.state)
    reason = _ENDS[job.state].format(limit=job.limit, nodes=job.nodes or "which one is not known")
    if not reason:
        return End(exit_code=job.code or 1, whose="launcher", state=job.state)
    codes = {"TIMEOUT": TIMED_OUT, "CANCELLED": 143, "OUT_OF_MEMORY": job.code or 3}
    code = codes.get(job.state, 3)  # of a node that failed, job.code is that of a script that was killed
    return End(exit_code=code, whose="Slurm", reason=f"job {job.id}: {reason}", state=job.state)
