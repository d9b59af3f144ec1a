"""The block ``files``: a user's own files, variables and directory."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.account import account_of
from ringleader.images.instructions import Copy, Env, Run, Step, Workdir, words
from ringleader.images.recipe_fields import CONTEXT_PATH, LINE, PATH, pairs, text
from ringleader.images.stage_steps import Half, Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Files:
    """Arguments of the block."""

    copy: tuple[tuple[str, str], ...] = pairs(PATH, CONTEXT_PATH)
    """Path in the build context → absolute path in the image; a directory's ends with /."""
    env: tuple[tuple[str, str], ...] = pairs(LINE)
    """Variables of containers."""
    workdir: str = text(PATH)
    """Made where it is missing, for the account of the containers."""


def halves(block: Files, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    owner = account_of(setting).owner
    steps: list[Step] = []
    last: list[Step] = []
    if block.workdir:
        uid = owner.partition(":")[0] or "0"
        steps.append(Run(commands=(words("install", "-d", "-o", uid, "-g", uid, block.workdir),)))
        last.append(Workdir(path=block.workdir))
    steps += [Copy(sources=(source,), target=target, owner=owner) for source, target in block.copy]
    if block.env:
        last.insert(0, Env(variables=block.env))
    return Halves(runtime=Half(steps=tuple(steps), last=tuple(last)))
