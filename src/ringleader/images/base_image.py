"""Which operating system a recipe stands on, and what cannot be stood on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ringleader.errors import Fault
from ringleader.images.recipe import Recipe
from ringleader.images.tables.bases import Base, bases, find_base, parted
from ringleader.images.toml_lines import Lines

WITHOUT_APT = re.compile(
    r"(^|/)(alpine|almalinux|amazonlinux|archlinux|busybox|centos|clearlinux|distroless|fedora|mageia|oraclelinux"
    r"|photon|rockylinux|scratch|ubi[0-9]*(-[a-z]+)?|opensuse|suse|sles?|wolfi-base|nixos)(/|$)|^scratch$"
)
TAG_WITHOUT_APT = re.compile(
    r"(^|-)(alpine|ubi|rockylinux|rocky|centos|amzn|el|fc|opensuse|leap)[0-9.]*(-|$)"
)
APT_HINT = "images stand on Debian or Ubuntu: ubuntu:24.04, debian:12, or such a flavour of the same image"
LIKE_HINT = 'say which of the known ones it resembles: base-like = "debian:12". Known: '


def base_of(recipe: Recipe) -> Base:
    """Return the operating system below a recipe that was read."""
    found = find_base(recipe.base_like or recipe.base)
    assert found is not None
    return found


def base_faults(head: Mapping[str, Any], lines: Lines) -> Iterator[Fault]:
    """Yield what is wrong with the bases among a recipe's own keys, as far as they were understood."""
    like = head.get("base_like", "")
    known = ", ".join(base.name for base in bases() if base.has_apt)
    if like and (find_base(like) is None or not _has_apt(like)):
        what = f"{like!r} is not a known base with apt"
        yield Fault(where=lines.where(("base-like",)), what=what, hint=f"Known: {known}")
    own = find_base(head.get("base", ""))
    if like and own is not None and find_base(like) not in (None, own):
        what = f"{head['base']} is {own.name}, not {like}"
        yield Fault(where=lines.where(("base-like",)), what=what, hint="leave base-like out")
    for name in ("base", "build_base"):
        reference = head.get(name, "")
        if not reference:
            continue
        where = lines.where((name.replace("_", "-"),))
        if not _has_apt(reference):
            yield Fault(where=where, what=f"{reference} has no apt", hint=APT_HINT)
        elif not like and name == "base" and find_base(reference) is None:
            yield Fault(where=where, what=f"{reference} does not tell what it is", hint=LIKE_HINT + known)


def _has_apt(reference: str) -> bool:
    """Tell whether an image may have apt, by its name and tag."""
    found = find_base(reference)
    if found is not None:
        return found.has_apt
    name, tag = parted(reference)
    return WITHOUT_APT.search(name) is None and TAG_WITHOUT_APT.search(tag) is None
