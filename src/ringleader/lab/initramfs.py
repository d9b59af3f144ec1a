"""Packs what an emulated machine boots from: busybox, its first program, kernel modules in their order.

Run as ``python -m ringleader.lab.initramfs KERNEL BUSYBOX INIT OUTPUT``; ``host_files`` has INIT.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sys
from collections.abc import Mapping
from pathlib import Path

MODULES = (
    *("virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay", "veth"),
    *("crc32_generic", "ib_umad", "ib_uverbs", "rdma_ucm", "rdma_rxe"),
)
"""What the machine's kernel loads; without crc32_generic rxe says "failed to add"."""
DIRECTORIES = ("bin", "dev", "lower", "modules", "new", "proc", "sys", "upper")
DIRECTORY, PROGRAM = 0o040755, 0o100755


def kernels(root: Path) -> list[tuple[Path, Path]]:
    """Return each kernel below ``root`` that has Soft-RoCE as a module: its file, and its modules' directory.

    ``root``: ``/``, or where a kernel's package was unpacked. The newest comes last.
    """
    found = []
    for image in sorted(root.glob("boot/vmlinuz-*"), key=lambda path: _natural(path.name)):
        version = image.name.removeprefix("vmlinuz-")
        places = (root / "lib/modules" / version, root / "usr/lib/modules" / version)
        found += [(image, place) for place in places if any(place.rglob("rdma_rxe.ko*"))][:1]
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def in_order(modules: Mapping[str, bytes], wanted: tuple[str, ...]) -> list[str]:
    """Return the wanted modules by name, each after those that it depends on; built-in ones are left out."""
    order: list[str] = []

    def add(name: str) -> None:
        if name in modules and name not in order:
            found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", modules[name])
            for one in found[1].decode().split(",") if found else ():
                add(one.replace("-", "_"))
            order.append(name)

    for name in wanted:
        add(name)
    return order


class _Modules(dict[str, bytes]):
    """Modules below a directory by name, read when they are wanted."""

    def __init__(self, place: Path) -> None:
        paths = {path.name.partition(".ko")[0].replace("-", "_"): path for path in place.rglob("*.ko*")}
        super().__init__(dict.fromkeys(paths, b""))
        self._paths = paths

    def __getitem__(self, name: str) -> bytes:
        data = super().__getitem__(name)
        if not data:
            data = self._paths[name].read_bytes()
            self[name] = data = lzma.decompress(data) if self._paths[name].suffix == ".xz" else data
        return data


def archive(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """Return an archive as the kernel unpacks it (cpio, "newc"): path → mode and content, in this order."""
    parts = []
    for number, (path, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % value for value in fields) + name
        parts += [head, b"\0" * (-len(head) % 4), content, b"\0" * (-len(content) % 4)]
    return b"".join(parts)


def main(kernel: str, busybox: str, init: str, output: str) -> None:
    """Write the archive for the kernel whose file is ``kernel``."""
    image = Path(kernel)
    modules = _Modules(next(place for one, place in kernels(image.parent.parent) if one == image))
    order = in_order(modules, MODULES)
    files: dict[str, tuple[int, bytes]] = {name: (DIRECTORY, b"") for name in DIRECTORIES}
    files |= {
        "bin/busybox": (PROGRAM, Path(busybox).read_bytes()),
        "init": (PROGRAM, Path(init).read_bytes()),
    }
    files |= {f"modules/{name}.ko": (PROGRAM, modules[name]) for name in order}
    files["order"] = (PROGRAM, "".join(f"{name}.ko\n" for name in order).encode())
    Path(output).write_bytes(gzip.compress(archive(files), 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
