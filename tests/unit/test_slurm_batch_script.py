"""The batch script of a job for Slurm: its lines, its quoting, and what is refused before it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import click
import pytest
from tests import transcripts
from tests.time_limits import patience
from tests.unit.conftest import Call

from ringleader.cli.main import main
from ringleader.cli.slurm.run_job import _Submission, without_secrets
from ringleader.errors import RefusedError, RequestError
from ringleader.option_fields import WrongValueError, parts
from ringleader.slurm.batch_script import (
    BatchOptions,
    faults_of,
    faults_of_export,
    sbatch_words,
    script_of,
    seconds_of,
)
from ringleader.slurm.controller import UNKNOWN

GOLDEN = Path(__file__).parent.parent / "golden" / "slurm"
HOSTILE = (
    "two words",
    "'single'",
    '"double"',
    "$(touch made)",
    "`touch made`",
    "$HOME",
    "a\nb\n#SBATCH --partition=other",
    "\\",
    "*",
    "--",
    "",
    "é\t|&;<>!~#",
    "{command}{notice}",
)


def script(options: BatchOptions, *command: str, np: int | None = None, grace: float = 30.0) -> str:
    words = sbatch_words(options, name="train", np=np, grace=grace)
    return script_of(options, command, words, grace=grace)


def run_by_bash(text: str, place: Path) -> tuple[int, str, str]:
    """Run a script as slurmd does; nothing of it is left, whatever happens."""
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "TMPDIR": str(place)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    bash = ["/bin/bash", "-s"]
    with subprocess.Popen(bash, **pipes, cwd=place, env=environ, start_new_session=True) as process:
        try:
            out, err = process.communicate(text.encode(), timeout=patience(10.0))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert list(place.iterdir()) == []
    return process.returncode, out.decode(), err.decode()


ARGS = ("--constraint=a100&ib", "--comment=two \"words\" 'and' \\ #one", "--exclusive")
SENT = {
    "plain": (16, {"nodes": "2", "time": "2:00:00"}),
    "requeue": (None, {"nodes": "4", "gpus": 8, "time": "12:00:00", "requeue": True}),
    "everything": (
        8,
        {"partition": "gpu", "account": "team", "time": "1-12", "nodes": "2-4", "gpus": 4, "requeue": True}
        | {"job_name": "my.train", "sbatch_arg": ARGS},
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_scripts_as_they_are_sent(name: str) -> None:
    np, options = SENT[name]
    command = ("/venv/bin/python", "-P", "-m", "ringleader", "run", "--on", "slurm", "--", "python", "a b.py")
    text = script(BatchOptions(**options), *command, np=np)  # type: ignore[arg-type]
    path = GOLDEN / f"{name}.sh"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path} was missing, and is written: look at it")
    assert text == path.read_text()


@pytest.mark.process
@pytest.mark.parametrize("requeue", [False, True])
def test_hostile_words_reach_the_command_as_they_are(tmp_path: Path, requeue: bool) -> None:
    text = script(BatchOptions(requeue=requeue), "printf", r"%s\0", *HOSTILE)
    _, out, err = run_by_bash(text, tmp_path)
    assert out.split("\0")[:-1] == list(HOSTILE) and not err


SCONTROL = 'scontrol() { echo "$@"; }\n'
LATE = SCONTROL + 'kill() { [ "$1" != -0 ] || sleep 0.5; builtin kill "$@"; }\n'
SIGNAL = "kill -USR1 $PPID; while :; do sleep 0.05; done"
AGAIN = ("requeue 7\n", "ringleader: the time limit is near: job 7 is requeued\n")
NOT_AGAIN = ("", "ringleader: job 7 could not be requeued\n")
CANNOT = "scontrol() { return 1; }\n"
NOT_SENT = "kill -TERM $PPID; for i in {1..60}; do sleep 0.05; done"
ENDS = {
    "it had come to its end": (SCONTROL, f"trap 'sleep 0.2; exit 0' TERM; {SIGNAL}", 0, ("", "")),
    "asked to end": (SCONTROL, f"trap 'sleep 0.2; exit 143' TERM; {SIGNAL}", 143, AGAIN),
    "killed": (SCONTROL, f"trap 'kill -9 $$' TERM; {SIGNAL}", 137, AGAIN),
    # The signal interrupts ``wait``; the job ends with 0 before the script looks whether it still runs.
    "ended while the signal is served": (LATE, "trap '' TERM; kill -USR1 $PPID; sleep 0.1", 0, ("", "")),
    "it cannot be queued again": (CANNOT, f"trap 'exit 143' TERM; {SIGNAL}", 143, NOT_AGAIN),
    "only the script gets SIGTERM": (SCONTROL, f"trap 'echo a; exit 3' TERM; {NOT_SENT}", 3, ("a\n", "")),
    "it ends by itself": (SCONTROL, "exit 137", 137, ("", "")),
}


@pytest.mark.process
@pytest.mark.parametrize("name", ENDS)
def test_a_job_that_was_asked_to_end_is_queued_again_unless_it_ended(name: str, tmp_path: Path) -> None:
    """The signal of Slurm goes to the script, which passes SIGTERM on and waits for the job's own end."""
    before, program, code, (out, err) = ENDS[name]
    text = script(BatchOptions(requeue=True), "bash", "-c", program)
    ended = run_by_bash(before + text, tmp_path)
    assert ended[:2] == (code, out) and ended[2].endswith(err) and bool(ended[2]) == bool(err)


