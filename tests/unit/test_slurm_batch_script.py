"""The batch script of a job for Slurm: its lines, its quoting, and what is refused before it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.time_limits import patience

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


def run_by_bash(text: str, place: Path, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script as slurmd does; nothing of it is left, whatever happens."""
    with subprocess.Popen(
        ["/bin/bash", "-s"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=place,
        env=environ or None,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(text.encode(), timeout=patience(10.0))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess((), process.returncode, out, err)


@pytest.mark.parametrize("name", ["plain", "requeue", "everything"])
def test_scripts_as_they_are_sent(name: str) -> None:
    options, np = {
        "plain": (BatchOptions(nodes="2", time="2:00:00"), 16),
        "requeue": (BatchOptions(nodes="4", gpus=8, time="12:00:00", requeue=True), None),
        "everything": (
            BatchOptions(
                partition="gpu",
                account="team",
                time="1-12",
                nodes="2-4",
                gpus=4,
                job_name="my.train",
                requeue=True,
                sbatch_arg=("--constraint=a100&ib", "--comment=two \"words\" 'and' \\ #one", "--exclusive"),
            ),
            8,
        ),
    }[name]
    command = ("/venv/bin/python", "-P", "-m", "ringleader", "run", "--on", "slurm", "--", "python", "a b.py")
    text = script(options, *command, np=np)
    path = GOLDEN / f"{name}.sh"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path} was missing, and is written: look at it")
    assert text == path.read_text()


@pytest.mark.process
@pytest.mark.parametrize("requeue", [False, True])
def test_hostile_words_reach_the_command_as_they_are(tmp_path: Path, requeue: bool) -> None:
    text = script(BatchOptions(requeue=requeue), "printf", r"%s\0", *HOSTILE)
    done = run_by_bash(text, tmp_path)
    assert done.stdout.decode().split("\0")[:-1] == list(HOSTILE)
    assert not done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("ends", "code", "is_requeued"),
    [
        ("exit 0", 0, False),  # it had come to its end
        ("exit 143", 143, True),
        ("exit 3", 3, True),
        ("kill -9 $$", 137, True),
    ],
)
def test_a_job_that_was_asked_to_end_is_queued_again_unless_it_had_finished(
    tmp_path: Path, ends: str, code: int, is_requeued: bool
) -> None:
    """The signal of Slurm goes to the script, which passes SIGTERM on and waits for the job's own end."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/said\n')
    scontrol.chmod(0o755)
    program = f"trap 'sleep 0.2; {ends}' TERM; kill -USR1 $PPID; while :; do sleep 0.05; done"
    text = script(BatchOptions(requeue=True), "bash", "-c", program)
    done = run_by_bash(text, tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin", SLURM_JOB_ID="7")
    said = (tmp_path / "said").read_text() if (tmp_path / "said").exists() else ""
    assert (done.returncode, said) == (code, "requeue 7\n" if is_requeued else "")


@pytest.mark.process
def test_a_job_that_finishes_while_the_signal_is_served_is_not_queued_again(tmp_path: Path) -> None:
    """The signal interrupts ``wait``; the job ends with 0 before the script looks whether it still runs."""
    program = "trap '' TERM; kill -USR1 $PPID; sleep 0.1; exit 0"
    text = script(BatchOptions(requeue=True), "bash", "-c", program)
    late = 'kill() { [ "$1" != -0 ] || sleep 0.5; builtin kill "$@"; }\nscontrol() { echo "$@"; }\n'
    done = run_by_bash(late + text, tmp_path, PATH="/usr/bin:/bin", SLURM_JOB_ID="7")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.process
def test_a_job_that_cannot_be_queued_again_says_so(tmp_path: Path) -> None:
    program = "trap 'exit 143' TERM; kill -USR1 $PPID; while :; do sleep 0.05; done"
    text = "scontrol() { return 1; }\n" + script(BatchOptions(requeue=True), "bash", "-c", program)
    done = run_by_bash(text, tmp_path, PATH="/usr/bin:/bin", SLURM_JOB_ID="7")
    assert done.returncode == 143
    assert done.stderr.endswith(b"ringleader: job 7 could not be requeued\n")


@pytest.mark.process
def test_a_job_gets_the_sigterm_that_only_the_script_gets(tmp_path: Path) -> None:
    program = "trap 'echo asked; exit 3' TERM; kill -TERM $PPID; for i in {1..60}; do sleep 0.05; done"
    text = script(BatchOptions(requeue=True), "bash", "-c", program)
    done = run_by_bash(text, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"asked\n", b"")


@pytest.mark.process
@pytest.mark.parametrize(
    ("verb", "whose", "seconds", "said"),
    [
        ("RUN", "host n2", "150 sec", b"ringleader: waiting until Slurm, too, notices the lost node"),
        ("SCALE", "host n2", "0 sec", b"ringleader: waiting until Slurm, too, notices the lost node"),
        ("RUN", "rank 1", "150 sec", b""),
    ],
)
def test_a_job_that_lost_a_node_waits_until_slurm_ends_it(
    tmp_path: Path, verb: str, whose: str, seconds: str, said: bytes
) -> None:
    """Slurm queues a job again only while its script runs; where Slurm misses no node, the job ends."""
    end = f'{{\n  "exit_code": 3,\n  "whose": "{whose}"\n}}'
    program = f"""printf '{end}' > "$RINGLEADER_OPT_{verb}_JSON_FILE"; exit 3"""
    slurm = "scontrol() { echo 'SlurmdTimeout           = " + seconds + "'; }\n"
    slurm += 'sleep() { [ "$1" = 60 ] || { kill -TERM $$; exec sleep "$1"; }; }\n'
    text = slurm + script(BatchOptions(requeue=True), "bash", "-c", program)
    done = run_by_bash(text, tmp_path, PATH="/usr/bin:/bin", SLURM_JOB_ID="7", TMPDIR=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(said) and bool(done.stderr) == bool(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_job_that_ends_by_itself_is_not_queued_again(tmp_path: Path, code: int) -> None:
    text = script(BatchOptions(requeue=True), "bash", "-c", f"exit {code}")
    assert run_by_bash(text, tmp_path).returncode == code


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-00:00:01", 86401),
        ("UNLIMITED", math.inf),
        ("", 0),
        ("2h", 0),
        ("0", 0),
        ("1:2:3:4", 0),
        ("-1", 0),
        ("1:00:00\n#SBATCH --x", 0),
    ],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("time", "grace", "is_refused"),
    [("2:30", 30, True), ("2:31", 30, False), ("3", 120, True), ("1:00:00", 3600, True), (None, 30, False)],
)
def test_a_time_limit_must_leave_time_before_the_signal(
    time: str | None, grace: float, is_refused: bool
) -> None:
    found = faults_of(BatchOptions(time=time, requeue=True), grace=grace)
    assert [one.where for one in found] == (["--time"] if is_refused else [])
    assert not faults_of(BatchOptions(time=time), grace=grace)
    if is_refused:
        assert found[0].hint.startswith("ask for ")


@pytest.mark.parametrize(
    ("option", "word"),
    [
        *(
            (name, word)
            for name in ("partition", "account", "job_name")
            for word in ("", "a b", "$(x)", "-x", "a\nb")
        ),
        *(("nodes", word) for word in ("0", "4-2", "two", "2-", "1\n")),
        *(("time", word) for word in ("0", "soon", "2h")),
        *(
            ("sbatch_arg", word)
            for word in ("a100", "", "--x=a\nb", "--wrap=ls", "--array=1-2", "--signal=9@1")
        ),
        *(
            ("sbatch_arg", word)
            for word in ("-a1-4", "-W", "-HW", "--arr=1-4", "--no-req", "--sig=9@1", "--")
        ),
    ],
)
def test_words_that_slurm_cannot_be_given_are_refused(option: str, word: str) -> None:
    part = next(one for one in parts(BatchOptions) if one.name == option)
    with pytest.raises(WrongValueError):
        part.read(word)


@pytest.mark.parametrize("word", ["-H", "-pgpu-a", "--wait-all-nodes=1", "--wckey=a", "--nodelist=n1", "-Cw"])
def test_other_options_of_sbatch_are_passed_on(word: str) -> None:
    part = next(one for one in parts(BatchOptions) if one.name == "sbatch_arg")
    assert part.read(word) == word


@pytest.mark.parametrize(
    ("words", "variable", "is_refused"),
    [
        ((), "", False),
        ((), "all", False),
        ((), "NONE", True),
        (("--export=NONE",), "ALL", True),
        (("--export=ALL,LR=1",), "NONE", False),
        (("--export=LR",), "", True),
        (("--export-file=vars",), "", True),
    ],
)
def test_a_secret_that_sbatch_would_not_pass_on_is_refused(
    words: tuple[str, ...], variable: str, is_refused: bool
) -> None:
    options = BatchOptions(sbatch_arg=words)
    found = faults_of_export(options, {"API_TOKEN": "s3"}, {"SBATCH_EXPORT": variable})
    assert [one.where for one in found] == (["-x"] if is_refused else [])
    assert "s3" not in str(found)
    assert not faults_of_export(options, {}, {"SBATCH_EXPORT": variable})


def test_secrets_are_not_written_into_the_script() -> None:
    words = ["-x", "API_TOKEN=s3cret", "-x", "LR=0.1", "--env-file=API_TOKEN=x"]
    assert without_secrets(words) == (
        ["-x", "API_TOKEN", "-x", "LR=0.1", "--env-file=API_TOKEN=x"],
        {"API_TOKEN": "s3cret"},
    )


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


@pytest.mark.usefixtures("outside")
def test_a_dry_run_prints_the_script_and_needs_no_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --on slurm --partition p -n 4 --nodes 2 --grace=45 -x A=1 --blacklist-cooldown-range 1 2"
    words += " --min-np 2 --no-prefix --detach --dry-run -- python train.py --nodes 3"
    assert called(*words.split()) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:6] == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --partition=p",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks=4",
        "#SBATCH --open-mode=append",
    ]
    inner = "run --on slurm -n 4 --grace=45 -x A=1 --blacklist-cooldown-range 1 2 --min-np=2 --no-prefix"
    assert out.endswith(
        f"exec {shlex.quote(sys.executable)} -P -m ringleader {inner} -- python train.py --nodes 3\n"
    )


@pytest.mark.usefixtures("outside")
def test_all_sizes_of_scale_are_one_job(capsys: pytest.CaptureFixture[str]) -> None:
    words = "scale --on slurm --nodes 2 --ntasks-per-node 2 --grid 1x1,2x2 --dry-run -- python train.py"
    assert called(*words.split()) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n" in out
    assert out.endswith(" -P -m ringleader scale --on slurm --grid=1x1,2x2 -- python train.py\n")


@pytest.mark.usefixtures("outside")
def test_each_number_of_nodes_is_a_job_that_begins_after_the_one_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "scale --on slurm --nodes 4 --ntasks-per-node 2 --job-per-size --name x --dry-run -- python a.py"
    assert called(*words.split()) == 0
    scripts = capsys.readouterr().out.split("#!/bin/bash\n")[1:]
    asked = [[line for line in one.splitlines() if "--nodes" in line or "--dep" in line] for one in scripts]
    assert asked == [
        ["#SBATCH --nodes=1"],
        ["#SBATCH --nodes=2", "#SBATCH --dependency=afterok:JOB1"],
        ["#SBATCH --nodes=4", "#SBATCH --dependency=afterok:JOB2"],
    ]
    inner = "scale --on slurm --job-per-size --name=x --grid=1x1,1x2,2x2,4x2 -- python a.py\n"
    assert all(one.endswith(inner) for one in scripts)
    called(*words.replace("--job-per-size", "--job-per-size --spare-hosts 1").split())
    out = capsys.readouterr().out.splitlines()
    assert [line[-1] for line in out if "--nodes" in line] == ["2", "3", "4"]
    assert "grid=1x1,1x2,2x2,3x2 " in out[-1]


@pytest.mark.usefixtures("outside")
def test_spare_nodes_have_slots_as_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --on slurm --nodes 5 --ntasks-per-node 8 -n 32 --spare-hosts 1 --dry-run -- python a.py"
    assert called(*words.split()) == 0
    asked = [line for line in capsys.readouterr().out.splitlines() if "--n" in line and "#SBATCH" in line]
    assert asked == ["#SBATCH --nodes=5", "#SBATCH --ntasks-per-node=8"]


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
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --on slurm -H n1:2 -- python a.py", "--hosts: cannot be used with --on slurm"),
        ("run --on slurm --image x -- python a.py", "--image: is for jobs on Kubernetes"),
        ("run --partition p -- python a.py", "--partition: is for jobs in Slurm"),
        (
            "run --on kubernetes --image x --partition p -- python a.py",
            "--partition: means nothing with --on kube",
        ),
        ("run --on slurm --time 1:00 --requeue -- python a.py", "--time: 1:00 is too short for --requeue"),
        (
            "run --on slurm -x API_TOKEN=s3 --sbatch-arg=--export=NONE -- python a.py",
            "-x: API_TOKEN: --export=NONE keeps it from the job",
        ),
        ("run --on slurm --nodes two -- python a.py", "--nodes: 'two' is not a number of nodes"),
        (
            "run --on slurm --max-np 1 --min-np 2 -- python a.py",
            "--min-np, --max-np: at least 2, but at most 1",
        ),
        ("run --on slurm", "COMMAND: nothing to run"),
        ("scale --on slurm -- python a.py", "--nodes: is needed: sizes are made of nodes"),
        ("scale --on slurm --nodes 2 --grid 4x1 -- python a.py", "--grid: 4x1 needs 4 hosts"),
        ("run --on slurm --spare-hosts 1 -- python a.py", "--spare-hosts: requires --nodes in Slurm"),
        ("run --on slurm --nodes 2 --spare-hosts 2 -- python a.py", "2 spare of 2 nodes leaves none"),
        (
            "run --on slurm --nodes 5 -n 32 --spare-hosts 1 -- python a.py",
            "-n: requires --ntasks-per-node with --spare-hosts",
        ),
        ("scale --job-per-size -- python a.py", "--job-per-size: is for jobs in Slurm"),
        (
            "scale --on slurm --nodes 2 --job-per-size --resume --name x -- python a.py",
            "--job-per-size and --resume: contradict each other",
        ),
        ("scale --on slurm --nodes 2 --lab -- python a.py", "--lab: cannot be used with --on slurm"),
        ("slurm logs x", "JOB: 'x' is not the number of a job"),
        ("slurm cancel 1 1;2", "JOB: '1;2' is not the number of a job"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_sent(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*words.split()) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    "words", ["run --on slurm -- python a.py", "slurm status", "slurm logs 1", "slurm cancel 1"]
)
def test_a_machine_without_slurm_is_named(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(*words.split()) == 3
    assert "sbatch, squeue, scancel: not found on PATH\n    → run this on a node" in capsys.readouterr().err


def test_in_an_allocation_its_nodes_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--on slurm`` there sends nothing, unless the allocation is to be ignored."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-")
    assert called("run", "--on", "slurm", "--", "python", "a.py") == 2
    assert "SLURM_JOB_NODELIST" in capsys.readouterr().err
    assert called("run", "--on", "slurm", "--no-allocation", "--dry-run", "--", "python", "a.py") == 0
    assert capsys.readouterr().out.startswith("#!/bin/bash\n")
