"""Builds with a small program in the builder's place: it answers, fails, hangs; nothing is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.time_limits import patience

from ringleader.cli.image import build as image_build
from ringleader.cli.image.build import BuildDisplay, clock
from ringleader.errors import RefusedError, RequestError
from ringleader.images import processes, ringleader_wheel
from ringleader.images.build import Task, build, contents, made
from ringleader.images.builders import Builder, BuildOptions, Isolation
from ringleader.images.instructions import Image

MANIFEST = json.dumps({"layers": [{"size": 2097152}]})
INSPECT = json.dumps({"FromImageID": "ab12", "FromImageDigest": "sha256:cd", "Manifest": MANIFEST})
BUILDAH = r"""#!/bin/sh
# A builder of two steps: what it does at the second one, $RL_AT_STEP says.
echo "$@" >> "$RL_WORDS"
case " $* " in
  *" info "*) echo overlay; exit 0 ;;
  *" --version "*) echo "buildah version 9"; exit 0 ;;
  *" inspect "*) cat "$RL_INSPECT"; exit 0 ;;
  *" pull "*) exit 0 ;;
  *" from "*) echo working-container; exit 0 ;;
  *" rm "*) exit 0 ;;
  *" run "*) eval "$RL_RUN"; exit $? ;;
esac
for word; do context=$word; done
echo "$context" > "$RL_CONTEXT"
ls -l "$context" > "$RL_CONTEXT.list"
echo "STEP 1/2: FROM scratch"
echo "STEP 2/2: RUN make all"
eval "$RL_AT_STEP"
echo sha256:ab12 > "$context/../image-id"
"""
IMAGE = Image(
    name="digits", about="", stages=(), context=(ringleader_wheel.name(),), test=("/r", "doctor", "--image")
)


class Heard:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.said: list[str] = []

    def step(self, step: str, seconds: float) -> None:
        self.steps.append(step)

    def passing(self, seconds: float) -> None:
        pass

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine on which buildah is the program above, and nothing else builds."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in ("sh", "ls", "cat", "sleep", "mv"):
        (programs / tool).symlink_to(f"/bin/{tool}")
    (programs / "buildah").write_text(BUILDAH)
    (programs / "buildah").chmod(0o755)
    (tmp_path / "inspect").write_text(INSPECT)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return {
        "PATH": str(programs),
        "TMPDIR": str(temporary),
        "HOME": str(tmp_path),
        "RL_WORDS": str(tmp_path / "words"),
        "RL_INSPECT": str(tmp_path / "inspect"),
        "RL_CONTEXT": str(tmp_path / "context"),
        "RL_AT_STEP": "",
        "RL_RUN": "",
    }


def task(place: dict[str, str], **changes: object) -> Task:
    usual: dict[str, object] = {
        "image": IMAGE,
        "dockerfile": "FROM scratch\n",
        "inside": contents(IMAGE, ""),
        "options": BuildOptions(tag="digits:1"),
        "builder": Builder(name="buildah", program=place["PATH"] + "/buildah", version="9"),
        "isolation": Isolation(value="chroot", reason="no OCI runtime"),
    }
    return Task(**{**usual, **changes})


def built(place: dict[str, str], **changes: object):
    heard, said = Heard(), ("RL_AT_STEP", "RL_RUN")
    environ = place | {name: str(changes.pop(name)) for name in said if name in changes}
    return build(task(place, **changes), environ=environ, watcher=heard), heard


def context_of(place: dict[str, str]) -> Path:
    return Path(Path(place["RL_CONTEXT"]).read_text().strip())


def test_a_build(place) -> None:
    found, heard = built(place)
    assert (found.tag, found.stored.id, found.stored.digest) == ("digits:1", "sha256:ab12", "sha256:cd")
    assert found.stored.size == 2 << 20
    assert heard.steps == ["step 1 of 2: FROM scratch", "step 2 of 2: RUN make all"]
    assert heard.said == ["steps are isolated by chroot only: no OCI runtime"]
    assert not context_of(place).exists()
    listed = Path(place["RL_CONTEXT"] + ".list").read_text()
    assert "Dockerfile" not in listed
    assert ringleader_wheel.name() in listed


def test_a_step_that_fails(place) -> None:
    with pytest.raises(RefusedError) as caught:
        built(place, RL_AT_STEP="echo gcc: no such thing; exit 7")
    text = str(caught.value)
    assert "digits: buildah ended with 7" in text
    assert "at step 2 of 2: RUN make all" in text
    assert "    gcc: no such thing" in text
    log = Path(text.partition("full log: ")[2].split()[0])
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.read_text().endswith("gcc: no such thing\n")
    log.unlink()
    assert not context_of(place).exists()


def test_a_build_that_takes_too_long(place) -> None:
    with pytest.raises(RefusedError) as caught:
        built(place, RL_AT_STEP="sleep 600 & wait", seconds=1.0)
    text = str(caught.value)
    assert "buildah was stopped after its 1 s" in text
    assert "--timeout gives it longer" in text
    Path(text.partition("full log: ")[2].split()[0]).unlink()
    assert not context_of(place).exists()


def test_output_that_somebody_else_keeps_open_does_not_hold_us_up() -> None:
    words = ("/bin/sh", "-c", "sleep 600 & echo $!")
    ended = processes.answer(words, environ={}, seconds=60.0, drain=0.2)
    assert ended.code == 0
    child = Path(f"/proc/{ended.out.strip()}")
    end = time.monotonic() + patience(30)
    while child.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not child.exists()


CHECKS = {
    "checks": [{"id": "torch", "level": "PASS", "what": "2.8.0", "do": ""}],
    "ok": True,
    "image": "digits",
}


def test_the_self_test_runs_in_the_image(place, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(json.dumps(CHECKS))
    found, heard = built(place, test=True, RL_RUN=f"cat {tmp_path}/answer")
    assert found.test == CHECKS
    assert heard.said[-1] == "the self-test runs in the image"
    words = Path(place["RL_WORDS"]).read_text().splitlines()
    assert words[-4:] == [
        "inspect --type image sha256:ab12",
        "from --pull-never sha256:ab12",
        "run --isolation chroot working-container -- /r doctor --image --json --timeout 600",
        "rm working-container",
    ]


def test_a_self_test_without_an_answer(place) -> None:
    with pytest.raises(RefusedError) as caught:
        built(place, test=True, RL_RUN="echo no such file >&2; exit 127")
    assert "the self-test ended with 127 in the image without an answer" in str(caught.value)
    assert "no such file" in str(caught.value)
    assert Path(place["RL_WORDS"]).read_text().splitlines()[-1] == "rm working-container"


def test_a_historical_image_tests_itself_and_the_list_of_packages_comes_out(place) -> None:
    image = Image(name="old", about="", stages=(), test=("/usr/local/bin/image-selftest",))
    run = "echo ok python 3.5; echo FAILED nccl: 2.1 wanted; exit 1"
    found, _ = built(place, test=True, image=image, inside={}, RL_RUN=run)
    levels = [(one["id"], one["level"]) for one in found.test["checks"]]
    assert (levels, found.test["ok"]) == ([("python", "PASS"), ("nccl", "FAIL")], False)
    found, _ = built(place, sbom=True, RL_RUN='echo "{}"')
    assert found.sbom == "{}\n"


# --- contexts ---------------------------------------------------------------------------------------------


def test_every_missing_file_is_reported_at_once(tmp_path: Path) -> None:
    image = Image(name="d", about="", stages=(), context=("a.py", "b/c.lock"))
    with pytest.raises(RequestError) as caught:
        contents(image, str(tmp_path / "d.toml"))
    assert [fault.what for fault in caught.value.faults] == [
        f"there is no {tmp_path}/{file}" for file in image.context
    ]


def test_a_context_has_the_recipe_s_files_and_is_ours_alone(tmp_path: Path) -> None:
    where = str(tmp_path / "d.toml")
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/x").write_text("1")
    (tmp_path / "Dockerfile").write_text("a user's own")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    image = Image(name="d", about="", stages=(), context=("data", "run.sh", "Dockerfile"))
    with made("FROM x\n", contents(image, where)) as context:
        assert context.stat().st_mode & 0o777 == 0o700
        found = sorted(str(path.relative_to(context)) for path in context.rglob("*") if path.is_file())
        assert found == [
            "Dockerfile",
            *(f"context/{name}" for name in ("Dockerfile", "data/deep/x", "run.sh")),
        ]
        assert (context / "Dockerfile").read_text() == "FROM x\n"
        assert (context / "context/run.sh").stat().st_mode & 0o111
    assert not context.exists()


def test_what_cannot_be_copied_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    where = str(tmp_path / "d.toml")
    image = Image(name="d", about="", stages=(), context=("pipe",))
    with (
        pytest.raises(RefusedError, match="the context cannot be made"),
        made("FROM x\n", contents(image, where)),
    ):
        pass
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(RefusedError, match="there is no place for the context"), made("FROM x\n", {}):
        pass


# --- the command ------------------------------------------------------------------------------------------


def called(place: dict[str, str], *words: str) -> tuple[int, str, str]:
    process = command(place, *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def command(place: dict[str, str], *words: str, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ringleader", "image", "build", "pytorch-cpu", *words],
        env={**place, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_prints_tag_digest_and_size(place) -> None:
    code, out, err = called(place, "--tag", "r.example.org/d:1", "--isolation", "chroot", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["tag"], found["digest"], found["size_bytes"]) == ("r.example.org/d:1", "sha256:cd", 2 << 20)
    assert "step 2 of 2: RUN make all" in err
    assert not list(Path(place["TMPDIR"]).iterdir())


def test_a_signal_ends_the_builder_and_removes_the_context(place) -> None:
    mark = Path(place["RL_CONTEXT"] + ".child")
    at_step = f"sleep 600 & echo $! > {mark}.new; mv {mark}.new {mark}; wait"
    process = command(place, RL_AT_STEP=at_step)
    end = time.monotonic() + patience(60)
    while not mark.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped by SIGTERM before the image was built" in err
    assert "Traceback" not in err
    child = int(mark.read_text())
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{child}").exists()
    assert not list(Path(place["TMPDIR"]).iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tag", "A B"), "--tag: 'A B' is not NAME:TAG"),
        (("--tag", f"a@sha256:{'0' * 64}"), "is not NAME:TAG"),
        (("--platform", "linux arm64"), "--platform: 'linux arm64' is unknown"),
        (("--platform", "foo"), "use linux/amd64 or linux/arm64"),
        (("--storage-driver", "--root"), "--storage-driver: '--root' is not a name"),
        (("--sbom", "/nonexist/x"), "--sbom: there is no directory /nonexist"),
        (("--sbom", ""), "--sbom: '' is not a file"),
        (("--json", "--sbom", "-"), "--sbom -"),
        (("--provenance", "-", "--sbom", "-"), "--sbom -, --provenance -: only one"),
    ],
)
def test_wrong_words(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(image_build.command, ["pytorch-cpu", "--dry-run", *words])
    assert message in (str(done.exception) if isinstance(done.exception, RequestError) else done.output)
    assert isinstance(done.exception, RequestError) or done.exit_code == 2


def test_a_builder_that_is_not_there(place) -> None:
    code, _, err = called(place, "--builder", "docker")
    assert (code, err.startswith("ringleader: docker: is not installed")) == (3, True), err


def test_what_cannot_work_is_not_built_unless_it_is_asked_for(place) -> None:
    words = ("--set", "torch.version=1.13.1", "--set", "base=ubuntu:24.04", "--isolation", "chroot")
    code, _, err = called(place, *words)
    assert (code, "PyTorch 1.13.1" in err) == (2, True), err
    assert not Path(place["RL_CONTEXT"]).exists()
    code, _, err = called(place, *words, "--no-check")
    assert code == 0, err
    assert not context_of(place).exists()


# --- what a person sees -----------------------------------------------------------------------------------

STEP = "stage 1/2, step 3 of 12: RUN apt-get  update\n && x"


def test_progress_without_a_terminal_is_a_line_for_each_step() -> None:
    assert [clock(seconds) for seconds in (0, 59.9, 60, 3725)] == ["0:00", "0:59", "1:00", "62:05"]
    stream = io.StringIO()
    shown = BuildDisplay(stream=stream, is_tty=False)
    shown.passing(1.0)
    shown.step(STEP, 62.0)
    shown.passing(63.0)
    shown.say("hello")
    shown.finish()
    assert stream.getvalue() == (
        "[1:02] stage 1/2, step 3 of 12: RUN apt-get update && x\nringleader: hello\n"
    )


def test_progress_at_a_terminal_is_one_line_whose_clock_runs() -> None:
    stream = io.StringIO()
    shown = BuildDisplay(stream=stream, is_tty=True, width=30)
    shown.step(STEP, 0.0)
    shown.passing(0.5)
    shown.passing(1.5)
    shown.finish()
    assert stream.getvalue().split("\r\x1b[K") == [
        "[0:00] stage 1/2, step 3 of 1…",
        "[0:01] stage 1/2, step 3 of 1…",
        "",
    ]
