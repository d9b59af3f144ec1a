"""Definitions for Apptainer: the same steps, run by a shell; values come out byte for byte."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from tests.commands import finished
from tests.unit.image_world import definition
from tests.unit.test_image_dockerfile import VALUES, fits

from ringleader.errors import RequestError
from ringleader.images import apptainer
from ringleader.images.instructions import Command, Copy, Env, Image, Label, Run, Stage, Step, write
from ringleader.images.recipe import LINE, TEXT

pytestmark = pytest.mark.process


def rendered(*steps: Step, test: tuple[str, ...] = ()) -> str:
    stages = (Stage(name="image", base="debian:12", steps=steps),)
    return apptainer.text(Image(name="x", about="", stages=stages, test=test))


def section(text: str, name: str) -> str:
    parts = re.split(r"^(?=%|Bootstrap:)", text, flags=re.MULTILINE)
    return next(part.partition("\n")[2] for part in reversed(parts) if part.startswith(f"%{name}"))


def shell(script: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return finished(["sh", "-c", script, "sh", *argv], timeout=60)


def test_files_that_are_copied() -> None:
    """The rest is in the golden files: Docker's rule for directories needs a place to wait in."""
    text = rendered(
        Copy(sources=("/opt/venv",), target="/opt/venv/", stage="build"),
        Copy(sources=("a b", "c"), target="/d/", owner="1:2"),
    )
    assert '%files from build\n    "/opt/venv" "/opt/venv"\n' in text
    assert '%files\n    "a b" "/.copied/1/a b"\n    "c" "/.copied/1/c"\n' in text
    assert (
        "    chown -R 1:2 /.copied/1\n"
        "    mkdir -p /d/\n"
        "    if [ -d '/.copied/1/a b' ]; then\n        mkdir -p /d/\n        cp -a '/.copied/1/a b'/. /d/\n"
        "    else\n        cp -a '/.copied/1/a b' /d/\n    fi\n"
    ) in text
    assert "    rm -rf /.copied\n" in text


def test_the_first_failure_ends_it() -> None:
    text = rendered(Run(commands=("echo a", "false", "echo b")), Run(commands=("echo c",)))
    done = shell(section(text, "post"))
    assert (done.returncode, done.stdout) == (1, "a\n")
    # A step does not change the place and the variables of the next, and a reference stays one.
    text = rendered(Run(commands=("cd /", "A=x")), Run(commands=("pwd", 'echo "${A-none}"')))
    assert shell(section(text, "post")).stdout == f"{os.getcwd()}\nnone\n"
    variables = Env(variables=(("A", "x"), ("B", "${A}:y"), ("C", "${B:-n}$A")))
    script = section(rendered(variables), "environment")
    assert shell(f'{script}\nprintf "%s|" "$B" "$C"').stdout == "x:y|${B:-n}$A|"


def test_directories_are_copied_as_docker_does(tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    for number, path in enumerate(("wheels", "file")):
        (waiting / str(number)).mkdir(parents=True)
        if path == "wheels":
            (waiting / "0/wheels").mkdir()
            (waiting / "0/wheels/a.whl").write_text("a")
        else:
            (waiting / "1/file").write_text("f")
    script = section(
        rendered(
            Copy(sources=("wheels",), target=f"{tmp_path}/w/"),
            Copy(sources=("file",), target=f"{tmp_path}/d/name"),
        ),
        "post",
    ).replace(apptainer.WAITING, str(waiting))
    assert shell(script).returncode == 0
    assert (tmp_path / "w/a.whl").read_text() == "a"
    assert (tmp_path / "d/name").read_text() == "f"
    assert not waiting.exists()


def test_the_runscript_does_what_docker_run_does() -> None:
    script = section(rendered(Command(argv=("echo", "a b", "$HOME"))), "runscript")
    assert shell(script).stdout == "a b $HOME\n"
    assert shell(script, "printf", "%s", "x  y").stdout == "x  y"


def is_template(value: str) -> bool:
    return re.search(r"\{\{\s*\w+\s*\}\}", value) is not None


@given(VALUES.filter(lambda value: "${" not in value))
@example("`id` $(id) $HOME \\")
@example('"; id; "')
def test_a_variable_comes_back(value: str) -> None:
    if fits(LINE, value) and not is_template(value):
        script = section(rendered(Env(variables=(("A", value),))), "environment")
        assert shell(f'{script}\nprintf %s "$A"').stdout == value


@given(VALUES)
@example("# a")
@example("%post")
def test_a_label_comes_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    if fits(TEXT, value) and value and not is_template(value):
        found = definition(tmp_path_factory.mktemp("def"), rendered(Label(labels=(("a", value),))))
        assert found["image"].labels == [f"a {value}"]


@given(VALUES)
@example("%post")
@example("Bootstrap: docker")
def test_written_lines_come_out_of_post(value: str) -> None:
    if fits(LINE, value) and not is_template(value):
        text = rendered(Run(commands=(write("/dev/stdout", [value, "end"]),)))
        assert shell(section(text, "post")).stdout == f"{value}\nend\n"


def test_what_apptainer_would_take_for_a_variable_is_refused() -> None:
    with pytest.raises(RequestError, match=r"Apptainer would take \{\{ a \}\} for its own"):
        rendered(Label(labels=(("a", "x {{ a }} y"),)))
    assert "{{}} { { a } }" in rendered(Label(labels=(("a", "{{}} { { a } }"),)))
