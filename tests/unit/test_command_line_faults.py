"""What is said of words that are no command, no option, or missing: one style, and what was meant."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringleader.cli import output

Call = Callable[..., tuple[int, str, str]]

CASES = {
    "rn": "rn: no such command\n    → did you mean run? ringleader --help lists them",
    "image lst": "lst: no such command\n    → did you mean list? ringleader image --help lists them",
    "k8s statu": "statu: no such command\n    → did you mean status? ringleader k8s --help lists them",
    "lab frob": "frob: no such command\n    → ringleader lab --help lists them",
    "lab statu": "statu: no such command\n    → did you mean status? ringleader lab --help lists them",
    "xyzzy": "xyzzy: no such command\n    → ringleader --help lists them",
    "run --num-procs 2 x": "--num-procs: no such option\n    → did you mean -n? ringleader run --help",
    "run --hostfil x": "--hostfil: no such option\n    → did you mean --hostfile",
    "run -n": "-n: requires an argument",
    "run --profile 40:20 x": "--profile: step 20 comes before step 40\n    → write 20:40",
    "run --profile 1:5 x": "--profile: step 1 cannot be recorded: its beginning is unknown",
    "run --profile 20 x": "--profile: '20' is not a range of steps\n    → write FIRST:LAST, such as 20:40",
    "run --profile-dir d x": "--profile-dir: requires --profile",
    "k8s logs": "JOB: is missing\n    → ringleader k8s logs --help",
    "explain": "JOB: is missing\n    → ringleader",
    "logs": "JOB: is missing\n    → ringleader",
    "completion": "bash|zsh|fish: is missing\n    → ringleader completion --help",
    "completion ksh": "shell: 'ksh' is not one of 'bash', 'zsh', 'fish'",
}


@pytest.mark.parametrize("line", CASES)
def test_it_says_what_was_meant(call: Call, line: str) -> None:
    code, out, err = call(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"ringleader: {CASES[line]}"), err


@pytest.mark.parametrize("name", ["submit", "status", "logs", "explain", "delete"])
def test_commands_of_jobs_on_a_cluster_have_two_names(call: Call, name: str) -> None:
    new, old = call("k8s", name, "--help"), call(name, "--help")
    assert new[0] == old[0] == 0
    assert new[1].replace("ringleader k8s", "ringleader") == old[1].replace("ringleader k8s", "ringleader")
    assert f"  {name} " not in call("--help")[1]
    assert f"  {name} " in call("k8s", "--help")[1]


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(call: Call, shell: str) -> None:
    code, out, _err = call("completion", shell)
    assert code == 0 and "_RINGLEADER_COMPLETE" in out and "ringleader" in out


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_verdicts_are_colored_on_terminals_alone(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = "Between hosts\n  FAIL  hosts.mtu  a FAIL is red\n  WARN  x\n"
    assert output.colored(text) == text
    monkeypatch.setattr(sys, "stdout", Terminal())
    red = text.replace("  FAIL", "  \x1b[1;31mFAIL\x1b[0m").replace("  WARN", "  \x1b[1;33mWARN\x1b[0m")
    assert output.colored(text) == (text if variables else red)


@pytest.mark.parametrize("table", ["submit", "k8s.submit"])
@pytest.mark.parametrize("words", [("submit",), ("k8s", "submit")], ids=" ".join)
def test_defaults_of_a_command_with_two_names_are_read_under_both(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ringleader.toml").write_text(f"[{table}]\nnamespace = 'Wrong_Name'\n")
    code, _out, err = call(*words, "--dry-run", "-n", "2", "--image", "i", "--", "x")
    assert code == 2 and f"[{table}] namespace: 'Wrong_Name'" in err, err


@pytest.mark.process
def test_scale_removes_nothing_that_it_has_not_made(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").write_text("kept")
    for name in ("data", "new"):
        code, _out, err = call(
            "scale", "--output", str(tmp_path), "--name", name, "--", "python", "missing.py"
        )
        assert code == 2 and "missing.py" in err and "continue" not in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "kept"]
