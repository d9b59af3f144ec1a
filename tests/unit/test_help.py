"""The help of a command: short for every day, full on request, and what a shell completes."""

import re
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from ringleader.cli.main import COMMANDS, main, ringleader

SCREENS = 60
"""Lines of two screens."""
CLUSTER = ("k8s", "operator")


def helped(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", ["run", "scale", "submit", "render pods", "render mpijob"])
def test_help_fits_two_screens_and_help_all_has_more(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    short = helped(capsys, *words.split(), "--help")
    assert len(short.splitlines()) <= SCREENS
    assert "-h, --help" in short and "--help-all" in short
    full = helped(capsys, *words.split(), "--help-all")
    assert len(full.splitlines()) > SCREENS and "-h, --help" in full and "More options:" in full


def test_help_of_run_is_about_the_place(capsys):
    here = helped(capsys, "run", "--help")
    assert "--hostfile" in here and "--rdma" not in here
    for words in (("--on", "kubernetes", "--help"), ("--help", "--on", "pods"), ("--on=pods", "-h")):
        there = helped(capsys, "run", *words)
        assert "--rdma" in there and "--hostfile FILE" not in there and "Options on Kubernetes:" in there


def test_root_help_has_sections_an_example_and_where_to_read_on(capsys, monkeypatch):
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


def leaves(command, words):
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from leaves(child, f"{words} {name}".strip())
    else:
        yield words, command


LEAVES = dict(leaves(ringleader, ""))


@pytest.mark.parametrize("words", LEAVES)
def test_options_are_listed_with_help_and_arguments_in_the_usage_alone(words, capsys, monkeypatch):
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


def completed(*words):
    """What click answers to a shell that completes the last word."""
    shell = BashComplete(ringleader, {}, "ringleader", "_RINGLEADER_COMPLETE")
    return [shell.format_completion(item) for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_a_shell_completes_commands_options_and_values():
    assert completed("do") == ["plain,doctor"]
    assert completed("run", "--net") == ["plain,--network-interface"]
    assert completed("run", "--map-by", "n") == ["plain,node"]
    assert completed("run", "--on", "kub") == ["plain,kubernetes"]
    assert completed("run", "--hostfile", "ho") == ["file,ho"]
    assert completed("run", "-o", "d") == ["dir,d"]
    assert completed("run", "-n", "2", "tr") == ["file,tr"]
    assert completed("image", "render", "pytorch-c") == ["plain,pytorch-cpu"]
