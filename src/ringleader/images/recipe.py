"""A recipe: the short text from which an image is made, as a value. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringleader.images.recipe_fields import (
    GPU,
    IMAGE_NAME,
    LABEL,
    NAME,
    REFERENCE,
    REGISTRY,
    TEXT,
    URL,
    VERSION,
    needed,
    pairs,
    text,
    texts,
)


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """Where things are fetched from instead of their usual places: the recipe's table ``[mirrors]``."""

    set: str = text(NAME)
    """A named set of mirrors, such as ``cn``; single ones below win over it."""
    registry: str = text(REGISTRY)
    """Prefix for images of public registries: ``registry.example.org/proxy``; then Docker Hub's images are
    ``registry.example.org/proxy/library/debian:12``, those of others ``…/proxy/nvcr.io/nvidia/…``."""
    apt: str = text(URL)
    """Base URL under which ``debian/``, ``debian-security/`` or ``ubuntu/`` lie."""
    pip: str = text(URL)
    """URL of a simple index."""
    conda: str = text(URL)
    """Base URL of channels."""
    keep: bool = False
    """True: the image's own apt and pip use them too. Otherwise no trace of them is left."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is to be in an image. ``ringleader.images.recipe_parser`` makes it from TOML."""

    name: str = needed(IMAGE_NAME)
    """Name of the image: a-z, 0-9, ``.``, ``-``."""
    about: str = text(TEXT)
    """What it is for, in one sentence."""
    base: str = needed(REFERENCE)
    """The image to begin with: ``ubuntu:24.04``, ``nvidia/cuda:12.8.1-base-ubuntu24.04``; with ``@sha256:…``
    where it is to be pinned."""
    base_like: str = text(REFERENCE)
    """The base of the tables that ``base`` resembles, where its name does not tell: ``debian:12``."""
    build_base: str = text(REFERENCE)
    """The image in which the build stage is done; empty: ``base``."""
    gpus: tuple[str, ...] = texts(GPU)
    """GPUs that the image must run on, as the tables name them: ``h100``. Only checked."""
    driver: str = text(VERSION)
    """The hosts' NVIDIA driver, where it is known: ``550.54``. Only checked."""
    network: str = text(NAME, one_of=("roce", "infiniband", "efa", "erdma", "tcp"))
    """``roce``, ``infiniband``, ``efa``, ``erdma`` or ``tcp``. Only checked."""
    historical: bool = False
    """True: an image as it was made then, without the hardening of today's. `check` prints what it lacks."""
    labels: tuple[tuple[str, str], ...] = pairs(TEXT, LABEL)
    """Labels of your own; they win over those that every image has."""
    mirrors: Mirrors = field(default_factory=Mirrors)
    blocks: Mapping[str, Any] = field(default_factory=dict)
    """Name → arguments of a block (``ringleader.images.blocks``), in the order in which they take effect."""
    where: str = ""
    """File from which it was read; the recipe's own paths are relative to its directory."""
