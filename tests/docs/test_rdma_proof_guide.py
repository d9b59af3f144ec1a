"""The guide "Is my job really on RDMA?": its commands are run, its lines are those that we print."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.fabric_hosts import facts
from tests.unit.fabric.transport_evidence import between, host

from ringleader.cli.main import main
from ringleader.fabric.facts import document
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import lines
from ringleader.fabric.transport_proof.requirement import WORDS

GUIDES = Path(__file__).resolve().parents[2] / "docs/guides"
PAGES = ("is-my-job-on-rdma.md", "is-my-job-on-rdma.zh-CN.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOSTS = {"node7.json": "broken_ports", "pod.json": "connectx_pod"}
NAMES = re.compile(r"^\| ((?:`[a-z0-9]+`[,、 ]*)+) \|", re.MULTILINE)


def words(text: str) -> str:
    """Return a text with single spaces: columns are as wide as their widest row."""
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES)
def test_commands_on_stored_hosts_print_what_the_guide_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, name in HOSTS.items():
        Path(file).write_text(json.dumps(document(facts(name))), encoding="utf-8")
    blocks, count = BLOCK.findall((GUIDES / page).read_text(encoding="utf-8")), 0
    for index, (language, body) in enumerate(blocks):
        if language == "toml":
            Path("nodes.toml").write_text(body, encoding="utf-8")
        for line in body.splitlines() if language == "console" else ():
            if "--facts-from" not in line:
                continue
            with pytest.raises(SystemExit):
                main(shlex.split(line[2:])[1:])
            printed = words(capsys.readouterr().out)
            for part in blocks[index + 1][1].split("…\n"):
                assert words(part) in printed, f"{line} does not print\n{part}"
            count += 1
    assert count == 3


def test_both_languages_show_the_same() -> None:
    english, chinese = (BLOCK.findall((GUIDES / page).read_text(encoding="utf-8")) for page in PAGES)
    assert english == chinese


@pytest.mark.parametrize("page", PAGES)
def test_every_word_of_require_is_explained(page: str) -> None:
    rows = NAMES.findall((GUIDES / page).read_text(encoding="utf-8"))
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(WORDS)


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_written_as_we_print_them(page: str) -> None:
    text = (GUIDES / page).read_text(encoding="utf-8")
    printed = [
        *lines(judged_transport([host({"eth0": 258}, name="h1", mpi=between(256)), host(name="h2")])),
        *lines(judged_transport([host({"ib": 0, "eth0": 900}, mpi=between(256, 512)), host(name="h2")])),
        *lines(judged_transport([host({"ib0": 260, "ib": 262}, mpi=between(256)), host(name="h2")])),
    ]
    assert f"ringleader: {printed[0]}\n" in text
    for part in ("of which the engine's", "others used it as well", "although there is mlx5_0 port 1"):
        assert part in text and any(part in line for line in printed), part
    sockets = "TCP over InfiniBand (IPoIB)"
    assert sockets in text and any(sockets in line for line in printed)
