"""The page in a real browser."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ringleader.report.page import render
from ringleader.scaling import Run

pytestmark = [pytest.mark.browser, pytest.mark.long]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no Chromium here: apt-get install chromium"
    return found


def browse(tmp_path: Path, *words: str) -> str:
    profile = tmp_path / "profile"
    profile.mkdir(exist_ok=True)
    done = subprocess.run(
        [chromium(), *FLAGS, f"--user-data-dir={profile}", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PROBE = """
<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main, section, figure, h1, figcaption, .tiles div, table, td")]
    .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
  const texts = [...document.querySelectorAll("svg")].flatMap(svg => {
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    const hits = [];
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (x > 1 && y > 4) hits.push(a + "/" + b);
    }));
    return hits;
  });
  document.title = JSON.stringify({wide: wide.length, over: texts});
});
</script>
"""
"""Put into a copy of the page: it tells elements wider than the window, and texts of plots that overlap."""


@pytest.mark.parametrize("width", [500, 700, 1280])
def test_page_is_drawn_and_nothing_overlaps(tmp_path: Path, run: Run, width: int) -> None:
    page = tmp_path / "report.html"
    page.write_text(render(run), encoding="utf-8")
    picture = tmp_path / "page.png"
    browse(tmp_path, f"--window-size={width},1600", f"--screenshot={picture}", page.as_uri())
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (width, 1600)
    assert len(data) > 30_000, "an empty page makes a small picture"

    probed = tmp_path / "probed.html"
    probed.write_text(
        page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8"
    )
    document = browse(tmp_path, f"--window-size={width},1600", "--dump-dom", probed.as_uri())
    assert '<title>{"wide":0,"over":[]}</title>' in document
