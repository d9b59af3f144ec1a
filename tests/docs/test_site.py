"""The site: every public name is there, what pages quote is printed by the program, the tutorial works."""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.commands import finished
from tests.docs.pages import ROOT, blocks, commands, text_of

API = ROOT / "docs/reference/api"
PACKAGES = {
    "ringleader": "ringleader",
    "ringleader.torch": "torch",
    "ringleader.torch.elastic": "torch-elastic",
    "ringleader.tensorflow": "tensorflow",
    "ringleader.tensorflow.elastic": "tensorflow",
    "ringleader.keras": "keras",
    "ringleader.keras.callbacks": "keras",
    "ringleader.keras.elastic": "keras",
    "ringleader.jax": "jax",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    """By the place where it is defined, as the page's directives have it, or in a page's text."""
    framework = package.split(".")[1:2]
    if framework and importlib.util.find_spec(framework[0]) is None:
        pytest.skip(f"{framework[0]} is not installed")
    module = importlib.import_module(package)
    pages = [API / f"{PACKAGES[package]}.md", API / "all-frameworks.md"]
    text = "".join(page.read_text() for page in pages)
    missing = []
    for name in module.__all__:
        value = getattr(module, name)
        if name.startswith("__") or inspect.ismodule(value):
            continue
        place = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        if not re.search(rf"^::: {re.escape(place)}$", text, re.MULTILINE) and f"`{name}`" not in text:
            missing.append(f"{name} ({place})")
    assert missing == []


def test_messages_of_the_troubleshooting_page_are_printed_by_the_program() -> None:
    source = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # literals in several parts
    wrong = []
    for row in (ROOT / "docs/troubleshooting.md").read_text().splitlines():
        if row.startswith("| `"):
            for message in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
                parts = [part.strip() for part in message.split("…")]
                wrong += [message for part in parts if len(part) > 5 and part not in source]
    assert wrong == []


def test_make_docs_counts_warnings() -> None:
    """mkdocs' --quiet raises the level of its log, and then --strict counts no warning at all."""
    (line,) = re.findall(r"^RUN_site := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--strict" in line and "--quiet" not in line and " -q" not in line


TUTORIAL = "docs/tutorial/first-report.md"
GPU_PAGE = "docs/tutorial/one-gpu-machine.md"
ON_CPU = """
import torch
torch.cuda.set_device = lambda device: print(f"takes GPU {device}", flush=True)
torch.nn.Module.cuda = torch.Tensor.cuda = lambda self: self
"""
"""Put before a script for GPUs: its tensors stay on the CPU."""


def run_tutorial(words: list[str], place: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `ringleader` with a command's words, with this Python."""
    words = [word if word != "python" else sys.executable for word in words]
    return finished(
        [sys.executable, "-m", "ringleader", *words],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
        timeout=280,
    )


def tutorial_script() -> str:
    """Return the script of the first page."""
    ((_, script),) = blocks(TUTORIAL, "python")
    return script


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_tutorial_works(tmp_path: Path) -> None:
    """Every command of the first page but those that install, in its order, with its script."""
    (tmp_path / "train.py").write_text(tutorial_script())
    shown = commands(TUTORIAL)
    assert len(shown) == 5
    for command in shown:
        words = command[1:]
        if words[0] in ("run", "scale"):
            words.insert(1, "--oversubscribe")
        done = run_tutorial(words, tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if words[0] == "run" and "--dry-run" not in words:
            assert re.search(r"^\[1\] rank 1 of 2: loss \d", done.stdout, re.MULTILINE), done.stdout
    made = (tmp_path / "page.html").read_text().lower()
    assert "<html" in made and "speed-up" in made
    assert "<html" in (tmp_path / "runs/scaling/report.html").read_text().lower()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tutorial_for_8_gpus_works_without_gpus(tmp_path: Path) -> None:
    """Its script and commands; a variable names 8 GPUs, and the CPU computes; short messages."""
    ((_, lines),) = blocks(GPU_PAGE, "python")
    change = "inputs = inputs.cuda()"
    assert f"add `{change}` before the line that computes `labels`" in text_of(GPU_PAGE)
    script = tutorial_script().replace("optimizer = ", f"{lines}optimizer = ", 1)
    script = script.replace("    labels = ", f"    {change}\n    labels = ", 1)
    assert lines in script and change in script
    (tmp_path / "train.py").write_text(ON_CPU + script)
    shown = commands(GPU_PAGE)
    assert [command[1] for command in shown] == ["doctor", "run", "scale", "bench"]
    less = {"scale": ["--repeats", "1", "--oversubscribe"], "bench": ["allreduce", "-e", "64K"]}
    on_gpus = ("--memory", "cuda", "--against", "nccl")
    printed = {}
    for _, name, *rest in shown:
        words = [name, *less.get(name, [])]
        words += [word for word in rest if word not in (*words, *on_gpus)]
        done = run_tutorial(words, tmp_path, CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7")
        assert done.returncode in ((0, 3) if name == "doctor" else (0,)), f"{words}\n{done.stderr}"
        printed[name] = done.stdout
    found = re.findall(r"^\[(\d)\] takes GPU (\d)$", printed["run"], re.MULTILINE)
    assert sorted(found) == [(str(rank), str(rank)) for rank in range(8)], printed["run"]
    assert re.search(r"^1×8 +8 ", printed["scale"], re.MULTILINE), printed["scale"]
    assert "busbw" in printed["bench"], printed["bench"]


def test_every_page_of_the_tutorial_installs_what_exists() -> None:
    """Commands that install aren't run here: `tests/docs/test_readme.py` runs the same ones."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in sorted((ROOT / "docs/tutorial").glob("*.md")):
        for line in re.findall(r"^\$ (?!ringleader )(.*)$", page.read_text(), re.MULTILINE):
            named = re.fullmatch(r"pip install '\.\[([\w,]+)\]'", line)
            known = (
                "git clone https://github.com/ringleader/ringleader ",
                "python3 -m venv .venv",
                "pip install torch --index-url ",
            )
            assert line.startswith(known) or (named and set(named[1].split(",")) <= set(extras)), line
