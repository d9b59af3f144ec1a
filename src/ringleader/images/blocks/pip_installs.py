"""Where the packages of a block come from, and in which half pip installs them. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.images.stage_steps import Half, Halves, PipInstall, Setting


def install(
    setting: Setting,
    *requirements: str,
    order: int,
    index: str = "",
    wheels: str = "",
) -> tuple[PipInstall, ...]:
    """Return the install of some packages; nothing where a lock file already names every package.

    ``wheels`` is the block's own directory of wheels. Without one, that of the block ``packages`` is the only
    place to look, so that an image can be made without any index.
    """
    packages = setting.blocks.get("packages")
    if packages is not None and packages.lock:
        return ()
    links = wheels or (packages.wheels if packages is not None else "")
    return (
        PipInstall(requirements=requirements, index="" if links else index, find_links=links, order=order),
    )


def halves_of(setting: Setting, pip: tuple[PipInstall, ...], *, runtime: Half | None = None) -> Halves:
    """Return halves with these installs: in the build half, in historical images in the image itself."""
    runtime = runtime or Half()
    if not setting.historical:
        return Halves(build=Half(pip=pip), runtime=runtime)
    return Halves(runtime=replace(runtime, pip=pip))
