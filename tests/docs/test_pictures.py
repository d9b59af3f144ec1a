"""The pictures of the README are those of the stored run beside them, and stand alone."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from ringleader.report.text import runs_text

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
