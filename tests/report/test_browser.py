"""The page in a real browser."""

import html
import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from tests.browser import PHONE, browse
from tests.report.conftest import pairs_of, samples
from tests.report.recorded import trained

from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.number_format import gigabytes, percent, seconds, thousands, times
from ringleader.report.kinds import document
from ringleader.report.page import render
from ringleader.scaling import Run

pytestmark = [pytest.mark.browser, pytest.mark.long]

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
  // A legend wider than its figure, and a table that only a scroll bar shows whole.
  const right = e => e.getBoundingClientRect().right;
  const cut = [...document.querySelectorAll("figure")].flatMap(f => [...f.querySelectorAll("text")]
    .filter(t => right(t) > right(f) - 4).map(t => t.textContent));
  const scrolled = [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1);
  const said = of => [...document.querySelectorAll(of)].map(e => e.textContent);
  const found = JSON.stringify({wide: wide.length, over: texts, cut, scrolled: scrolled.length,
    cells: said("td"), tiles: said(".tiles dd"),
    dark: getComputedStyle(document.body).backgroundColor === "rgb(15, 18, 22)"});
  document.title = found;
  parent.postMessage(found, "*");
});
</script>
"""
"""Put into a copy of the page: it finds what is too wide, cut off, scrolled or overlapping."""


def probe(tmp_path: Path, page: str, *, width: int, dark: bool) -> dict[str, object]:
    """Open a page in the browser; return what the script in it found."""
    probed = page.replace("</body>", PROBE + "</body>")
    (tmp_path / "probed.html").write_text(probed, encoding="utf-8")
    file = tmp_path / "probed.html"
    if width < 500:
        file = tmp_path / "phone.html"
        file.write_text(PHONE.format(page="probed.html", width=375), encoding="utf-8")
    scheme = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    words = (*scheme, f"--window-size={max(width, 500)},1600", "--virtual-time-budget=4000", "--dump-dom")
    found = re.search(r"<title>(\{.*?\})</title>", browse(tmp_path, *words, file.as_uri()))
    assert found
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize(("width", "dark"), [(375, True), (1280, False)])
def test_the_figures_of_the_page_are_those_of_the_json(
    tmp_path: Path,
    run: Run,
    pairs: PointToPointRun,
    collective: CollectiveRun,
    training: TrainingRun,
    width: int,
    dark: bool,
) -> None:
    found = probe(tmp_path, render(run, pairs, collective, training), width=width, dark=dark)
    assert (found["wide"], found["over"], found["dark"]) == (0, [], dark)
    cells, tiles = ({text.replace("\u00a0", " ") for text in found[name]} for name in ("cells", "tiles"))  # type: ignore[attr-defined]
    scales, links, reduced, trained = (document(one)["results"] for one in (run, pairs, collective, training))
    assert {times(scales[-1]["speedup"]["median"]), percent(scales[-1]["efficiency"]["median"])} <= tiles
    assert thousands(trained[0]["rate"]["median"]) in tiles
    outs = [one["out_of_place"] for one in reduced]
    assert {
        *(thousands(one["rate"]["median"]) for one in (*scales, *trained)),
        *(seconds(one["step_seconds"]) for one in trained),
        *(text for one in links for text in (seconds(one["latency"]), gigabytes(one["rate"]))),
        *(text for one in outs for text in (seconds(one["seconds"]), gigabytes(one["busbw"]))),
    } <= cells


SORTS = """
<script>
addEventListener("load", () => {
  const table = [...document.querySelectorAll("table")].find(one => one.caption.textContent === "Ranks");
  const shown = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent).join("");
  const head = [...table.tHead.rows[0].cells].find(one => one.textContent === "waiting");
  const found = [shown()], ways = [];
  for (let times = 0; times < 2; times++) {
    head.querySelector("button").click();
    found.push(shown());
    ways.push(head.getAttribute("aria-sort"));
  }
  const select = table.parentElement.querySelector("select");
  select.value = "0 -1";
  select.dispatchEvent(new Event("change"));
  document.title = [...found, shown(), ...ways].join(" ");
});
</script>
"""


def noisy(run: Run) -> Run:
    """All columns of the table and all series of the plots, and intervals that take room."""
    rates = (1631.0, 1735.0, 1370.0)
    points = [
        replace(
            point,
            samples=samples(*(r * n for r in rates), ranks=n, step=0.0221, exchange=188e-6, waiting=958e-6),
            uncoupled=samples(*(r * n for r in rates[::-1]), ranks=n) if n > 1 else (),
            in_step=samples(*(r * n for r in rates[1:] + rates[:1]), ranks=n) if n > 1 else (),
        )
        for n, point in enumerate(run.points[:2], 1)
    ]
    return replace(run, points=tuple(points), in_step="largest")


def test_nothing_is_too_wide_cut_off_scrolled_or_over_another(
    tmp_path: Path, run: Run, pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun
) -> None:
    job = render(trained(tmp_path / "run", slow=1.6))
    trend = [trained(tmp_path / f"run-{day}", step=step) for day, step in enumerate((0.25, 0.3, 0.4))]
    maps = [render(pairs_of(count, slow=(0, 1))) for count in (8, 64)]
    for page, widths, whole in (
        (render(noisy(run)), (1200,), True),
        (render(run, pairs, collective, training), (1200,), True),
        (maps[0], (1280,), False),
        (maps[1], (1280,), False),
        (render(run), (500, 700, 1280), False),
        (job, (375, 1280), True),
        (render(*trend), (375, 1280), True),
    ):
        for width in widths:
            found = probe(tmp_path, page, width=width, dark=False)
            assert (found["wide"], found["over"]) == (0, [])
            assert not whole or (found["cut"], found["scrolled"]) == ([], 0)
    (tmp_path / "sorted.html").write_text(job.replace("</body>", SORTS + "</body>"), encoding="utf-8")
    words = ("--virtual-time-budget=4000", "--dump-dom", (tmp_path / "sorted.html").as_uri())
    title = re.search(r"<title>(.*?)</title>", browse(tmp_path, *words))
    assert title and title[1] == "01 10 01 10 ascending descending"


def test_page_is_drawn(tmp_path: Path, run: Run) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    page.write_text(render(run), encoding="utf-8")
    browse(tmp_path, "--window-size=700,1600", f"--screenshot={picture}", page.as_uri())
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">II", data[16:24]) == (700, 1600)
    assert len(data) > 30_000, "an empty page makes a small picture"
