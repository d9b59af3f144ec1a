"""What Slurm prints of jobs, read and put in plain words."""

import asyncio
from pathlib import Path

import pytest

from ringleader.errors import RefusedError
from ringleader.slurm.controller import Slurm, refusal, wrong_option
from ringleader.slurm.job_state import (
    SACCT_FIELDS,
    SEPARATOR,
    SQUEUE_FIELDS,
    SlurmJob,
    end_of,
    jobs_of,
    progress,
    why_waiting,
)


def line(**changed: str) -> str:
    """A line of squeue; ``changed``: fields that are not those of a job that runs."""
    usual = dict.fromkeys(SQUEUE_FIELDS, "")
    usual |= {"JobArrayID": "7", "State": "RUNNING", "Reason": "None", "NodeList": "n[1-2]", "NumNodes": "2"}
    usual |= {"exit_code": "0", "RestartCnt": "0", "TimeUsed": "0:10", "TimeLimit": "10:00", "Name": "train"}
    usual |= {"StartTime": "N/A", "Partition": "main", "UserName": "me", "STDOUT": "/home/me/slurm-7.out"}
    return "".join(f"{value}{SEPARATOR}" for value in (usual | changed).values())


def one(**changed: str) -> SlurmJob:
    return jobs_of(line(**changed))[0]


def test_names_have_any_characters_and_other_lines_are_passed_over() -> None:
    job = one(Name="a b | c = d", STDOUT="/home/me/my jobs/slurm-7.out")
    assert (job.title, job.log) == ("a b | c = d", "/home/me/my jobs/slurm-7.out")
    assert (job.id, job.nodes, job.node_count, job.start) == ("7", "n[1-2]", "2", "")
    for text in ("", "\n\n", "slurm_load_jobs error: x", "1|2|3", f"x{SEPARATOR}" * 20, "7"):
        assert jobs_of(text) == jobs_of(text, accounting=True) == []


def test_accounting_has_steps_that_are_none_of_the_jobs() -> None:
    values = ["7", "CANCELLED by 1000", "None", "n1", "1", "0:15", "00:00:03", "00:10:00"]
    values += ["2026-01-01T00:00:00", "main", "me", "train"]
    text = "\n".join("|".join([number, *values[1:]]) for number in ("7", "7.batch", "7.extern"))
    assert len(values) == len(SACCT_FIELDS)
    (job,) = jobs_of(text, accounting=True)
    assert (job.state, job.code, job.log) == ("CANCELLED", 143, "")
    assert (job.restarts, job.elapsed, job.title) == ("0", "00:00:03", "train")


@pytest.mark.parametrize(
    ("state", "code", "end", "whose"),
    [
        ("COMPLETED", "0", 0, ""),
        ("FAILED", "768", 3, "launcher"),  # as wait(2) returns it
        ("FAILED", "3:0", 3, "launcher"),
        ("FAILED", "9", 137, "launcher"),
        ("FAILED", "0:9", 137, "launcher"),
        ("FAILED", "0", 1, "launcher"),
        ("CANCELLED", "0", 143, "Slurm"),
        ("TIMEOUT", "15", 124, "Slurm"),
        ("NODE_FAIL", "9", 3, "Slurm"),
        ("PREEMPTED", "15", 3, "Slurm"),
        ("BOOT_FAIL", "0:1", 3, "Slurm"),
        ("OUT_OF_MEMORY", "0:125", 253, "Slurm"),
    ],
)
def test_ends(state: str, code: str, end: int, whose: str) -> None:
    found = end_of(one(State=state, exit_code=code))
    assert (found.exit_code, found.whose, bool(found.reason)) == (end, whose, whose == "Slurm")


def test_progress() -> None:
    for state in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "A_NEW_STATE"):  # none is an end
        assert end_of(one(State=state)) is None and progress(one(State=state)).text
    first, later = (progress(one(State="PENDING", Reason="Priority", StartTime=at)) for at in "12")
    assert first.text != later.text and first.key == later.key, "a new estimate is no news"
    assert progress(one(State="PENDING", Reason="Resources")).key != first.key
    assert "restart 2" in progress(one(RestartCnt="2")).text


