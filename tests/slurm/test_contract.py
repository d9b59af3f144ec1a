"""What Ringleader relies on of Slurm's programs (22.05), with real daemons."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.slurm.conftest import Place
from tests.time_limits import patience

from ringleader.errors import RefusedError, RequestError
from ringleader.slurm.batch_script import BatchOptions, sbatch_words, script_of
from ringleader.slurm.controller import Slurm
from ringleader.slurm.job_state import SlurmJob, end_of, progress

pytestmark = [pytest.mark.process, pytest.mark.long]
HOSTILE = "two words \"double\" 'single' $HOME `x` \\ # é"


def slurm(place: Place, **variables: str) -> Slurm:
    return Slurm(os.environ | place.environ | variables)


def submit(
    place: Place, command: Sequence[str], options: BatchOptions | None = None, **variables: str
) -> str:
    options = options or BatchOptions(time="2")
    words = sbatch_words(options, name="a.job", np=None, grace=0.0)
    script = script_of(options, command, words, grace=0.0)
    before = Path.cwd()
    os.chdir(place.workdir)
    try:
        return asyncio.run(slurm(place).submit(script, words, variables))
    finally:
        os.chdir(before)


def until(place: Place, number: str, is_so: Callable[[SlurmJob], bool], seconds: float = 40.0) -> SlurmJob:
    end = time.monotonic() + patience(seconds)
    while not is_so(job := asyncio.run(slurm(place).job(number))):
        assert time.monotonic() < end, job
        time.sleep(0.1)
    return job


def ended(job: SlurmJob) -> bool:
    return job.has_ended


def running(job: SlurmJob) -> bool:
    return job.state == "RUNNING"


def log_of(job: SlurmJob) -> str:
    """The end of a job may be known before the last of its output is written."""
    time.sleep(0.2)
    return Path(job.log).read_text()


@pytest.mark.parametrize(("program", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_a_job_has_its_script_s_end_and_output(place: Place, program: str, code: int) -> None:
    number = submit(place, ["bash", "-c", f"echo out; echo err >&2; pwd; {program}"])
    job = until(place, number, ended)
    end = end_of(job)
    assert end is not None and end.exit_code == code, job
    assert end.whose == ("launcher" if code else "")
    assert (job.title, job.node_count, job.restarts) == ("a.job", "1", "0")
    assert log_of(job).splitlines()[:3] == ["out", "err", str(place.workdir)]
    assert job.log == str(place.workdir / f"slurm-{number}.out")


def test_words_arrive_as_they_are_and_variables_of_the_caller_too(place: Place) -> None:
    number = submit(
        place, ["bash", "-c", 'printf "%s|" "$@" "$API_TOKEN"', "x", HOSTILE, "a\nb"], API_TOKEN="s3"
    )
    job = until(place, number, ended)
    assert log_of(job) == f"{HOSTILE}|a\nb|s3|"


def test_lines_of_the_script_mean_what_the_options_mean(place: Place) -> None:
    """Somebody may submit by hand what a dry run printed."""
    options = BatchOptions(time="2", sbatch_arg=(f"--comment={HOSTILE.replace('é', 'e')}",))
    words = sbatch_words(options, name="a.job", np=None, grace=0.0)
    script = script_of(options, ["true"], words, grace=0.0)
    number = asyncio.run(slurm(place).submit(script, ("--open-mode=append",), {}))
    job = until(place, number, ended)
    assert job.title == "a.job"
    shown = place.real.run("scontrol", "show", "job", number).stdout
    assert f"Comment={HOSTILE.replace('é', 'e')}" in shown
    Path(job.log).unlink()


def test_options_are_stronger_than_variables_of_sbatch(place: Place) -> None:
    place.environ["SBATCH_PARTITION"] = "nowhere"
    try:
        number = submit(place, ["true"], BatchOptions(time="2", partition="small"))
        assert until(place, number, ended).partition == "small"
    finally:
        del place.environ["SBATCH_PARTITION"]


def test_a_partition_that_does_not_exist_is_named_with_those_that_do(place: Place) -> None:
    before = {job.id for job in asyncio.run(slurm(place).jobs())}
    with pytest.raises(RequestError) as caught:
        submit(place, ["true"], BatchOptions(partition="nowhere"))
    assert str(caught.value) == "--partition: Slurm has no partition nowhere\n    → there are main, small"
    assert {job.id for job in asyncio.run(slurm(place).jobs())} == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BatchOptions(partition="small", time="30"), "asks for more time than the partition small allows"),
        (
            BatchOptions(partition="small", nodes="2", time="2"),
            "asks for more nodes than the partition small",
        ),
    ],
)
def test_what_a_partition_does_not_allow_is_said_while_the_job_waits(
    place: Place, options: BatchOptions, words: str
) -> None:
    number = submit(place, ["true"], options)
    until(place, number, lambda job: words in progress(job).text)
    asyncio.run(slurm(place).cancel(number))
    end = end_of(until(place, number, ended))
    assert end is not None and (end.whose, end.exit_code != 0) == ("Slurm", True)


def test_a_job_waits_for_nodes_and_for_one_that_is_drained(place: Place) -> None:
    first = submit(place, ["sleep", "60"], BatchOptions(nodes="2", time="2", sbatch_arg=("--exclusive",)))
    job = until(place, first, running)
    assert (job.nodes, job.node_count) == ("n[1-2]", "2")
    assert progress(job).text == "running on 2 nodes: n[1-2]"
    second = submit(place, ["true"], BatchOptions(nodes="2", time="2", sbatch_arg=("--exclusive",)))
    waiting = until(place, second, lambda job: job.reason == "Resources")
    assert "not enough nodes are free" in progress(waiting).text
    place.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=bad cable")
    asyncio.run(slurm(place).cancel(first))
    job = until(place, second, lambda job: "DOWN, DRAINED" in job.reason or "ReqNodeNotAvail" in job.reason)
    drained = asyncio.run(slurm(place).drained())
    assert drained == ["n2 (bad cable)"]
    assert "a required node is down, drained or reserved" in progress(job, drained).text
    assert progress(job, drained).text.endswith("; unavailable: n2 (bad cable)")
    asyncio.run(slurm(place).cancel(second))
    until(place, second, ended)


def test_a_cancelled_job_gives_its_ranks_time(place: Place) -> None:
    """SIGTERM reaches the script's command as well; its own end is waited for."""
    program = "trap 'echo asked; sleep 0.5; echo saved; exit 0' TERM; echo began; while :; do sleep 0.1; done"
    number = submit(place, ["bash", "-c", program], BatchOptions(time="2", requeue=True))
    job = until(place, number, running)
    until(place, number, lambda job: "began" in (Path(job.log).read_text() if Path(job.log).exists() else ""))
    asyncio.run(slurm(place).cancel(number))
    job = until(place, number, ended)
    assert job.state == "CANCELLED"
    told = ["began", "asked", "saved"]  # each "sleep" may say that it was terminated
    assert list(dict.fromkeys(line for line in log_of(job).splitlines() if line in told)) == told


