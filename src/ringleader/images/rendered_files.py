"""The files of a rendered image: Dockerfile, definition, and what is sent to a builder. Pure."""

from __future__ import annotations

from ringleader.images.instructions import Image

MARK = "# Made by `ringleader image render`"
"""How each of our texts begins; only such files are written over."""
DOCKERFILE, DEFINITION, IGNORE = "Dockerfile", "image.def", ".dockerignore"


def heading(image: Image) -> list[str]:
    """Return the comment that a rendered file begins with."""
    made = f"{MARK} from the recipe {image.name}: change that, not this file."
    return [made, f"# {image.about}"] if image.about else [made]


def ignore_text(image: Image) -> str:
    """Return a .dockerignore that keeps everything away from the builder but what the image copies.

    A directory lets in what is below it; its parents must be let in too, and nothing beside it.
    """
    lines = [f"{MARK}: only what the image copies is sent to the builder.", "*"]
    for path in image.context:
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            parent = "/".join(parts[:end])
            lines += [f"!{parent}", f"{parent}/*"]
        lines.append(f"!{'/'.join(parts)}")
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))