NODE = "a node that it needs is down, drained or reserved: sinfo -R says why"
LIMIT = "a limit of your account, QOS or user is reached"
DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "not enough nodes are free"),
        ("Priority", "jobs with higher priority are ahead"),
        ("BeginTime", "may not begin yet; one that was queued again waits about two minutes"),
        ("PartitionTimeLimit", "asks for more time than the partition main allows: lower --time"),
        ("JobHeldUser", "is held: scontrol release 7"),
        ("AssocGrpCpuLimit", f"{LIMIT} (AssocGrpCpuLimit)"),
        ("QOSMaxCpuPerUserLimit", f"{LIMIT} (QOSMaxCpuPerUserLimit)"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", f"{NODE} (n[1-2])"),
        (DOWN, NODE),
        ("SomethingNew", "Slurm says: SomethingNew"),
        ("None", "Slurm has not considered it yet"),
    ],
)
def test_reasons_in_plain_words(reason: str, words: str) -> None:
    assert why_waiting(one(State="PENDING", Reason=reason)) == words


def test_nodes_that_take_no_jobs_are_named_where_they_matter() -> None:
    job = one(State="PENDING", Reason="Resources")
    assert why_waiting(job, ["n1 takes no jobs: bad cable"]).endswith("free; n1 takes no jobs: bad cable")
    many = why_waiting(job, [f"n{number} takes no jobs: x" for number in range(6)])
    assert many.endswith("n3 takes no jobs: x and 2 more")
    assert "n1" not in why_waiting(one(State="PENDING", Reason="Priority"), ["n1 takes no jobs: x"])


MUNGE = """squeue: error: If munged is up, restart with --num-threads=10
squeue: error: Munge encode failed: Failed to access "/nope": No such file or directory
slurm_load_jobs error: Protocol authentication error
"""


def test_what_is_down_is_named() -> None:
    """Texts as 22.05.8 prints them."""
    load = "slurm_load_jobs error: "
    for err, what in (
        (MUNGE, "Slurm does not authenticate us"),
        ("fatal: Unable to process configuration file", "this machine has no configuration of Slurm"),
        (f"{load}Unable to contact slurm controller (connect failure)", "Slurm's controller does not answer"),
        (f"{load}Invalid job id specified", "Slurm does not know it"),
        ("sbatch: error: Something else", "Something else"),
        ("", "ended with exit code 1"),
    ):
        assert str(refusal("squeue", 1, err)).startswith(f"squeue: {what}")


REFUSED = {
    "Invalid partition name specified": "--partition",
    "Invalid account or account/partition combination specified": "--account",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)": "--account",
    "Invalid qos specification": "--sbatch-arg=--qos",
    "Requested time limit is invalid (missing or exceeds some limit)": "--time",
    "More processors requested than permitted": "--nodes, -n",
    "Node count specification invalid": "--nodes, -n",
    "Invalid generic resource (gres) specification": "--gpus",
    "Requested node configuration is not available": "--nodes, -n, --gpus",
    "Invalid feature specification": "--sbatch-arg",
    "Invalid node name specified": "--sbatch-arg",
    "Requested reservation is invalid": "--sbatch-arg",
    "Protocol authentication error": "",
    "connect: Operation now in progress": "",
    "session credential is invalid": "",
}


@pytest.mark.parametrize("err", REFUSED)
def test_the_option_that_is_refused_is_named(err: str) -> None:
    """Texts as 22.05.8 prints them; `tests/slurm/test_accounting.py` has the real one print them."""
    assert wrong_option(f"sbatch: error: Batch job submission failed: {err}")[0] == REFUSED[err]


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("Slurm accounting storage is disabled", "job 7: Slurm does not know it"),
        ("sacct: fatal: Invalid field requested", "sacct: fatal: Invalid field requested"),
        (
            "sacct: error: Problem talking to the database: Connection refused",
            "sacct: Slurm's accounting does not answer\n    → is slurmdbd running?",
        ),
    ],
)
def test_a_failure_of_accounting_is_not_a_job_that_is_unknown(tmp_path: Path, said: str, what: str) -> None:
    errors = {"squeue": "slurm_load_jobs error: Invalid job id specified", "sacct": said}
    for name in ("sbatch", "scancel", "squeue", "sacct"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{errors.get(name, '')}' >&2\nexit 1\n")
        path.chmod(0o755)
    slurm = Slurm({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with pytest.raises(RefusedError) as caught:
        asyncio.run(slurm.job("7"))
    assert str(caught.value).startswith(what)
