"""The commands of the guide to compose applications, as a reader types them."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from ringleader.cli.main import main

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/compose.md"


def commands() -> list[list[str]]:
    """Every command of the guide, section by section in one row."""
    blocks = re.findall(r"^```console\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line[2:]) for block in blocks for line in block.splitlines()]


def test_its_commands_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: dict[str, Path] = {}
    here = tmp_path
    for words in commands():
        if words[:3] == ["ringleader", "render", "compose"]:
            here = tmp_path
            monkeypatch.chdir(here)
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert ended.value.code == 0
            if "-o" in words:
                made[words[-1]] = tmp_path / words[-1]
        elif words[0] == "cd":
            here = here / words[1]
            assert here.is_dir()
        elif words[0] == "scp":
            assert (here / words[2] / "compose.yaml").is_file()
        else:
            assert words[0] == "docker"
            assert shlex.join(words) in (here / "README.md").read_text() or words[-1] == "down"
    assert list(made) == ["digits", "cluster", "stack"]
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == yaml.safe_load((made["digits"] / "compose.yaml").read_text())
    services = printed["services"]
    (devices,) = services["mpinode-1"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices["device_ids"] == ["4", "5", "6", "7"]
    assert services["mpihead"]["working_dir"] == "/digits"
