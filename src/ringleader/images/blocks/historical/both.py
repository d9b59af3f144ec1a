"""In which stages of a historical image something is needed. Pure."""

from __future__ import annotations

from ringleader.images.halves import Half, Halves, Setting

COMPILED = "tensorflow-source"
"""The one block that compiles in a stage of its own; everything else is made in the image itself."""


def compiles(setting: Setting) -> bool:
    """Tell whether the image has a stage that only compiles."""
    return COMPILED in setting.blocks


def both(setting: Setting, half: Half, build: Half | None = None) -> Halves:
    """Return a half for the image, and ``build`` (or the same) for a stage that compiles, if there is one."""
    return Halves(build=(build or half) if compiles(setting) else Half(), runtime=half)
