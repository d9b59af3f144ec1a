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

OLD = {
    "run": "output-dir=output rank-filter=show_ranks master_port=master_port nproc_per_node=nproc_per_node "
    "max_restarts=max_restarts min-num-proc=min_np max-num-proc=max_np slots=slots_per_host volume=mount "
    "name=job_name",
    "operator run": "threadiness=parallel_jobs kubeConfig=kubeconfig",
    "bench allreduce": "nproc_per_node=nproc_per_node min-bytes=minbytes max-bytes=maxbytes "
    "factor=stepfactor warmup-iters=warmup_iters force=replace",
    "doctor": "nproc_per_node=nproc_per_node force=replace",
    "lab up": "name=lab_name bind=mount force=replace",
    "render compose": "network=network_mode name=project_name env=x force=replace",
}


def command_of(words: str) -> click.Command:
    command: click.Command = ringleader
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def test_old_values_work() -> None:
    def parsed(words: str, *argv: str) -> dict[str, Any]:
        with command_of(words).make_context(words, list(argv)) as ctx:
            return ctx.params

    assert parsed("run", "--volume", "scratch:/s", "x")["mount"] == (({"emptyDir": {}}, {"mountPath": "/s"}),)
    new = parsed("run", "--mount", "claim:data:/data:ro", "x")["mount"]
    assert parsed("run", "--claim", "data:/data:ro", "x")["claim"] == new != ()
    for words in ("render env", "render topology", "predict", "report"):
        assert parsed(words, "--format", "json")["format"] == "json"


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


def test_spellings_are_alike_in_every_command_and_old_ones_are_kept_unseen() -> None:
    kept: dict[str, set[str]] = {}
    for words, command in leaves(ringleader):
        text = full_help(click.Context(command, info_name=words, help_option_names=["-h", "--help"]))
        assert not re.search(r"--format \S*json", text), words
        names = {name: one for one in command.params for name in one.opts}
        assert ("--json" in names) == ("--json-file" in names), words
        assert names.get("-o") is names.get("--output"), words
        options = [one for one in command.params if isinstance(one, Option)]
        kept[words] = {f"{old[2:]}={option.name}" for option in options for old in option.old}
        for option in options:
            for old in option.old:  # but --slots-per-host
                assert not re.search(rf"{re.escape(old)}(?![\w-])", text), (words, old)
            for spelling in SAME.keys() & {*option.spellings}:
                assert words.startswith(SAME[spelling]), (words, spelling)
            if {"--replace", "--force"} & {*option.opts}:
                assert (option.spellings, option.old) == (["--replace"], {"--force"}), words
    assert {words: kept[words] for words in OLD} == {words: set(old.split()) for words, old in OLD.items()}
    assert set().union(*kept.values()) == set(" ".join(OLD.values()).split())
    assert sum("force=replace" in old for old in kept.values()) >= 12


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