def test_an_unknown_job_is_named(place: Place) -> None:
    with pytest.raises(RefusedError) as caught:
        asyncio.run(slurm(place).job("99999"))
    assert str(caught.value).startswith("job 99999: Slurm does not know it")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("controller", "Slurm's controller does not answer"),
        ("munge", "Slurm does not authenticate us\n    → is munge running here? munge -n | unmunge"),
    ],
)
def test_a_daemon_that_is_down_is_named(place: Place, what: str, said: str) -> None:
    away = Slurm(os.environ | place.down(what))
    for ask in (away.jobs(), away.submit("#!/bin/bash\ntrue\n", (), {}), away.cancel("1")):
        with pytest.raises(RefusedError) as caught:
            asyncio.run(ask)
        assert said in str(caught.value)


@pytest.mark.parametrize("code", [0, 143])
def test_a_job_near_its_limit_is_asked_to_end_and_queued_again(place: Place, code: int) -> None:
    """With --requeue: once, unless it has come to its end; the log continues."""
    program = (
        f"trap 'sleep 0.3; echo saved; exit {code}' TERM; "
        f'echo "begins $SLURM_RESTART_COUNT"; [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ] && exit 7; '
        f"while :; do sleep 0.1; done"
    )
    # The signal is due at once: one minute is the least that Slurm allows.
    options = BatchOptions(time="1:00", requeue=True)
    number = submit(place, ["bash", "-c", program], options)
    job = until(place, number, ended, 100.0)
    text = log_of(job)
    if code == 0:
        assert (job.state, text.splitlines()[1:2]) == ("COMPLETED", ["saved"])
        return
    # The signal may be due again before a slow machine has run the second job to its end.
    assert (job.state, job.code, int(job.restarts) >= 1) == ("FAILED", 7, True)
    said = [line for line in text.splitlines() if line.startswith(("begins", "saved", "ringleader"))]
    assert said[:4] == [
        "begins ",
        "saved",
        f"ringleader: the time limit is near: job {number} is requeued",
        "begins 1",
    ]
