"""The page on predictions: its samples are what the command prints, its sentences what its tables say."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest

from ringleader.cli.main import main

PAGE = (Path(__file__).resolve().parents[2] / "docs/concepts/prediction.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SAMPLE = re.compile(
    r"^```console\n\$ (ringleader predict [^\n]*)\n```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    return capsys.readouterr().out


def samples() -> list[tuple[list[str], str]]:
    """Return (words, output) of each command whose output the page shows."""
    return [(shlex.split(command)[1:], output) for command, output in SAMPLE.findall(PAGE)]


def test_the_samples_are_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = next(body for language, body in BLOCK.findall(PAGE) if language == "toml")
    Path("job.toml").write_text(profile, encoding="utf-8")
    found = samples()
    assert len(found) == 2 and found[1][0][1] == "job.toml"
    for words, output in found:
        text = printed(words, capsys)
        for part in output.split("…\n"):
            assert f"\n{part}" in f"\n{text}", f"ringleader {shlex.join(words)} does not print\n{part}"


def test_from_ipoib_to_rdma_each_change_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = next(
        shlex.split(body[2:])[1:] for _, body in BLOCK.findall(PAGE) if "--algorithm servers" in body
    )
    rows = re.findall(r"^\| `(edr-\w+)` \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == ["edr-ipoib", "edr-infiniband"]
    for network, *shown in rows:
        for algorithm, efficiency in zip(("servers", "hierarchical"), shown, strict=True):
            other = (*words, "--network", network, "--algorithm", algorithm, "--json")
            size = json.loads(printed(list(other), capsys))["sizes"][0]
            assert f"{100 * size['efficiency']:.1f}" == efficiency


def test_sentences_on_steps_in_a_lab_follow_from_the_tables() -> None:
    row = re.compile(r"^(\w+) +(\dx\d) +([\d.]+) ms .* ([\d.]+) ms +([-+][\d.]+)%$", re.MULTILINE)
    tables = [found for _, body in BLOCK.findall(PAGE) if (found := row.findall(body))]
    stated = re.findall(r"root mean square(?: of the errors)? is \*\*([\d.]+) %\*\*", PAGE)
    assert len(tables) == len(stated) == 4
    for table, mean in zip(tables, stated, strict=True):
        errors = [float(predicted) / float(measured) - 1 for _, _, measured, predicted, _ in table]
        told = [float(error) / 100 for *_, error in table]
        assert errors == pytest.approx(told, abs=0.0021)  # of times that were rounded
        assert 100 * math.sqrt(sum(e * e for e in errors) / len(errors)) == pytest.approx(
            float(mean), abs=0.11
        )
    longer = {
        rate: 100 * (float(measured) / float(predicted) - 1)
        for rate, size, measured, predicted, _ in tables[0]
        if size == "4x2"
    }
    slow = f"{longer['200mbit']:.0f} to {longer['1gbit']:.0f} % longer than predicted"
    assert (
        f"on the slow links steps take {slow}, at 8 Gbit/s they are {-longer['8gbit']:.0f} % shorter" in PAGE
    )
