"""In which stages of a historical image something is needed. Pure."""

from __future__ import annotations

from ringleader.images.stage_steps import Half, Halves, Setting

COMPILED = "tensorflow-source"
"""The one block that compiles in a stage of its own; everything else is made in the image itself."""


def compiles(setting: Setting) -> bool:
    """Tell whether the image has a stage that only compiles."""
    return COMPILED in setting.blocks


def wheels_of(setting: Setting, own: str = "") -> str:
    """Return the directory of wheels for a block: its own, else the one with every wheel of the image."""
    packages = setting.blocks.get("packages")
    return own or (str(packages.wheels) if packages is not None else "")


def both(setting: Setting, half: Half, build: Half | None = None) -> Halves:
    """Return a half for the image, and ``build`` (or the same) for a stage that compiles, if there is one."""
    return Halves(build=(build or half) if compiles(setting) else Half(), runtime=half)
