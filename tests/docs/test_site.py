"""The site: every public name is there, what pages quote is printed by the program, the tutorial works."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks, commands

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


def test_the_reference_names_what_exists() -> None:
    """Each directive's file defines that name; mkdocs would find it out later, and more slowly."""
    wrong = []
    for page in API.glob("*.md"):
        for place in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            module, name = place.rsplit(".", 1)
            path = ROOT / "src" / module.replace(".", "/")
            source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
            if not re.search(rf"^(def|class) {name}\b", source.read_text(), re.MULTILINE):
                wrong.append(place)
    assert wrong == []


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


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_tutorial_works(tmp_path: Path) -> None:
    """Every command of the first page but those that install, in its order, with its script."""
    page = "docs/tutorial/first-report.md"
    ((_, script),) = blocks(page, "python")
    (tmp_path / "train.py").write_text(script)
    shown = commands(page)
    assert len(shown) == 5
    for command in shown:
        words = [word if word != "python" else sys.executable for word in command[1:]]
        if words[0] in ("run", "scale"):
            words.insert(1, "--oversubscribe")
        done = subprocess.run(
            [sys.executable, "-m", "ringleader", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        if words[0] == "run" and "--dry-run" not in words:
            assert re.search(r"^\[1\] rank 1 of 2: loss \d", done.stdout, re.MULTILINE), done.stdout
    made = (tmp_path / "page.html").read_text().lower()
    assert "<html" in made and "speed-up" in made
    assert "<html" in (tmp_path / "runs/scaling/report.html").read_text().lower()