@pytest.mark.process
@pytest.mark.parametrize(
    ("verb", "whose", "seconds"), [("RUN", "host n2", 150), ("SCALE", "host n2", 0), ("RUN", "rank 1", 150)]
)
def test_a_job_that_lost_a_node_waits_until_slurm_ends_it(
    tmp_path: Path, verb: str, whose: str, seconds: int
) -> None:
    """Slurm queues a job again only while its script runs; where Slurm misses no node, the job ends."""
    end = f'{{\n  "exit_code": 3,\n  "whose": "{whose}"\n}}'
    program = f"""printf '{end}' > "$RINGLEADER_OPT_{verb}_JSON_FILE"; exit 3"""
    slurm = f"scontrol() {{ echo 'SlurmdTimeout           = {seconds} sec'; }}\n"
    slurm += 'sleep() { [ "$1" = 60 ] || { kill -TERM $$; exec sleep "$1"; }; }\n'
    text = slurm + script(BatchOptions(requeue=True), "bash", "-c", program)
    code, _, err = run_by_bash(text, tmp_path)
    said = "ringleader: waiting until Slurm, too, notices the lost node" if whose == "host n2" else ""
    assert code == 3 and err.startswith(said) and bool(err) == bool(said)


def test_words_that_slurm_cannot_be_given_are_refused() -> None:
    known = {part.name: part for part in parts(BatchOptions)}

    def call(what: str, first: str, more: str = "") -> tuple[int, str, str]:
        if what == "time":
            return 0, f"{seconds_of(first):g}\n", ""
        if what == "option":
            try:
                return 0, f"{known[first].read(more)}\n", ""
            except WrongValueError as error:
                return 2, "", f"{error.fault(known[first].spelling)}\n"
        if what == "limit":
            found = faults_of(BatchOptions(time=first, requeue=True), grace=float(more))
        else:
            options, environ = BatchOptions(sbatch_arg=(first,) if first else ()), {"SBATCH_EXPORT": more}
            found = faults_of_export(options, {"API_TOKEN": "s3"}, environ)
            assert not faults_of_export(options, {}, environ)
        return 2 * bool(found), "" if found else "no fault\n", "".join(f"{one}\n" for one in found)

    transcripts.check("slurm/options.txt", call)
    assert not faults_of(BatchOptions(time="1:00"), grace=30.0), "without --requeue"
    assert seconds_of("1:00:00\n#SBATCH --x") == 0
    for name, word in (("partition", "a\nb"), ("nodes", "1\n"), ("sbatch_arg", "--x=a\nb")):
        with pytest.raises(WrongValueError):
            known[name].read(word)


def test_secrets_are_not_written_into_the_script() -> None:
    words, kept = ["-x", "API_TOKEN=s3cret"], ["-x", "LR=0.1", "--env-file=API_TOKEN=x"]
    assert without_secrets(words + kept) == (["-x", "API_TOKEN", *kept], {"API_TOKEN": "s3cret"})


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No allocation, and none of Slurm's programs."""
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def called(*words: str) -> int:
    try:
        main([*words])
    except SystemExit as error:
        return int(error.code or 0)
    except click.exceptions.Exit as error:
        return error.exit_code
    raise AssertionError("main returned")


class Cancelling:
    """Stands for Slurm, which refuses the third job, and knows the first no more."""

    def __init__(self, second: str) -> None:
        self.second, self.count, self.cancelled = second, 0, list[str]()

    async def submit(self, *_words: object) -> str:
        self.count += 1
        if self.count > 2:
            raise RequestError("a limit", where="--account")
        return str(self.count)

    async def cancel(self, number: str) -> None:
        self.cancelled.append(number)
        if said := {"1": UNKNOWN, "2": self.second}[number]:
            raise RefusedError(said, where=f"job {number}")


@pytest.mark.parametrize(("second", "said"), [("", []), ("no answer", ["no answer"])])
def test_a_refusal_is_kept_where_the_jobs_before_cannot_be_cancelled(second: str, said: list[str]) -> None:
    slurm = Cancelling(second)
    work = _Submission(slurm, [BatchOptions()] * 3, lambda batch: ("", ()), {})  # type: ignore[arg-type]
    with pytest.raises(RequestError) as caught:
        asyncio.run(work.send())
    assert [one.what for one in caught.value.faults] == ["a limit", *said]
    assert slurm.cancelled == ["2", "1"]


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("name", ["dry_run", "wrong"])
def test_what_is_printed_where_slurm_is_not(name: str, call: Call) -> None:
    transcripts.check(f"slurm/{name}.txt", call)


def test_in_an_allocation_its_nodes_are_used(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """``--on slurm`` there sends nothing, unless the allocation is to be ignored."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-")
    code, _, err = call("run", "--on", "slurm", "--", "python", "a.py")
    assert code == 2 and "SLURM_JOB_NODELIST" in err
    code, out, _ = call("run", "--on", "slurm", "--no-allocation", "--dry-run", "--", "python", "a.py")
    assert code == 0 and out.startswith("#!/bin/bash\n")
