"""What Slurm prints of jobs, read and put in plain words."""

import asyncio
from pathlib import Path

import pytest
from tests import transcripts

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


def test_what_becomes_of_slurms_words() -> None:
    def call(what: str, *words: str) -> tuple[int, str, str]:
        if what == "waiting":
            return 0, why_waiting(one(State="PENDING", Reason=words[0]), words[1:]) + "\n", ""
        if what == "down":
            return 0, f"{refusal('squeue', 1, chr(10).join(words))}\n", ""
        if what == "refused":
            return 0, wrong_option(f"sbatch: error: Batch job submission failed: {words[0]}")[0] + "\n", ""
        found = end_of(one(State=words[0], exit_code=words[1]))
        if found is None:
            return 0, progress(one(State=words[0])).text + "\n", ""
        return found.exit_code, f"{found.whose or 'nobody'}: {found.reason}".strip() + "\n", ""

    transcripts.check("slurm/texts.txt", call)


def test_a_new_estimate_of_the_start_is_no_news() -> None:
    first, later = (progress(one(State="PENDING", Reason="Priority", StartTime=at)) for at in "12")
    assert first.text != later.text and first.key == later.key
    assert progress(one(State="PENDING", Reason="Resources")).key != first.key
    assert "restart 2" in progress(one(RestartCnt="2")).text


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
