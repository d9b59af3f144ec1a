"""Files that a job's launcher on a cluster sends back in its log, and how they are taken out of it again.

Reading a log needs no right that following a job does not need anyway. The launcher's `ringleader` packs a
directory at its end and writes it as marked lines (``returning``), which the client hides (`ReturnedFiles`).
`kubernetes.jobs.mpijob_builder` asks for it.
"""

from __future__ import annotations

import base64
import io
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

MARK = b"ringleader-file "
"""Begins each line: then the line's number, how many there are, and base64 of a tar file."""
CHARACTERS = 3000
"""Of base64 in a line: a pipe takes 4 KiB at once, and container runtimes split lines at 16 KiB."""
MOST_SENT = 4 << 20
"""Characters in all: kubelets keep 10 MiB of a log."""
MOST_READ = 256 << 20
"""Bytes that all files may have together once they are unpacked."""
_LINE = re.compile(rb"ringleader-file (\d{1,6})/(\d{1,6}) ([A-Za-z0-9+/=]+)\r?\n")


def returning(command: Callable[[], object], directory: str) -> object:
    """Do a command and return what it returns; then send the directory that it wrote to.

    Where that cannot be, the command's result still counts.
    """
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"ringleader: nothing will be sent back: {error}", file=sys.stderr)
    try:
        return command()
    finally:
        try:
            if Path(directory).is_dir():
                send(directory)
        except OSError as error:
            print(f"ringleader: what was written is not sent back: {error}", file=sys.stderr)


def send(directory: str) -> None:
    """Write what is in a directory to standard error, as marked lines."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(directory, arcname=".")
    data = base64.b64encode(packed.getvalue()).decode()
    if len(data) > MOST_SENT:
        size, most = (count * 3 / 4 / (1 << 20) for count in (len(data), MOST_SENT))
        what = f"what was written has {size:.1f} MiB, packed; a log takes {most:g}"
        print(f"ringleader: {what}: write it to a volume (--mount)", file=sys.stderr)
        return
    parts = [data[start : start + CHARACTERS] for start in range(0, len(data), CHARACTERS)]
    for number, part in enumerate(parts, 1):
        sys.stderr.write(f"{MARK.decode()}{number}/{len(parts)} {part}\n")
    sys.stderr.flush()


class ReturnedFiles:
    """Takes marked lines out of a log that comes in pieces, and keeps what they carry."""

    def __init__(self) -> None:
        """Begin at a line's beginning."""
        self._held, self._is_shown = b"", False
        self._parts: dict[int, bytes] = {}
        self._count = 0

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown of the next piece: all but marked lines."""
        shown = b""
        for piece in re.findall(rb"[^\n]*\n|[^\n]+", data):
            if self._is_shown:
                shown += piece
            else:
                self._held += piece
                if self._held.startswith(MARK) and len(self._held) < 2 * CHARACTERS:
                    if self._held.endswith(b"\n"):
                        shown += self._taken()
                    continue
                if MARK.startswith(self._held):
                    continue
                shown, self._held, self._is_shown = shown + self._held, b"", True
            if piece.endswith(b"\n"):
                self._is_shown = False
        return shown

    def rest(self) -> bytes:
        """Return what was held when the log ended: it was no line of ours."""
        held, self._held = self._held, b""
        return held

    @property
    def has_begun(self) -> bool:
        """Whether anything arrived."""
        return bool(self._count)

    def _taken(self) -> bytes:
        """Keep the line that is held, or return it where it is none of ours."""
        line, self._held = self._held, b""
        found = _LINE.fullmatch(line)
        if found is None:
            return line
        number, self._count = int(found[1]), int(found[2])
        if number == 1:  # of another attempt
            self._parts.clear()
        self._parts[number] = found[3]
        return b""

    def files(self) -> dict[str, bytes]:
        """Return path → content. Raises ValueError where something is missing, or not what we send."""
        if not self._count or self._parts.keys() != set(range(1, self._count + 1)):
            raise ValueError(f"{len(self._parts)} of {self._count or '?'} parts arrived")
        try:
            packed = base64.b64decode(
                b"".join(self._parts[one] for one in sorted(self._parts)), validate=True
            )
            with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
                return dict(_members(tar))
        except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError) as error:
            raise ValueError(f"it cannot be unpacked: {error}") from None


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield regular files with paths that stay below where they are put: whoever wrote it may be anybody."""
    left = MOST_READ
    for one in tar:
        path = PurePosixPath(one.name)
        if not one.isreg() or path.is_absolute() or ".." in path.parts:
            continue
        left -= one.size
        if left < 0:
            raise ValueError(f"more than {MOST_READ >> 20} MiB")
        content = tar.extractfile(one)
        yield str(path), b"" if content is None else content.read()


def write_below(files: Mapping[str, bytes], folder: str, directory: Path) -> list[str]:
    """Write the files of a folder into a directory; return their names. ValueError where one exists."""
    names = [name for name in files if name.startswith(f"{folder}/")]
    for name in names:
        if (path := directory / name.removeprefix(f"{folder}/")).exists():
            raise ValueError(f"{path} exists")
    for name in names:
        path = directory / name.removeprefix(f"{folder}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return names
