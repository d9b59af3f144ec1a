"""The bundled recipes: what ``ringleader image list`` shows."""

from __future__ import annotations

from importlib.resources import files

SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """Return the names of all recipes, sorted."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def text(name: str) -> str:
    """Return a recipe's text. Raises KeyError for a name that is not among ``names()``."""
    if name not in names():
        raise KeyError(name)
    return files(__package__).joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8")
