"""What this host's kernel says of GPUs, NICs, PCI and memory; `traffic_counters` has what ports count.

Lines come from /dev/kmsg, else from the file of the system's logger, or from a file that the user names.
Nothing here waits, and a log that cannot be read has no events. What they mean is in
``fabric/checks/kernel_log.py``.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from ringleader.agents import sysfs
from ringleader.agents.light_imports import Any, Iterable, suppress

KMSG = "/dev/kmsg"
PLACES = (KMSG, "/var/log/kern.log")
PROGRAMS = (("dmesg",), ("journalctl", "-qkb", "--no-pager", "-oshort-monotonic", "-n20000"))
"""Programs that may read the log where we may not; only before a job. A value may follow ``-b``."""
DEVICE = (1, 11)
"""Major and minor number of /dev/kmsg: elsewhere its name may be another device's."""
MOST_BYTES, MOST_RECORDS, RECORD = 2 << 20, 20000, 8192
"""What is kept at a time: the end of a file, records of /dev/kmsg, bytes of one of these."""
MOST_READ = 1 << 20
"""Records of /dev/kmsg that are read at a time: the largest ring has fewer."""
MOST_EVENTS, LONGEST = 30, 300
"""Different events of one kind, the newest, and characters of one that are kept."""
DAY = 86400.0
MILD = ("severity=correct", "non-fatal", "nonfatal", "to 0x0 (none)")
"""A line with one of them is less than another of the same device and number."""
MARKS = ("Xid (", "fallen off", "mlx5_core", "PCIe Bus Error", "pciehp", "ink ", "illed process")
"""A line with an event has one of them: patterns cost more."""
_PCI = r"(?P<device>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"
PATTERNS = (
    ("xid", rf"NVRM: Xid \((?:PCI:)?{_PCI}\): (?P<number>\d{{1,4}})\b"),
    ("xid", rf"NVRM:(?: .*?{_PCI}.*?)? (?:GPU has )?(?P<number>)fallen off the bus"),
    ("sxid", rf"SXid \((?:PCI:)?{_PCI}\): (?P<number>\d{{1,6}})\b"),
    ("pcie", rf"{_PCI}: (?:AER: )*PCIe Bus Error: severity="),
    ("pcie", rf"{_PCI}: pciehp: Slot\(.{{1,20}}\): (?:Link Down|Card not present)"),
    ("link", rf"{_PCI}(?: [^ :]+)?: .{{0,40}}?\b[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b"),
    (
        "nic",
        rf"mlx5_core {_PCI}(?: [^ :]+)?: .*(?:[Hh]ealth issue observed|health compromised|insufficient power"
        r"|Port module event\[error\]|No done completion|Will cause a leak|recovery flow aborted)",
    ),
    ("oom", r"(?<!oom_reaper: reaped )[Kk]illed process (?P<number>\d{1,10}) \("),
)
"""Kind of an event and how its line reads, by the sources of Linux 6.12 (aer.c, pciehp_ctrl.c, mlx5/core:
health.c, events.c and cmd.c, oom_kill.c) and NVIDIA's open kernel modules 570. The second is what newer
drivers write instead of Xid 79."""
OFF_THE_BUS = 79


def event_of(line: str, now: float, wall: float) -> dict[str, Any] | None:
    """Return what a line says of a device, ``None``: nothing.

    ``now``, ``wall``: seconds since the host's start and Unix time, for lines that have another time than the
    kernel's. ``at`` is in seconds since the start, ``None``: unknown.
    """
    if not any(mark in line for mark in MARKS):
        return None
    import re

    for kind, pattern in PATTERNS:
        if (match := re.search(pattern, line)) is not None:
            found = match.groupdict()
            device = found.get("device") or ""
            device = device if not device or device.count(":") == 2 else f"0000:{device}"
            device += ".0" if device and "." not in device else ""
            text = re.sub(
                r"^\d+,\d+,\d+,[^;]*;|^(?:.*?\bkernel: )?(?:\[[^\]]*\] ?)?", "", line, count=1
            ).strip()
            number = found.get("number")
            return {
                "kind": kind,
                "number": OFF_THE_BUS if number == "" else int(number or 0),
                "device": device,
                "at": _time_of(line, now, wall),
                "text": "".join(one if one.isprintable() else "?" for one in text[:LONGEST]),
                "count": 1,
            }
    return None


def _time_of(line: str, now: float, wall: float) -> float | None:
    import re

    if (kernels := re.match(r"\d+,\d+,(\d{1,20}),|.{0,80}?\[ *(\d{1,10}\.\d+)\]", line)) is not None:
        return int(kernels[1]) / 1e6 if kernels[1] else float(kernels[2])
    with suppress(ValueError, OverflowError):
        from datetime import datetime

        at = datetime.fromisoformat(line.split()[0]).timestamp()
        return min(now, now - (wall - at))  # a clock that was set back makes nothing come later than now
    return None


