"""Text and marks stand out from what is behind them, in light and in dark (WCAG 2, 1.4.3 and 1.4.11)."""

import re
from importlib.resources import files

import pytest

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
