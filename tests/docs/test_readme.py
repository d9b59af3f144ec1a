"""The README: its length and order, its numbers and pictures against stored results, its commands, run."""

import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from tests.commands import finished
from tests.docs.pages import ROOT, blocks

from ringleader.gpu_record import lines
from ringleader.report.text import runs_text

README, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
RESULTS = ROOT / "benchmarks/results"
INSTALL, START, LAB = "pip install", "examples/mnist.py\n$ ringleader scale", "ringleader lab up"
"""What the console blocks have in them, in their order."""


def console() -> list[str]:
    return [body for _, body in blocks("README.md", "console")]


def block(word: str) -> list[str]:
    """Return the commands of the block that has ``word`` in it."""
    (body,) = [body for body in console() if word in body]
    return [line[2:] for line in body.splitlines()]


@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda page: page.name)
def test_it_is_one_page(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 140


def test_it_goes_from_what_it_is_to_where_to_go_next() -> None:
    text = README.read_text(encoding="utf-8")
    titles = " ".join(re.findall(r"^## (\w+)", text, re.MULTILINE))
    assert titles == "Install Start What Proof Compared The Where"
    before = text.partition("## Install")[0]
    assert "docs/images/speed-up.svg" in before and "not yet run on a GPU or on RDMA hardware" in before
    shown = [word in body for word, body in zip((INSTALL, START, LAB), console(), strict=True)]
    assert shown == [True] * 3, "a block that no test here runs"


def test_the_chinese_one_shows_the_same_output_pictures_and_sources() -> None:
    english, chinese = (page.read_text(encoding="utf-8") for page in (README, CHINESE))
    for pattern in (r'src="([^"]*)"', r"^\[\w+\]: (.*)$", r"\d+\.\d+ s"):
        assert re.findall(pattern, english, re.M) == re.findall(pattern, chinese, re.M), pattern


def test_the_numbers_of_the_comparison_are_those_of_the_stored_results() -> None:
    text = README.read_text(encoding="utf-8")
    stored = json.loads((RESULTS / "recovery_lab.json").read_text())
    names = ("ours", "torchrun", "Horovod", "ours, one fewer", "Horovod, one fewer")
    middle = {name: statistics.median(stored[name]["seconds"]) for name in names}
    row = next(line for line in text.splitlines() if line.startswith("| time to replace a killed rank"))
    replaced = [f"{middle['ours']:.2f}", f"{middle['torchrun']:.1f}", f"{middle['Horovod']:.1f}"]
    assert re.findall(r"([\d.]+) s", row) == replaced
    row = next(line for line in text.splitlines() if line.startswith("| time to continue with one rank"))
    fewer = [middle["ours, one fewer"], middle["Horovod, one fewer"]]
    assert re.findall(r"([\d.]+) s", row) == [f"{value:.2f}" for value in fewer]
    start = json.loads((RESULTS / "start.json").read_text())
    assert f"mpirun + {start['difference']:.2f} s" in text
    table = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    ratio = re.search(r"\| 64 MiB, 8 Gbit/s, gradients \| Gloo over ours \| ([\d.]+) \|", table)
    assert ratio is not None and f"{float(ratio[1]):.1f} × Gloo" in text


def test_what_has_run_on_a_gpu_is_what_the_command_prints() -> None:
    counted = re.search(r"(\d+ of \d+) parts", "\n".join(lines()))
    assert counted is not None and counted[0] in README.read_text(encoding="utf-8")
    assert counted[0] in (ROOT / "docs/guides/gpu-quick-start.md").read_text(encoding="utf-8")
    assert "16 项中的 0 项" in CHINESE.read_text(encoding="utf-8") or counted[1] != "0 of 16"


def test_the_extras_it_installs_exist() -> None:
    (named,) = re.findall(r"pip install '\.\[([\w,]+)\]'", README.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(named.split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_installation_installs(tmp_path: Path) -> None:
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    # What it needs is installed where the tests run; here, that pip makes a wheel of it and installs that.
    project = (ROOT / "pyproject.toml").read_text()
    head, extras, rest = re.split(r"(?=^\[project\.(?:optional-dependencies|scripts)\])", project, flags=re.M)
    head = re.sub(r"^dependencies = \[.*?^\]", "dependencies = []", head, flags=re.M | re.S)
    extras = re.sub(r"^([\w-]+) = \[.*?\](?=\s*(#.*)?$)", r"\1 = []", extras, flags=re.M | re.S)
    (tmp_path / "pyproject.toml").write_text(head + extras + rest)
    script = "\n".join(["set -e", *block(INSTALL)])
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = finished(["bash", "-c", script], cwd=tmp_path, env=environ, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert " does not provide the extra" not in done.stderr
    assert (tmp_path / ".venv/bin/ringleader").is_file()


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_three_commands_run(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run, scale, doctor = (
        finished(["bash", "-c", command], cwd=tmp_path, env=environ, timeout=400) for command in block(START)
    )
    assert run.returncode == 0 and "test accuracy" in run.stdout, run.stderr
    assert scale.returncode == 0 and "2 ranks do " in scale.stdout and "Repetitions: " in scale.stdout, (
        scale.stderr
    )
    assert list(tmp_path.glob("runs/*/report.html"))
    assert doctor.returncode in (0, 1) and " passed" in doctor.stdout, doctor.stderr


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_ends_with_a_finding() -> None:
    if not (ROOT / ".venv/bin/ringleader").is_file():
        pytest.skip("make setup makes the environment that the demo runs in")
    done = subprocess.run([ROOT / "examples/demo.sh"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    stored = json.loads((ROOT / "runs/demo/report.json").read_text(encoding="utf-8"))
    assert last == f"Finding: {stored['headline']}"
    assert re.match(r"Finding: 2 ranks do [\d.]+× the work of one", last), last
    assert "to tell" not in last


# --- pictures ---------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts/pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(drawing: str) -> list[str]:
    return [
        "".join(one.itertext()) for one in ElementTree.fromstring(drawing).iter() if one.tag.endswith("text")
    ]


def test_they_show_what_is_stored(pictures: ModuleType) -> None:
    for name, drawing in pictures.drawings(pictures.stored_run()).items():
        kept = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
        assert words(kept) == words(drawing), f"make pictures renews {name}"
        assert re.findall(r"<desc.*?</desc>", kept) == re.findall(r"<desc.*?</desc>", drawing)
        assert f"docs/images/{name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_shows_what_the_run_prints(pictures: ModuleType) -> None:
    printed = runs_text([pictures.stored_run()]).splitlines()
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\n(hosts×slots.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = [line for line in block.splitlines() if line != "…"]
    assert shown[:-1] == printed[: len(shown) - 1], "the table and the headline"
    assert shown[-1] in printed


def test_they_need_nothing_else(pictures: ModuleType) -> None:
    for name in pictures.FILES.values():
        drawing = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"<]*", drawing) == ["http://www.w3.org/2000/svg"]
        used, made = set(re.findall(r"var\((--[\w-]+)\)", drawing)), set(re.findall(r"(--[\w-]+):", drawing))
        assert used <= made, f"{name}: a color that only the page has"


def test_the_screenshot_is_beside_them() -> None:
    assert (ROOT / "docs/images/scaling-report.png").read_bytes()[:4] == b"\x89PNG"
    assert "docs/images/scaling-report.png" in (ROOT / "README.md").read_text(encoding="utf-8")


# --- a release --------------------------------------------------------------------------------------------


@pytest.mark.process
def test_outside_of_a_checkout_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/release"
    script.write_bytes((ROOT / "scripts/release").read_bytes())
    script.chmod(0o755)
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run([script], env=environ, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "git checkout" in done.stderr and not (tmp_path / "dist").exists()
