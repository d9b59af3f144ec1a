"""The block ``files``: a user's own files, variables and directory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringleader.images.blocks.account import account_of
from ringleader.images.blocks.block import Block
from ringleader.images.instructions import Copy, Env, Run, Step, Workdir, shell
from ringleader.images.recipe_fields import CONTEXT_PATH, LINE, PATH, pairs, text
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps


@dataclass(frozen=True, kw_only=True)
class Files(Block):
    """Arguments of the block."""

    table = "files"

    copy: tuple[tuple[str, str], ...] = pairs(PATH, CONTEXT_PATH)
    """Path in the build context → absolute path in the image; a directory's ends with /."""
    env: tuple[tuple[str, str], ...] = pairs(LINE)
    """Variables of containers."""
    workdir: str = text(PATH)
    """Made where it is missing, for the account of the containers."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the directory, the copies and the variables."""
        owner = account_of(image).owner
        steps: list[Step] = []
        last: list[Step] = []
        if self.env:
            last.append(Env(variables=self.env))
        if self.workdir:
            uid = owner.partition(":")[0] or "0"
            steps.append(Run(commands=(shell("install", "-d", "-o", uid, "-g", uid, self.workdir),)))
            last.append(Workdir(path=self.workdir))
        steps += [Copy(sources=(source,), target=target, owner=owner) for source, target in self.copy]
        return BlockSteps(runtime=StageSteps(steps=tuple(steps), last=tuple(last)))

    def choose(self, selection: Selection) -> Selection:
        """Choose the variables and the files, which may be secrets."""
        copied = tuple(source for source, _ in self.copy)
        return replace(selection, variables=self.env, copied=copied)
