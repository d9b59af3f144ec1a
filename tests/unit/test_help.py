"""The help of a command: short for every day, full on request, and what a shell completes."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from tests.commands import finished

from ringleader.cli.main import COMMANDS, main, ringleader
from ringleader.cli.typed_command import Command

SCREENS = 60
"""Lines of two screens."""
CLUSTER = ("k8s", "operator")


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", ["run", "scale", "submit", "render pods", "render mpijob"])
def test_help_fits_two_screens_and_help_all_has_more(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short = helped(capsys, *words.split(), "--help")
    assert len(short.splitlines()) <= SCREENS
    assert "-h, --help" in short and "--help-all" in short
    full = helped(capsys, *words.split(), "--help-all")
    assert len(full.splitlines()) > SCREENS and "-h, --help" in full and "More options:" in full


def test_help_of_run_is_about_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    here = helped(capsys, "run", "--help")
    assert "--hostfile" in here and "--rdma" not in here
    for words in (("--on", "kubernetes", "--help"), ("--help", "--on", "pods"), ("--on=pods", "-h")):
        there = helped(capsys, "run", *words)
        assert "--rdma" in there and "--hostfile FILE" not in there and "Options on Kubernetes:" in there


def test_commands_for_kubernetes_say_so() -> None:
    for name, (_, line) in COMMANDS.items():
        assert line.startswith("Kubernetes: ") == (name in CLUSTER), name


def test_root_help_has_sections_an_example_and_where_to_read_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = helped(capsys, "--help")
    headings = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    assert headings == ["Options", "Train", "Measure", "Diagnose", "Build", "Kubernetes", "Slurm", "Shell"]
    listed = [
        re.findall(r"^  ([a-z0-9]+) +[A-Z]", part, re.MULTILINE)
        for part in re.split(r"^\w+:$", shown, flags=re.M)
    ]
    assert [name for part in listed[2:] for name in part] == list(COMMANDS)
    assert listed[-3] == list(CLUSTER) and "Kubernetes: " not in shown
    assert "  ringleader run -H " in shown and "Documentation: docs/README.md" in shown
    assert (Path(__file__).resolve().parents[2] / "docs/README.md").is_file()


def leaves(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from leaves(child, f"{words} {name}".strip())
    else:
        yield words, command


LEAVES = dict(leaves(ringleader, ""))


@pytest.mark.parametrize("words", LEAVES)
def test_options_are_listed_with_help_and_arguments_in_the_usage_alone(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    command = LEAVES[words]
    asked = "--help-all" if any("--help-all" in one.opts for one in command.params) else "--help"
    shown = helped(capsys, *words.split(), asked)
    sections = re.split(r"^[A-Z][^\n]*:$", shown, flags=re.MULTILINE)[1:]
    first_column = [line for part in sections for line in part.splitlines() if re.match(r"  \S", line)]
    assert first_column and all(line.startswith("  -") for line in first_column), shown
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden and one.expose_value:
            assert one.help, (words, one.opts)


def test_names_of_everyday_options_are_names_of_options() -> None:
    for words, command in LEAVES.items():
        if isinstance(command, Command):
            names = {one.name for one in command.params}
            assert command.everyday <= names, (words, command.everyday - names)


@pytest.mark.parametrize("words", ["run", "k8s submit", "render pods", "render mpijob"])
def test_elastic_options_have_a_section(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    elastic = {"--min-np", "--max-np", "--host-discovery-script"}
    full = helped(capsys, *words.split(), "--help-all")
    (section,) = re.findall(r"^Elastic jobs:\n(.*?)^(?:[A-Z]|\Z)", full, re.MULTILINE | re.DOTALL)
    shown = set(re.findall(r"^  (--[\w-]+)", section, re.MULTILINE))
    assert elastic - ({"--host-discovery-script"} if words != "run" else set()) < shown
    assert {"--reset-limit", "--checkpoint-dir", "--elastic-timeout"} < shown
    if words == "run":
        short = helped(capsys, "run", "--help").partition("\nElastic jobs:\n")[2]
        assert set(re.findall(r"^  (--[\w-]+)", short, re.MULTILINE)) == elastic


def completed(*words: str) -> list[str]:
    """What click answers to a shell that completes the last word."""
    shell = BashComplete(ringleader, {}, "ringleader", "_RINGLEADER_COMPLETE")
    return [shell.format_completion(item) for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_commands_options_and_values() -> None:
    assert completed("do") == ["plain,doctor"]
    assert completed("run", "--net") == ["plain,--network-interface"]
    assert completed("run", "--map-by", "n") == ["plain,node"]
    assert completed("run", "--on", "kub") == ["plain,kubernetes"]
    assert completed("run", "--hostfile", "ho") == ["file,ho"]
    assert completed("run", "-o", "d") == ["dir,d"]
    assert completed("run", "-n", "2", "tr") == ["file,tr"]
    assert completed("image", "render", "pytorch-c") == ["plain,pytorch-cpu"]


def test_completion_prints_no_old_spelling() -> None:
    assert "plain,--rank-filter" not in completed("run", "--")


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_click_writes_a_script_for_each_shell(shell: str) -> None:
    done = finished(
        [sys.executable, "-c", "from ringleader.cli.main import main; main()"],
        env={**os.environ, "_RINGLEADER_COMPLETE": f"{shell}_source"},
        timeout=60,
    )
    assert done.returncode == 0 and f"_RINGLEADER_COMPLETE={shell}_complete" in done.stdout, done.stderr
