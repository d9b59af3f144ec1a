"""Values in a Dockerfile: whatever signs they have, they come out of foreign parsers byte for byte."""

import json
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from tests.unit.image_world import HEAD, docker_commands, docker_values, image_of

from ringleader.errors import RequestError
from ringleader.images import dockerfile
from ringleader.images.dockerfile import chain
from ringleader.images.instructions import (
    Command,
    Copy,
    Env,
    Image,
    Label,
    Run,
    Stage,
    Step,
    User,
    Workdir,
    shell,
    write,
)
from ringleader.images.recipe import CONTEXT_PATH, LINE, PATH, TEXT, TextKind

NASTY = some.text(
    some.one_of(some.sampled_from("\"'\\$`;&|<>(){}[]*?!#%~= \tabAB0"), some.characters(codec="utf-8")),
    max_size=30,
)
REFERENCES = some.sampled_from(
    ["$HOME", "${HOME}", "${A:-x}", "$(id)", "`id`", "\\", "\\n", "#", "%post", "<<E"]
)
VALUES = some.one_of(NASTY, some.lists(some.one_of(NASTY, REFERENCES), max_size=4).map("".join))


def fits(sort: TextKind, value: str) -> bool:
    return sort.pattern.fullmatch(value) is not None


def toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def rendered(*steps: Step) -> str:
    return dockerfile.text(
        Image(name="x", about="", stages=(Stage(name="image", base="debian:12", steps=steps),))
    )


def only(text: str, kind: str) -> list[tuple[str, ...]]:
    return [one.value for one in docker_commands(text) if one.cmd.upper() == kind]


def test_every_step() -> None:
    """Those that no golden file shows: a reference to a variable of the same step, and odd names."""
    steps = (
        Env(variables=(("A", "x"), ("B", "${A}:y"), ("C", "z"))),
        Run(commands=("true", "false || true", "if true; then echo a; fi"), why="It says why."),
        Copy(sources=("a b",), target="/c d"),
        Command(argv=("c d",)),
    )
    assert rendered(*steps).splitlines()[3:] == [
        *('ENV A="x"', 'ENV B="${A}:y" \\', '    C="z"', "", "# It says why.", "RUN true \\"),
        *(" && { false || true; } \\", " && { if true; then echo a; fi; }", 'COPY ["a b", "/c d"]'),
        'CMD ["c d"]',
    ]


def test_what_docker_would_read_differently_is_a_mistake() -> None:
    for command in ("", " ", "a\nb", "a\rb"):
        with pytest.raises(ValueError, match="one line"):
            chain((command,))
    for path in ("", "a'b", 'a"b', "a$b", "a\\b", "a*", "a?", "[a]", "a\nb", "<<E"):
        with pytest.raises(ValueError, match="not a path"):
            rendered(Copy(sources=(path,), target="/x"))


@given(VALUES)
@example("a\\")
@example("${A}")
@example('"; RUN id; "')
def test_a_label_comes_back(value: str) -> None:
    if not fits(TEXT, value):
        with pytest.raises(RequestError):
            image_of(HEAD + f"[labels]\na = {toml(value)}\n")
        return
    assert docker_values(rendered(Label(labels=(("a", value),))))[1] == {"a": value}


@given(VALUES.filter(lambda value: "${" not in value))
@example("a\\")
@example("$HOME $(id) `id`")
def test_a_variable_comes_back(value: str) -> None:
    if fits(LINE, value):
        assert docker_values(rendered(Env(variables=(("A", value),))))[0] == {"A": value}


def test_a_reference_to_an_earlier_variable_stays_one() -> None:
    text = rendered(Env(variables=(("A", "x"), ("B", "${A}:y"), ("C", "${B:-n}$A"))))
    assert docker_values(text)[0] == {"A": "x", "B": "x:y", "C": "${B:-n}$A"}


@given(some.lists(VALUES, min_size=1, max_size=5))
@example(["a\\", "# b", "<<EOF", "%post"])
@example(["x " * 200])
@pytest.mark.process
def test_written_lines_come_out_of_a_shell(lines: list[str]) -> None:
    lines = [line for line in lines if fits(LINE, line)]
    text = rendered(
        Run(commands=("true", write("/dev/stdout", lines), shell("true", *lines))), User(name="u")
    )
    assert [one.cmd for one in docker_commands(text)] == ["FROM", "RUN", "USER"]
    (script,) = only(text, "RUN")[0]
    done = subprocess.run(["sh", "-c", script], capture_output=True, timeout=60, check=True)
    assert done.stdout == "".join(f"{line}\n" for line in lines or [""]).encode()


@given(VALUES)
@example("a b")
@example("a/../b")
def test_a_path_of_the_context_comes_back(value: str) -> None:
    if not fits(CONTEXT_PATH, value):
        return
    assert not value.startswith("/")
    assert ".." not in value.split("/")
    assert only(rendered(Copy(sources=(value,), target="/x/")), "COPY") == [(value, "/x/")]


@given(VALUES.map(lambda value: f"/{value}"))
@example("/a b")
def test_a_path_of_the_image_comes_back(value: str) -> None:
    if fits(PATH, value):
        assert only(rendered(Copy(sources=("x",), target=value)), "COPY") == [("x", value)]
        assert only(rendered(Workdir(path=value)), "WORKDIR") == [(value,)]


@pytest.mark.parametrize(
    ("commands", "code", "out"),
    [
        (("false", "echo a"), 1, ""),
        (("false", "true || true", "echo a"), 1, ""),
        (("false || true", "echo a"), 0, "a\n"),
        (("for a in 1 2; do echo $a; done", "echo '; ||'"), 0, "1\n2\n; ||\n"),
        (("(cd / && false)", "echo a"), 1, ""),
        (("echo 'a  b'  c",), 0, "a  b c\n"),
        (('echo "a \' b" | cat',), 0, "a ' b\n"),
    ],
)
@pytest.mark.process
def test_a_chain_stops_at_the_first_failure(commands: tuple[str, ...], code: int, out: str) -> None:
    for text in ("\n".join(chain(commands)), only(rendered(Run(commands=commands)), "RUN")[0][0]):
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (code, out)
