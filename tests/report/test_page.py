"""The page: well-formed, whole in itself, readable without color; and what happens without its packages."""

import re
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from tests import fabric_hosts

from ringleader.bench import run_file
from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import Wire
from ringleader.metrics import Spread
from ringleader.report.compare import compare
from ringleader.report.page import render
from ringleader.report.scaling import against_tile, transport_lines
from ringleader.report.text import runs_text
from ringleader.scaling import Run

VOID = {"meta", "link", "br", "hr", "img", "input", "use", "path", "rect", "line", "circle"}


class Reader(HTMLParser):
    """Gathers elements and attributes, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._take(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._take(tag, attrs)

    def _take(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids[value or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def references(reader: Reader) -> list[str]:
    """All targets of ``href``, ``url(#…)`` and aria's lists, inside the page."""
    found = []
    for _, name, value in reader.attributes:
        if name.endswith("href"):
            assert value.startswith("#")
            found.append(value[1:])
        elif name == "aria-labelledby":
            found += value.split()
        found += re.findall(r"url\(#([^)]+)\)", value)
    return found


@pytest.mark.parametrize("kind", ["scale", "comparison"])
def test_page_needs_nothing_but_itself_and_colors_follow_it(run: Run, kind: str) -> None:
    other = replace(run, name="other")
    page = render(run) if kind == "scale" else render(run, other, comparison=compare(run, other))
    reader = read(page)
    assert not re.search(r"https?:|//[a-z]|@import|src=|javascript:", page, re.IGNORECASE)
    assert not {"link", "iframe", "img", "object", "embed", "base"} & set(reader.tags)
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    assert [name for name, count in reader.ids.items() if count > 1] == []
    assert set(references(reader)) <= set(reader.ids)
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        colors = set(re.findall(r"#[0-9a-f]{6}\b", svg, re.IGNORECASE))
        assert colors <= {"#ffffff", "#000000"} and "var(--ink)" in svg
    assert "prefers-color-scheme: dark" in page


SAID = """\
4×2, 8 ranks: 5.92×, uncoupled 6.16×
4×2: 74% of the ideal (95% interval 73% to 75%), 96% of independent ranks
4×2: 135 ms, compute 129 ms, exchange 4.00 ms, waiting 2.00 ms
mnist-lab
8 ranks do 5.92× the work of one
What limits it
To measure this again
python examples/mnist.py --epochs 2
Example CPU 2.0 GHz
openmpi5 5.0.11
shared window, TCP
592.0  596.0  588.0
"""


def test_everything_is_said_and_plots_speak_for_those_who_do_not_see_them(run: Run) -> None:
    reader = read(render(run))
    assert reader.tags["svg"] == 3 and ("svg", "role", "img") in reader.attributes
    text = "".join(reader.text).replace("\u00a0", " ")
    assert [words for words in SAID.splitlines() if words not in text] == []


WITHOUT = """
import sys
sys.modules[{module!r}] = None
from ringleader.cli.main import main
main(["report", {path!r}, "--format", {form!r}])
"""


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_without_the_extra_the_page_says_so_and_the_rest_works(tmp_path: Path, run: Run, module: str) -> None:
    run_file.write(run, tmp_path)
    for form in ("html", "table", "markdown"):
        code = WITHOUT.format(module=module, path=str(tmp_path), form=form)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        if form == "html":
            assert (done.returncode, done.stdout) == (3, "") and "Traceback" not in done.stderr
            assert "pip install 'ringleader[report]'" in done.stderr
        else:
            assert (done.returncode, done.stderr) == (0, "") and "4×2" in done.stdout


def test_no_single_number_stands_where_the_repetitions_show_none():
    why = "of what 8 independent ranks do: the repetitions vary too much for one number"
    assert against_tile(8, Spread(median=0.86, low=0.71, high=1.04, count=3)) == ("71–104%", why)
    assert against_tile(8, Spread.of_ratios([0.86, 0.85, 0.87]))[0] == "86%"
    assert against_tile(8, Spread(median=0.86, low=0.86, high=0.86, count=1))[1].endswith("measured once")


def test_the_wires_are_a_table(run: Run) -> None:
    between = WireShares(exchanged=1 << 30, shares={Wire.ROCE: 0.9, Wire.TCP: 0.1})
    hosts = (HostProof(host="h<1>", between=between, warnings=("10% went by TCP",)), HostProof(host="h2"))
    small = (HostProof(host="h1", between=between, warnings=("odd",)),)
    changes = {2: TransportProof(hosts=small), 3: TransportProof(hosts=hosts)}
    points = tuple(replace(one, transport=changes.get(at)) for at, one in enumerate(run.points))
    proved = replace(run, points=points)
    page = render(proved)
    text = " ".join(read(page).text)
    assert "h<1>" in text and "RDMA over Ethernet (RoCE) 90%, TCP 10% of 1 GiB" in text
    assert "10% went by TCP" in text and "h2" not in re.findall(r'data-name="host">([^<]*)<', page)
    assert 'id="transport"' not in render(run)
    # In a table of text those of the largest size, and warnings of all.
    wires, told = "RDMA over Ethernet (RoCE) carried 90%, TCP 10% of 1 GiB", transport_lines(proved)
    assert told == [f"4×2: h<1> to other hosts: {wires}", "! 4×2: h<1>: 10% went by TCP", "! 2×2: h1: odd"]
    assert all(line in runs_text([proved]) for line in told)


def test_hosts_with_equal_devices_are_drawn_once(run: Run) -> None:
    assert 'id="machines"' not in render(run)
    facts = [fabric_hosts.facts(name) for name in ("hgx_ndr", "hgx_ndr", "hgx_ndr_swapped")]
    facts[1] = replace(facts[1], hostname="<b>")
    hosts = tuple(replace(host, devices=one) for host, one in zip(run.context.hosts[:3], facts, strict=True))
    page = render(replace(run, context=replace(run.context, hosts=hosts)))
    drawing = r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="GPUs and NICs of ([^:]+):'
    (first, names), (_, other) = re.findall(drawing, page)
    assert (names, other) == ("h1, h2", "h3")
    assert "GPU7" in b64decode(first).decode() and "<b>" not in b64decode(first).decode()


def test_a_page_against_a_whole_host(run: Run) -> None:
    page = render(replace(run, baseline="1x2", points=run.points[1:], strong=True, global_batch=512))
    assert "as fast as one host of 2 ranks, on 8 ranks" in page
    assert "against one host of 2 ranks" in page and "times the work of one rank" not in page


BASE = (files("ringleader.report") / "templates" / "base.html").read_text(encoding="utf-8")
TEXT = [
    (front, back)
    for front, backs in (
        ("ink", ("page", "surface", "note")),
        ("muted", ("page", "surface")),
        ("coupled", ("surface",)),
    )
    for back in backs
]
INKS = ("slow", "slow", "middle", "fast", "fast", "fast")
NUMBERS = [(f"heat-ink-{ink}", f"heat-{step}") for step, ink in enumerate(INKS)]
MARKS = [(name, "surface") for name in ("coupled", "uncoupled", "waiting", "violet", "note-edge")]


def palette(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", BASE, re.DOTALL)
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return named | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark)) if scheme == "dark" else {})


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("pairs", "least"), [(TEXT, 4.5), (NUMBERS, 4.5), (MARKS, 3.0)], ids=["text", "numbers", "marks"]
)
def test_contrast(scheme: str, pairs: list[tuple[str, str]], least: float) -> None:
    named = palette(scheme)
    poor = {
        f"{front} on {back}": round(contrast(named[front], named[back]), 2)
        for front, back in pairs
        if contrast(named[front], named[back]) < least
    }
    assert poor == {}
