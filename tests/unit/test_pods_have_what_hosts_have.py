"""What jobs in Pods have of what hosts have: the guide's table and the command line, and files in logs."""

from __future__ import annotations

import base64
import io
import random
import re
import tarfile
from pathlib import Path

import pytest
from tests.unit.test_slurm_batch_script import called

from ringleader.cli.kubernetes.run_job import Keeping
from ringleader.cli.returned_files import CHARACTERS, ReturnedFiles, returning, write_below
from ringleader.followed_job import End

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/kubernetes.md"
COLUMNS = (
    (),
    ("--on", "slurm"),
    ("--on", "pods"),
    ("--on", "pods", "--launch-with", "ringleader"),
)
"""Where the table's columns run, as words."""
OF_PODS = ("--namespace", "team", "--image", "example.org/train:1")


def rows() -> list[tuple[str, list[str]]]:
    """Rows of the table that name an option of ``run`` or ``scale``, with their cells."""
    text = GUIDE.read_text(encoding="utf-8").partition('<a id="what-hosts-have"></a>')[2]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [
        (match[1], cells[1:]) for cells in lines if (match := re.match(r"`((?:run|scale) --.*?)`", cells[0]))
    ]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("words", "cells"), rows(), ids=[row for row, _ in rows()])
def test_the_guides_table_is_what_the_command_line_does(
    words: str, cells: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is left out silently: what a column does not have is refused before anything is sent."""
    verb, *given = words.split()
    assert len(cells) == len(COLUMNS)
    for place, cell in zip(COLUMNS, cells, strict=True):
        if "--resume" in given and "refused" not in cell:
            continue  # it needs a run
        if not place and "refused" not in cell:
            continue  # hosts would be probed
        more = (*OF_PODS, "--operator-image", "o") if "pods" in place else ("--nodes", "2") if place else ()
        size = ("-n", "2") if verb == "run" else ("--grid", "2x1")
        code = called(verb, *place, "--dry-run", *more, *size, *given, "--", "python", "train.py")
        said = capsys.readouterr()
        assert code == (2 if cell.startswith("refused") else 0), f"{words} {place}: {said.err}"
        if code:
            assert given[0] in said.err or "--spawn" in said.err, said.err
        elif place == COLUMNS[-1]:
            assert given[0] in said.out, "it arrives in the launcher"


@pytest.mark.parametrize("on", ["kubernetes", "pods"])
@pytest.mark.parametrize("verb", ["bench p2p", "bench allreduce", "bench train", "doctor --active"])
def test_commands_of_ringleader_have_the_workers_as_hosts(
    verb: str, on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("run", "--on", on, "--dry-run", *OF_PODS, "-n", "2", "--", "ringleader", *verb.split())
    assert called(*words) == 0
    out = capsys.readouterr().out
    name = verb.partition(" --")[0].replace(" ", "_").upper()
    assert f"- name: RINGLEADER_OPT_{name}_HOSTFILE\n" in out and "mpirun" not in out
    assert ("ringleader-returned" in out) == ("bench" in verb)
    assert called(*verb.split(), "--on", on) == 2
    assert "ringleader run --on kubernetes … -- ringleader" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--launch-with ringleader --report r --detach -- a",
            "--report with --detach: the result comes with the",
        ),
        ("--detach -- ringleader bench p2p", "--detach: the result comes with the log"),
        (
            "--launch-with ringleader --report r -- ringleader bench p2p",
            "--report r: not for ringleader bench",
        ),
        ("--require tcp -- ringleader bench p2p", "→ write it behind ringleader bench p2p"),
        (
            "--launch-with ringleader --require tcp -- ringleader bench p2p",
            "--require=tcp: not for ringleader bench",
        ),
        ("--launch-with ringleader --require rdam -- a", "--require: rdam is not a wire"),
        ("--launch-with ringleader --warm --profile-dir d -- a", "--warm: means nothing without restarts"),
        ("--min-np 1 --profile 2:4 -- a", "--profile: does not support elastic jobs"),
        ("--as trainjob --launch-with ringleader -- a", "--launch-with ringleader: has not been tried with"),
        ("--launch-with mpirun --min-np 1 -- a", "--launch-with mpirun: not for an elastic job"),
        ("--min-np 1 -- ringleader doctor", "--min-np, --max-np …: not for an elastic job"),
        ("--launch-with ringleader --mpirun mpiexec -- a", "--mpirun: 'mpiexec' is not a path"),
        ("--check active -- a", "→ --check quick, or add --launch-with ringleader"),
        ("--launch-with ringleader --check active -- ringleader doctor", "--check active: needs `ringleader"),
        ("--check slow -- a", "--check: 'slow' is unknown"),
        ("--spare-hosts 1 -- a", "→ with --check, --backoff-limit N makes Pods again on other nodes"),
        (
            "--as trainjob --runtime r --check quick -- a",
            "annotations[ringleader/check]: the runtime decides it",
        ),
        (
            "--annotation ringleader/check=active -- a",
            "annotations[ringleader/check]: 'active' is not supported",
        ),
    ],
)
def test_what_cannot_be_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("run", "--on", "kubernetes", *OF_PODS, "-n", "2", *words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "run --on pods -n 2 -x FOO=1 --secret-env KEY=s/k -- ringleader bench train -- a",
        "run --on pods -n 2 -x FOO=1 --secret-env KEY=s/k -- ringleader run a",
        "scale --on pods --grid 1x1 --launch-with ringleader -x FOO=1 --secret-env KEY=s/k -- a",
    ],
)
def test_variables_reach_the_ranks_behind_an_own_command(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *rest = words.split()
    assert called(verb, *OF_PODS, "--dry-run", *rest) == 0
    out = " ".join(capsys.readouterr().out.replace("- ", "").split())
    assert "-x FOO -x KEY" in out, out


def test_one_worker_is_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "--on", "pods", "--dry-run", *OF_PODS, "--gpus", "8", "--", "ringleader", "bench", "p2p")
    assert called(*words) == 0
    assert "has one worker: -n counts ranks, 8 per worker, so -n 16 makes two" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--launch-with", "ringleader")])
def test_sizes_are_not_left_alone(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("scale", "--on", "pods", "--dry-run", "--detach", "--grid", "1x1", *OF_PODS, *more, "--", "a")
    assert called(*words) == 2
    assert "--detach: means nothing here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "pods"),
    [
        ("run --on pods -n 2 --check quick -- a", 2),
        ("run --on pods -n 2 --check quick --detach --annotation ringleader/wait-limit=60 -- a", 2),
        ("run --on pods -n 2 --check quick -- ringleader bench p2p", 2),
        ("run --on pods -n 2 --check quick --run-launcher-as-worker -- a", 2),
        ("scale --on pods --grid 1x1,2x1 --check quick -- a", 3),
        ("scale --on pods --grid 2x1 --launch-with ringleader --check active -- a", 2),
        ("run --on kubernetes --as trainjob -n 2 --check quick -- a", 1),
        ("render pods --single --check quick -- a", 1),
    ],
)
def test_every_pod_with_ranks_checks_its_node(
    words: str, pods: int, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *rest = words.split()
    rest = rest if verb == "render" else ["--dry-run", *rest]
    at = rest.index("--")
    code = called(verb, *rest[:at], *OF_PODS, *rest[at:])
    said = capsys.readouterr()
    assert code == 0 and said.out.count("--own-faults") == pods, said


def test_nobody_would_see_that_a_node_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--on", "pods", "--detach", "--check", "quick", *OF_PODS, "-n", "2", "--", "a")
    assert called("run", *words) == 2
    assert "→ leave it out, or --annotation ringleader/wait-limit=3600" in capsys.readouterr().err


def test_a_report_that_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "record.jsonl").touch()
    words = ("--launch-with", "ringleader", "--report", "r", "--", "a")
    assert called("run", "--on", "pods", *OF_PODS, *words) == 2
    assert "--report: r/record.jsonl already exists" in capsys.readouterr().err


# --- files in a log ---------------------------------------------------------------------------------------


def sent(directory: Path, capsys: pytest.CaptureFixture[str]) -> bytes:
    assert returning(lambda: 7, str(directory)) == 7
    return capsys.readouterr().err.encode()


def test_files_come_back_whatever_pieces_a_log_comes_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sent"
    (place / "report").mkdir(parents=True)
    content = random.Random(1).randbytes(20_000)
    (place / "report" / "a").write_bytes(content)
    log = b"epoch 1\nno end of line: ringleader-file 1/1 AA\nringlead\nringleader-file 1/2 ?\n"
    lines = sent(place, capsys)
    assert lines.count(b"\n") > 2 and max(map(len, lines.splitlines())) < 4096
    for size in (1, 7, 4096, len(log + lines)):
        files, shown, whole = ReturnedFiles(), b"", log + lines + b"the end"
        for start in range(0, len(whole), size):
            shown += files.feed(whole[start : start + size])
        assert shown == log + b"the end"
        assert files.files() == {"report/a": content}
    assert write_below(files.files(), "report", tmp_path / "kept") == ["report/a"]
    assert (tmp_path / "kept" / "a").read_bytes() == content
    with pytest.raises(ValueError, match="exists"):
        write_below(files.files(), "report", tmp_path / "kept")


def test_what_cannot_be_sent_does_not_replace_the_commands_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert returning(lambda: 7, str(tmp_path / "file" / "below")) == 7
    assert "nothing will be sent back" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "log", "ends", "said"),
    [
        (0, b"", 3, 0),  # it succeeded, and its result is lost
        (7, b"", 7, 0),  # it failed before there was one
        (7, b"ringleader-file 1/2 AAAA\n", 7, 1),
    ],
)
def test_a_lost_result_is_an_error(code: int, log: bytes, ends: int, said: int) -> None:
    files, lines = ReturnedFiles(), list[str]()
    assert files.feed(log + b"x\nri") == b"x\n" and files.rest() == b"ri"
    end, kept = Keeping(parts=("report",)).keep(files, End(exit_code=code, whose="launcher"), lines.append)
    assert (end.exit_code, len(lines), kept) == (ends, said, {})
    assert code or "cannot be kept" in end.reason


def test_a_second_attempt_counts_and_half_of_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("1")
    first = sent(tmp_path / "d", capsys)
    (tmp_path / "d" / "a").write_bytes(random.Random(2).randbytes(9000))
    second = sent(tmp_path / "d", capsys)
    files = ReturnedFiles()
    files.feed(first + second)
    assert len(files.files()["a"]) == 9000
    files.feed(second.splitlines(keepends=True)[0])
    with pytest.raises(ValueError, match=r"1 of [2-9] parts"):
        files.files()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "report/../../out"])
def test_files_stay_where_they_are_put(name: str, tmp_path: Path) -> None:
    """An image may send anything; links and paths that lead elsewhere are left out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, kind in (
            (name, tarfile.REGTYPE),
            ("report/link", tarfile.SYMTYPE),
            ("report/a", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(path)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    text = base64.b64encode(packed.getvalue())
    assert len(text) < CHARACTERS
    files = ReturnedFiles()
    assert files.feed(b"ringleader-file 1/1 " + text + b"\n") == b""
    assert files.files() == {"report/a": b""}
    files.feed(b"ringleader-file 1/1 AAAA\n")
    with pytest.raises(ValueError, match="cannot be unpacked"):
        files.files()