def events_in(
    lines: Iterable[str], now: float, wall: float, since: float | None = None
) -> list[dict[str, Any]]:
    """Return the events of lines, the last of alike ones, with their ``count``; ``since``: only later ones.

    Processes that were killed are alike, so that many of them hide nothing else.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        if "Linux version " in line:
            found.clear()  # the host was restarted
        event = event_of(line, now, wall)
        if event is None or (since is not None and event["at"] is not None and event["at"] < since):
            continue
        number = None if event["kind"] == "oom" else event["number"]  # of a process: each has another
        low = event["text"].lower()
        key = event["kind"], number, event["device"], any(one in low for one in MILD)
        event["count"] += found.pop(key)["count"] if key in found else 0
        alike = [one for one in found if one[0] == key[0]]
        if len(alike) >= MOST_EVENTS:
            del found[alike[0]]
        found[key] = event
    return list(found.values())


def name_devices(events: list[dict[str, Any]], root: str = "") -> list[dict[str, Any]]:
    """Add what else devices are called: ``gpu``, its index as nvidia-smi has it, and ``names`` of a NIC."""
    gpus = sysfs.names(f"{root}/proc/driver/nvidia/gpus") if events else []
    for one in events:
        place = f"{root}/sys/bus/pci/devices/{one['device']}"
        one["gpu"] = gpus.index(one["device"]) if one["device"] in gpus else None
        kinds = ("infiniband", "net") if one["device"] else ()
        one["names"] = tuple(name for kind in kinds for name in sysfs.names(f"{place}/{kind}"))
    return events


class KernelLog:
    """A log that is open: its last lines, or with ``from_end`` those that come from now on."""

    def __init__(self, path: str, *, from_end: bool = False) -> None:
        """Raises OSError."""
        self._path, self._rest = path, b""
        self._fd = os.open(path, sysfs.FLAGS)
        try:
            status = os.fstat(self._fd)
            numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
            self._is_kmsg = stat.S_ISCHR(status.st_mode) and path.endswith(KMSG) and numbers == DEVICE
            if not (self._is_kmsg or stat.S_ISREG(status.st_mode)):
                raise OSError(errno.EPERM, "not a regular file")
            os.lseek(self._fd, 0, os.SEEK_END if from_end else os.SEEK_SET)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)

    def lines(self, *, at_end: bool = False) -> list[str]:
        """Return the lines that have come since the last call, the last ones of many. Raises OSError.

        ``at_end``: nothing is awaited, a line without its end counts.
        """
        if self._is_kmsg:
            return self._records()
        data = self._read()
        with suppress(FileNotFoundError):
            now, ours = os.stat(self._path), os.fstat(self._fd)  # noqa: PTH116
            if (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino):  # it was rotated
                fd = os.open(self._path, sysfs.FLAGS)
                os.close(self._fd)
                self._fd = fd
                data += b"\n" + self._read()
        *whole, self._rest = (self._rest + data + b"\n" * at_end).split(b"\n")
        self._rest = self._rest[-RECORD:]
        return [one[:RECORD].decode("utf-8", "replace") for one in whole]

    def _read(self) -> bytes:
        at, size = os.lseek(self._fd, 0, os.SEEK_CUR), os.fstat(self._fd).st_size
        if size < at:  # it was emptied
            at = os.lseek(self._fd, 0, os.SEEK_SET)
        if size - at > MOST_BYTES:
            os.lseek(self._fd, size - MOST_BYTES, os.SEEK_SET)
            self._rest = b""
        return os.read(self._fd, MOST_BYTES)

    def _records(self) -> list[str]:
        found: list[bytes] = []
        for _ in range(MOST_READ):
            try:
                record = os.read(self._fd, RECORD)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the oldest were overwritten meanwhile
                continue
            if not record:
                break
            found.append(record.split(b"\n")[0])
            if len(found) >= 2 * MOST_RECORDS:
                del found[:MOST_RECORDS]
        return [one.decode("utf-8", "replace") for one in found[-MOST_RECORDS:]]


def opened(path: str = "", root: str = "", *, from_end: bool = False) -> tuple[KernelLog | None, str, str]:
    """Return the log, where it is, and why none can be read; ``path``: the only one that is wanted."""
    why = ""
    for place in (path,) if path else PLACES:
        try:
            return KernelLog(f"{root}{place}", from_end=from_end), place, ""
        except (OSError, ValueError) as error:
            why = why or f"{place}: {getattr(error, 'strerror', None) or error}"
    return None, "", why


class HostWatch:
    """What the kernel reports, and errors that RDMA ports count, from now on."""

    ERRORS_SECONDS = 10.0
    """Between two readings of ports: drivers ask their cards for some counters."""

    def __init__(self, path: str = "", root: str = "") -> None:
        """``path``: of the log, where the user names one; it may come later."""
        self._root = root
        self._awaited = path if path and not os.path.lexists(f"{root}{path}") else ""
        self._log, _, _ = opened(path, root, from_end=True)
        self._slow: set[str] = set()
        self._has_ports = bool(sysfs.names(f"{root}/sys/class/infiniband"))
        self._before: dict[str, dict[str, int]] | None = None
        self._told: dict[str, dict[str, int]] = {}
        self._read_at = float("-inf")

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to be watched."""
        return self._log is not None or self._has_ports or bool(self._awaited)

    def take(self, *, at_end: bool = False) -> dict[str, Any]:
        """Return new ``events``, and ``errors`` that have grown, since the first call; empty: neither."""
        found: dict[str, Any] = {}
        if self._log is None and self._awaited:
            self._log, _, _ = opened(self._awaited, self._root)
        if self._log is not None:
            try:
                lines = self._log.lines(at_end=at_end)
            except OSError:  # a file system that is gone
                self._log, lines = None, []
            events = events_in(lines, time.monotonic(), time.time()) if lines else []
            found = {"events": name_devices(events, self._root)} if events else {}
        if self._has_ports and (at_end or time.monotonic() >= self._read_at + self.ERRORS_SECONDS):
            from ringleader.agents import traffic_counters

            self._read_at = time.monotonic()
            now = traffic_counters.errors(self._root, self._slow)
            self._before = now if self._before is None else self._before
            grown = traffic_counters.errors_grown(now, self._before)
            if any(grown[port] != self._told.get(port) for port in grown):
                self._told = grown
                found["errors"] = grown
        return found
