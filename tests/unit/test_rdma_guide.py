"""The guide "A Pod that may use the NIC": its commands are run, its table is held to the data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringleader.cli.main import main
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.yaml_text import documents
from ringleader.kubernetes.objects import job_validation
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.render.rdma_profiles import PROFILES, Counts, Multus

PAGE = (Path(__file__).parents[2] / "docs/guides/rdma-pods.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.yaml)\n")
COUNTED = {
    Counts.NICS: "NICs",
    Counts.SLOT: "a slot: always 1",
    Counts.CONFIGURED: "as the plugin is configured",
    Counts.PAIRS: "pairs of GPU and NIC",
    Counts.NOTHING: "",
}


def steps() -> Iterator[tuple[list[list[str]], str, str]]:
    """In order: the commands of a console block with the excerpt that follows, or the text of a file."""
    found = BLOCK.findall(PAGE)
    for index, (language, body) in enumerate(found):
        follows = found[index + 1] if index + 1 < len(found) else ("", "")
        if language == "console":
            commands = [
                shlex.split(line[2:]) for line in body.splitlines() if line.startswith("$ ringleader")
            ]
            is_excerpt = follows[0] == "yaml" and not FILE.match(follows[1])
            yield commands, "", follows[1] if is_excerpt else ""
        elif FILE.match(body):
            yield [], body, ""


def test_every_command_runs_and_prints_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    count = 0
    for commands, file, excerpt in steps():
        if file:
            name = FILE.match(file)
            assert name is not None
            (tmp_path / name[1]).write_text(file, encoding="utf-8")
        for words in commands:
            with pytest.raises(SystemExit) as caught:
                main(words[1:])
            out, err = capsys.readouterr()
            assert caught.value.code == 0, err
            count += 1
            rest = out
            for part in excerpt.split("…\n"):
                assert part in rest, f"{shlex.join(words)} does not print\n{part}"
                rest = rest[rest.index(part) + len(part) :]
    assert count >= 8


def test_the_operator_takes_the_guides_manifest() -> None:
    (text,) = (body for _, body in BLOCK.findall(PAGE) if FILE.match(body))
    (document,) = documents(text, "job.yaml")
    job_validation.check(read(document.value), OperatorSettings())


def test_the_table_says_what_the_data_say() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) ?\| (.*?) ?\| (.*?) ?\|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == list(PROFILES)
    for name, summary, resource, counted, network in rows:
        profile = PROFILES[name]
        assert summary == profile.summary
        assert counted == COUNTED[profile.counts]
        assert all(f"`{one}`" in resource for one in profile.seen), name
        assert network.startswith("yes") is (profile.multus is Multus.MUST), name
        assert profile.network in network
