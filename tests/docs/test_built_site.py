"""The site as `make docs` builds it: its links, what it is found by, and how it looks in a browser."""

import os
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.commands import finished
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.timeout(400)]

GOALS = tomllib.loads((Path(__file__).parent / "goals.toml").read_text(encoding="utf-8"))["goal"]
FRONT = "index.html"


class Page(HTMLParser):
    """What of a page can be followed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.text = file, ""
        self.ids: set[str] = set()
        self.links: list[str] = []
        """Of the whole page, pictures and scripts too."""
        self.loaded: list[str] = []
        """What a browser fetches to show the page."""
        self.shown: list[str] = []
        """Of the text and the tabs above it, where a reader looks first."""
        self._depth = 0
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link and what can be linked to."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.links += [values[name] for name in ("href", "src") if name in values and tag != "form"]
        self.loaded += [values["src"]] if "src" in values else []
        self.loaded += [values["href"]] if values.get("rel") in ("stylesheet", "icon", "preload") else []
        inside = tag == "article" or "md-tabs" in values.get("class", "").split()
        self._depth += inside or (self._depth > 0 and tag in ("article", "nav"))
        if self._depth and tag == "a":
            self.shown.append(values.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        """Note the end of the text or the tabs."""
        self._depth -= self._depth > 0 and tag in ("article", "nav")

    def handle_data(self, data: str) -> None:
        """Note the text."""
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it: strict, so that nothing is warned of."""
    made = tmp_path_factory.mktemp("site")
    done = finished(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return made


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """Return every page by its path."""
    found = {str(file.relative_to(site)): Page(file) for file in sorted(site.rglob("*.html"))}
    return {path: page for path, page in found.items() if path != "404.html"}


def target(page: Page, link: str) -> tuple[Path, str] | None:
    """Return the file and the anchor that a link leads to, None if it leads out of the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def test_every_link_leads_to_a_page_and_a_heading_of_it(site: Path, pages: dict[str, Page]) -> None:
    wrong = set()
    for path, page in pages.items():
        for link in page.links:
            file, anchor = target(page, link) or (page.file, "")
            there = pages.get(str(file.relative_to(site))) if file.is_relative_to(site) else None
            if not file.exists() or (anchor and there is not None and anchor not in there.ids):
                wrong.add(f"{path}: {link}")
    assert not wrong, "\n".join(sorted(wrong))


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Page]) -> None:
    """One script from a server that doesn't answer, and a page has no search box until it is given up."""
    assert {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc} == set()


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal["want"])
def test_a_goal_is_reached_in_three_clicks_or_one_search(
    site: Path, pages: dict[str, Page], goal: dict[str, Any]
) -> None:
    clicks = goal["click"]
    assert len(clicks) <= (1 if "search" in goal else 3)
    here = FRONT
    for there in clicks if "search" not in goal else []:
        ends = [target(pages[here], link) for link in pages[here].shown]
        assert any(end and end[0] == site / there for end in ends), f"{here} has no link to {there}"
        here = there
    assert goal["says"] in pages[clicks[-1]].text
