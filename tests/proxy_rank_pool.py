"""A pool whose ranks are those of an elastic job: MPI proxies beside them do MPI for them."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from tests.proxy_world import ProxyWorld
from tests.rank_pool import RankPool


class ProxyRankPool(RankPool):
    """This many ranks of one host, and as many proxies."""

    def __init__(self, size: int, place: Path, environ: Mapping[str, str]) -> None:
        super().__init__(size, place, environ)
        self._world: ProxyWorld | None = None
        self._ranks: list[subprocess.Popen[bytes]] = []

    def _started(self, command: list[str], words: BinaryIO) -> subprocess.Popen[bytes]:
        place = Path(tempfile.mkdtemp(dir=self._place))
        place.chmod(0o700)
        self._world = world = ProxyWorld(place, self._environ, slots=[self.size])
        world.use_world(world.start_world())
        # Of more than two the first comes last, as after a failure: its proxies count in another order.
        last = [0] if self.size > 2 else []
        slots = [slot for slot in range(self.size) if slot not in last] + last
        world.members = [(100 + slot, slot) for slot in slots]
        self._ranks = [
            subprocess.Popen(
                command,
                env=world.environment(incarnation, slot),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
            )
            for incarnation, slot in world.members
        ]
        return _Together(self._ranks)

    def close(self) -> None:
        super().close()
        self._end_world()

    def kill(self) -> None:
        super().kill()
        self._end_world()

    def _end_world(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()


class _Together(subprocess.Popen[bytes]):
    """Several processes as one: it ends when all have, with a code that is not 0 if there is one."""

    def __init__(self, ranks: list[subprocess.Popen[bytes]]) -> None:
        self._all = ranks

    def wait(self, timeout: float | None = None) -> int:
        codes = [one.wait(timeout) for one in self._all]
        return next((code for code in codes if code), 0)

    def kill(self) -> None:
        for one in self._all:
            one.kill()

    def __del__(self) -> None:
        """Leave the ends of the processes to their own."""
