"""Options that got another name keep the old one, unseen: each is called once."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from tests import fabric_hosts
from tests.unit.conftest import Call

from ringleader.cli.main import ringleader
from ringleader.cli.typed_command import Option, full_help
from ringleader.dataclass_json import document

OLD = [
    ("run", ("--output-dir", "d"), "output", "d"),
    ("run", ("--rank-filter", "0,3"), "show_ranks", frozenset((0, 3))),
    ("run", ("--master_port", "1"), "master_port", 1),
    ("run", ("--nproc_per_node", "2"), "nproc_per_node", "2"),
    ("run", ("--max_restarts", "2"), "max_restarts", 2),
    ("run", ("--min-num-proc", "1"), "min_np", 1),
    ("run", ("--max-num-proc", "2"), "max_np", 2),
    ("run", ("--slots", "2"), "slots_per_host", 2),
    ("scale", ("--output", "d"), "output", "d"),
    ("image lock", ("--output", "f"), "output", "f"),
    ("operator run", ("--threadiness", "3"), "parallel_jobs", 3),
    ("operator run", ("--kubeConfig", "f"), "kubeconfig", "f"),
    ("run", ("--volume", "scratch:/s"), "mount", (({"emptyDir": {}}, {"mountPath": "/s"}),)),
    ("run", ("--name", "a"), "job_name", "a"),
    ("bench p2p", ("--min-bytes", "8"), "minbytes", 8),
    ("bench p2p", ("--max-bytes", "1K"), "maxbytes", 1024),
    ("bench p2p", ("--factor", "3"), "stepfactor", 3),
    ("bench p2p", ("--force",), "replace", True),
    ("bench allreduce", ("--min-bytes", "8"), "minbytes", 8),
    ("bench allreduce", ("--max-bytes", "1K"), "maxbytes", 1024),
    ("bench allreduce", ("--factor", "3"), "stepfactor", 3),
    ("bench allreduce", ("--warmup-iters", "3"), "warmup_iters", 3),
    ("doctor", ("--force",), "replace", True),
    ("lab up", ("--name", "a", "--bind", "/a:/b"), "lab_name", "a"),
    ("lab up", ("--bind", "/a:/b"), "mount", ("/a:/b",)),
    ("lab exec", ("--name", "a"), "lab_name", "a"),
    ("render compose", ("--network", "bridge"), "network_mode", "bridge"),
    ("render compose", ("--name", "a"), "project_name", "a"),
    ("render compose", ("--env", "A=1"), "x", ("A=1",)),
    ("render env", ("--format", "json"), "format", "json"),
    ("render topology", ("--format", "json"), "format", "json"),
    ("predict", ("--format", "json"), "format", "json"),
    ("report", ("--format", "json"), "format", "json"),
]
ARGUMENTS = {"run": ("x",), "scale": ("x",), "image lock": ("r",), "render compose": ("--image", "i")}


def command_of(words: str) -> click.Command:
    command: click.Command = ringleader
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def parsed(words: str, *argv: str) -> dict[str, Any]:
    command = command_of(words)
    with command.make_context(words, [*argv, *ARGUMENTS.get(words, ())]) as ctx:
        return ctx.params


@pytest.mark.parametrize(("words", "argv", "name", "value"), OLD)
def test_an_old_spelling_works(words: str, argv: tuple[str, ...], name: str, value: object) -> None:
    assert parsed(words, *argv)[name] == value


def test_a_claim_was_a_mount_of_another_form() -> None:
    new = parsed("run", "--mount", "claim:data:/data:ro", "--")["mount"]
    assert parsed("run", "--claim", "data:/data:ro", "--")["claim"] == new != ()


def leaves(command: click.Command, words: str = "") -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(words, command)]
    ctx = click.Context(command)
    found = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
    return [leaf for name, one in found if one for leaf in leaves(one, f"{words} {name}".strip())]


SAME = {
    "--name": ("bench", "scale"),
    "--network": ("predict", "image check"),
    "--mount": ("run", "scale", "k8s", "render", "lab up"),
}
"""Option that once had several meanings → the commands in which it has the one that it has now."""


def test_spellings_are_alike_in_every_command_and_hidden_ones_are_called_above() -> None:
    called = {word for _, argv, _, _ in OLD for word in argv}
    replacing = 0
    for words, command in leaves(ringleader):
        text = full_help(click.Context(command, info_name=words, help_option_names=["-h", "--help"]))
        assert not re.search(r"--format \S*json", text), words
        names = {name: one for one in command.params for name in one.opts}
        assert ("--json" in names) == ("--json-file" in names), words
        assert names.get("-o") is names.get("--output"), words
        for option in [one for one in command.params if isinstance(one, Option)]:
            assert option.old <= called, (words, option.old)
            for old in option.old:  # but --slots-per-host
                assert not re.search(rf"{re.escape(old)}(?![\w-])", text), (words, old)
            for spelling in SAME.keys() & {*option.spellings}:
                assert words.startswith(SAME[spelling]), (words, spelling)
            if {"--replace", "--force"} & {*option.opts}:
                assert (option.spellings, option.old) == (["--replace"], {"--force"}), words
                replacing += 1
    assert replacing >= 12


def test_json_takes_no_word_of_the_command() -> None:
    for argv, value, words in (
        ("--json -- x", True, "x"),
        ("--json -n 2 x", True, "x"),
        ("--json x y", True, "x y"),
        ("--json-file f x", None, "x"),
        ("x --json", None, "x --json"),
    ):
        with command_of("run").make_context("run", argv.split()) as ctx:
            assert (ctx.params["json"] or None, " ".join(ctx.params["command"])) == (value, words)


JSON = [
    "image list",
    "image solve torch=2.8",
    "image check pytorch-cpu",
    "image render pytorch-cpu",
    "operator crd",
    "operator manifests",
    "doctor --facts-from facts.json",
    "config",
    "render compose --image x -n 2",
    "render mpijob --image x -- a",
    "predict --model vgg-16 --rate 154 --batch 64 --ranks 8",
]


@pytest.mark.parametrize("line", JSON)
def test_json_on_standard_output_and_in_a_file_are_the_same(
    line: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.json").write_text(json.dumps(document(fabric_hosts.facts("laptop"))))
    after = ["--", "a"] if line.endswith(" -- a") else []
    before = line.removesuffix(" -- a").split()
    file = tmp_path / "result.json"
    file.write_text("x" * 100_000)  # what was in it is replaced
    printed = json.loads(call(*before, "--json", "--json-file", file, *after)[1])
    assert json.loads(file.read_text()) == printed
    _, out, _ = call(*before, "--json-file", file, *after)
    assert json.loads(file.read_text()) == printed and "{" not in out[:1]
    code, _, err = call(*before, "--json-file", tmp_path / "no/file", *after)
    assert code == 2 and "--json-file" in err


def test_a_json_file_stays_where_there_is_nothing_to_write(tmp_path: Path, call: Call) -> None:
    file = tmp_path / "out.json"
    file.write_text("x")
    words = ("--ranks", "0", "--model", "vgg-16", "--rate", "154", "--batch", "64")
    assert call("predict", *words, "--json-file", file)[0] == 2 and file.read_text() == "x"


OLD_KEYS = [
    ("bench.p2p", "min-bytes", "8", "minbytes"),
    ("bench.allreduce", "factor", "8", "stepfactor"),
    ("run", "volume", "scratch:/s", "mount"),
    ("submit", "name", "a", "job-name"),
    ("lab.up", "name", "a", "lab-name"),
    ("render.compose", "network", "bridge", "network-mode"),
    ("run", "rank-filter", "0", "show-ranks"),
    ("predict", "format", "json", "format"),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("table", "key", "value", "option"), OLD_KEYS)
def test_an_old_spelling_works_in_files_and_variables(
    table: str, key: str, value: str, option: str, home: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (home / "ringleader.toml").write_text(f'[{table}]\n{key} = "{value}"\n')
    variable = f"RINGLEADER_OPT_{table}_{key}".upper().replace(".", "_").replace("-", "_")
    for origin in (f"[{table}]", variable):
        (found,) = json.loads(call("config", "--json")[1])
        assert (found["option"], origin in found["from"]) == (option, True) and value in found["value"]
        monkeypatch.setenv(variable, value)


@pytest.mark.usefixtures("home")
def test_a_variable_of_an_old_spelling_takes_effect(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    words = ("submit", "-n", "1", "--image", "i", "--dry-run", "--", "x")
    monkeypatch.setenv("RINGLEADER_OPT_SUBMIT_NAME", "older")
    for called in (words, ("k8s", *words)):
        assert "name: older\n" in call(*called)[1]
    monkeypatch.setenv("RINGLEADER_OPT_K8S_SUBMIT_JOB_NAME", "newer")
    assert "name: newer\n" in call("k8s", *words)[1]
    assert "name: newest\n" in call("k8s", "submit", "--job-name", "newest", *words[1:])[1]
