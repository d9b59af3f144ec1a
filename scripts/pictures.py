"""The pictures of the README: plots of a stored run as SVG files, and its report as a browser shows it.

    python scripts/pictures.py        docs/images/*.svg, and scaling-report.png where there is a Chromium

`docs/images/scaling.json` is what `ringleader scale` stored as `run.json`, without its working directory;
a new run replaces it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ringleader.bench import run_file
from ringleader.report.drawing import Plot
from ringleader.report.kinds import plots
from ringleader.report.page import render
from ringleader.scaling import Run

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
STORED = IMAGES / "scaling.json"
FILES = {"Speed-up": "speed-up.svg", "Efficiency": "efficiency.svg"}
"""Title of a plot → the file that it becomes."""
WINDOW = (1280, 1240)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def stored_run() -> Run:
    """Return the run that the pictures show."""
    return run_file.as_scaling(run_file.read_any(STORED), str(STORED))


def style(page: str) -> str:
    """Return the page's colors, light and dark, as a style for a picture that stands alone."""
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", page, re.DOTALL)
    return f":root {{{light}}} @media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}"


def standalone(plot: Plot, colors: str) -> str:
    """Return a plot of a page as an SVG document: with a name space, a size, a margin and its own colors."""
    drawing = plot.svg()
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert box is not None
    width, height = float(box[1]), float(box[2])
    view = f'viewBox="-14 -34 {width + 28:g} {height + 48:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 28:g}" height="{height + 48:g}" {view} '
    text = drawing.replace(f"<svg {box[0]} ", head, 1)
    title = f'<text x="0" y="-12" style="font: 650 15px var(--sans); fill: var(--ink)">{plot.title}</text>'
    size = f'width="{width + 28:g}" height="{height + 48:g}"'
    back = f'<rect x="-14" y="-34" {size} style="fill: var(--surface)"/>'
    return text.replace("</desc>", f"</desc><style>{colors}</style>{back}{title}", 1) + "\n"


def drawings(run: Run) -> dict[str, str]:
    """Return file name → SVG document."""
    colors = style(render(run))
    return {FILES[plot.title]: standalone(plot, colors) for plot in plots(run) if plot.title in FILES}


def screenshot(page: str, target: Path) -> None:
    """Write what a browser shows of a page, light, in a window of `WINDOW`."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"{target}: not made: none of {', '.join(BROWSERS)} is here\n    → apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "page.html")
        file.write_text(page, encoding="utf-8")
        words = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
        size = f"--window-size={WINDOW[0]},{WINDOW[1]}"
        argv = [browser, *words, f"--user-data-dir={scratch}/profile", size, f"--screenshot={target}"]
        subprocess.run([*argv, file.as_uri()], check=True, capture_output=True, timeout=120)


def main() -> None:
    """Make all pictures."""
    run = stored_run()
    for name, text in drawings(run).items():
        (IMAGES / name).write_text(text, encoding="utf-8")
    screenshot(render(run), IMAGES / "scaling-report.png")


if __name__ == "__main__":
    main()
