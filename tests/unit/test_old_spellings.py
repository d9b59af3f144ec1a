"""Options that got another name keep the old one, unseen: each is called once."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

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


@pytest.mark.parametrize(("words", "argv", "name", "value"), OLD)
def test_an_old_spelling_works(words: str, argv: tuple[str, ...], name: str, value: object) -> None:
    command = command_of(words)
    with command.make_context(words, [*argv, *ARGUMENTS.get(words, ())]) as ctx:
        assert ctx.params[name] == value


def test_every_hidden_spelling_is_called_above_and_in_no_help() -> None:
    called = {word for _, argv, _, _ in OLD for word in argv}
    for words, command in leaves(ringleader, ""):
        text = full_help(click.Context(command, info_name=words, help_option_names=["-h", "--help"]))
        for option in command.params:
            for old in option.old if isinstance(option, Option) else ():
                assert not re.search(rf"{re.escape(old)}(?![\w-])", text), (
                    words,
                    old,
                )  # but --slots-per-host
                assert old in called, (words, old)


def test_json_is_an_option_everywhere_and_a_format_in_no_help() -> None:
    for words, command in leaves(ringleader, ""):
        text = full_help(click.Context(command, info_name=words, help_option_names=["-h", "--help"]))
        assert not re.search(r"--format \S*json", text), words


def test_a_claim_was_a_mount_of_another_form() -> None:
    with command_of("run").make_context("run", ["--claim", "data:/data:ro", "--", "x"]) as old:
        pass
    with command_of("run").make_context("run", ["--mount", "claim:data:/data:ro", "--", "x"]) as new:
        pass
    assert old.params["claim"] == new.params["mount"] != ()


SAME = {
    "--name": ("bench", "scale"),
    "--network": ("predict", "image check"),
    "--mount": ("run", "scale", "k8s", "render", "lab up"),
}
"""Option that once had several meanings → the commands in which it has the one that it has now."""


@pytest.mark.parametrize("spelling", SAME)
def test_an_option_means_the_same_everywhere(spelling: str) -> None:
    found = [
        words
        for words, command in leaves(ringleader, "")
        for one in command.params
        if isinstance(one, Option) and spelling in one.spellings
    ]
    assert found and all(words.startswith(SAME[spelling]) for words in found), found


@pytest.mark.parametrize(
    ("argv", "value", "words"),
    [
        (("--json", "--", "x"), True, ("x",)),
        (("--json", "-n", "2", "x"), True, ("x",)),
        (("--json", "x", "y"), True, ("x", "y")),
        (("--json-file", "f", "x"), None, ("x",)),
        (("x", "--json"), None, ("x", "--json")),
    ],
)
def test_json_takes_no_word_of_the_command(
    argv: tuple[str, ...], value: bool | None, words: tuple[str, ...]
) -> None:
    with command_of("run").make_context("run", list(argv)) as ctx:
        assert (ctx.params["json"] or None, ctx.params["command"]) == (value, words)


JSON = [
    ("image", "list"),
    ("image", "solve", "torch=2.8"),
    ("image", "check", "pytorch-cpu"),
    ("image", "render", "pytorch-cpu"),
    ("operator", "crd"),
    ("operator", "manifests"),
    ("doctor", "--facts-from", "facts.json"),
    ("config",),
    ("render", "compose", "--image", "x", "-n", "2"),
    ("render", "mpijob", "--image", "x", "--", "a"),
]


@pytest.mark.parametrize("words", JSON, ids=lambda words: " ".join(words[:2]))
def test_json_on_standard_output_and_in_a_file_are_the_same(
    words: tuple[str, ...], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.json").write_text(json.dumps(document(fabric_hosts.facts("laptop"))))
    before, after = (words[: words.index("--")], words[words.index("--") :]) if "--" in words else (words, ())
    file = tmp_path / "result.json"
    _, out, _ = call(*before, "--json", "--json-file", file, *after)
    printed = json.loads(out)
    assert json.loads(file.read_text()) == printed
    _, out, _ = call(*before, "--json-file", file, *after)
    assert json.loads(file.read_text()) == printed
    assert "{" not in out[:1]
    code, _, err = call(*before, "--json-file", tmp_path / "no/file", *after)
    assert code == 2 and "--json-file" in err


def leaves(command: click.Command, words: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(words, command)]
    ctx = click.Context(command)
    found = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
    return [leaf for name, one in found if one for leaf in leaves(one, f"{words} {name}".strip())]


def test_json_and_output_are_spelt_alike_everywhere() -> None:
    for words, command in leaves(ringleader, ""):
        names = {name: one for one in command.params for name in one.opts}
        assert ("--json" in names) == ("--json-file" in names), words
        if "--output" in names:
            assert names["-o"] is names["--output"], words
        if "-o" in names:
            assert "--output" in names, words


def commands_below(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from commands_below(command) if isinstance(command, click.Group) else (command,)


def test_what_writes_over_things_is_called_replace_and_force() -> None:
    options = [one for command in commands_below(ringleader) for one in command.params]
    found = [one for one in options if isinstance(one, Option) and {"--replace", "--force"} & set(one.opts)]
    assert len(found) >= 12
    assert all(one.spellings == ["--replace"] and one.old == {"--force"} for one in found)


def test_a_json_file_takes_the_place_of_what_was_in_it(tmp_path: Path, call: Call) -> None:
    file, model = tmp_path / "out.json", ("--model", "vgg-16", "--rate", "154", "--batch", "64")
    file.write_text("x" * 100_000)
    assert call("predict", "--ranks", "0", *model, "--json-file", file)[0] == 2
    assert file.stat().st_size == 100_000  # there is nothing to write
    for words in (("predict", *model, "--ranks", "8"), ("config",)):
        file.write_text("x" * 100_000)
        code, _, err = call(*words, "--json-file", file)
        assert code == 0, err
        assert isinstance(json.loads(file.read_text()), dict | list)


OLD_KEYS = [
    ("bench.p2p", "min-bytes", "8", "minbytes"),
    ("bench.allreduce", "factor", "8", "stepfactor"),
    ("run", "volume", "scratch:/s", "mount"),
    ("run", "claim", "data:/data", "claim"),
    ("submit", "name", "a", "job-name"),
    ("lab.up", "name", "a", "lab-name"),
    ("render.compose", "network", "bridge", "network-mode"),
    ("run", "rank-filter", "0", "show-ranks"),
    ("predict", "format", "json", "format"),
]


@pytest.mark.parametrize(("table", "key", "value", "option"), OLD_KEYS)
def test_an_old_spelling_works_in_files_and_variables(
    table: str,
    key: str,
    value: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ringleader.toml").write_text(f'[{table}]\n{key} = "{value}"\n')
    variable = f"RINGLEADER_OPT_{table}_{key}".upper().replace(".", "_").replace("-", "_")
    for origin in (f"[{table}]", variable):
        (found,) = json.loads(call("config", "--json")[1])
        assert (found["option"], origin in found["from"]) == (option, True)
        assert value in found["value"]
        monkeypatch.setenv(variable, value)


def test_a_variable_of_an_old_spelling_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("submit", "-n", "1", "--image", "i", "--dry-run", "--", "x")
    monkeypatch.setenv("RINGLEADER_OPT_SUBMIT_NAME", "older")
    for called in (words, ("k8s", *words)):
        assert "name: older\n" in call(*called)[1]
    monkeypatch.setenv("RINGLEADER_OPT_K8S_SUBMIT_JOB_NAME", "newer")
    assert "name: newer\n" in call("k8s", *words)[1]
    assert "name: newest\n" in call("k8s", "submit", "--job-name", "newest", *words[1:])[1]
