"""The kernel's log: real lines, files that are unreadable, huge, binary or rotated, and what it all means.

The lines of kernel_lines.txt are from public reports: leptonai/gpud (kmsg_test.go, infiniband/kmsg),
NVIDIA/NVSentinel issue 155, stas00/ml-engineering (debug.md), linux-netdev (mlx5 health recovery, 2024),
sonic-buildimage issue 7310, PF_RING issue 293, archfan/coreboot issue 2, minisforum MS-02-Ultra issue 10,
docker/for-linux issue 1001, reportportal/kubernetes issue 203.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ringleader.agents import kernel_log, traffic_counters
from ringleader.agents.rank_evidence import RankEvidence
from ringleader.fabric.checks.check import rows
from ringleader.fabric.checks.kernel_log import counted, meaning, sentence, table
from ringleader.fabric.facts import KernelEvent
from ringleader.fabric.readers.host import read_host
from ringleader.launch.host_faults import HostFaults
from ringleader.launch.outcome import JobExit, RankEnd

NOW, WALL = 200_000.0, 1_780_000_000.0
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FLAP = "mlx5_core 0000:5c:00.0 ens1f0np0: Link down"
LINES = [
    line.split(" | ", 5)
    for line in Path(__file__).with_name("kernel_lines.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
LOG = ("the kernel's log",)
USED_BADLY = next(one[5] for one in LINES if one[2] == "31")


def value(event: dict[str, Any]) -> KernelEvent:
    return KernelEvent(**event)


@pytest.mark.parametrize(
    ("what", "kind", "number", "device", "says", "line"), LINES, ids=[one[5][:60] for one in LINES]
)
def test_lines_of_kernels_and_what_they_mean(what, kind, number, device, says, line):
    event = kernel_log.event_of(line, NOW, WALL)
    if what == "nothing":
        assert event is None
        return
    assert (event["kind"], event["number"], event["device"] or "-") == (kind, int(number), device)
    assert says in sentence(value(event)) and event["text"] in line
    assert not event["text"].startswith(("[", "4,")) and "kernel:" not in event["text"]
    assert meaning(value(event)).is_fault is (what == "fault") and meaning(value(event)).remedy


def test_the_time_of_a_line_is_the_kernels_else_that_of_the_clock() -> None:
    for before, at in {
        **{"[ 1234.5] ": 1234.5, "4,100,1234500000,-;": 1234.5, "": None},
        **{"Nov  1 01:01:01 h kernel: [ 1234.5] ": 1234.5, "Nov 17 13:16:56 h kernel: ": None},
        "9999999999-99-99T00:00:00 h kernel: ": None,
        "2026-05-28T20:26:30+00:00 h kernel: ": NOW - 10,
        "2031-01-01T00:00:00+00:00 h kernel: ": NOW,
    }.items():
        event = kernel_log.event_of(before + XID, NOW, WALL)
        assert event is not None and event["at"] == at, before


def test_alike_lines_are_one_event_and_those_before_a_start_of_the_host_none() -> None:
    lines = [f"[5.0] {XID}", "[    0.000000] Linux version 6.12.0", *[f"[{at}.0] {FLAP}" for at in range(9)]]
    (event,) = kernel_log.events_in(lines, NOW, WALL)
    assert (event["kind"], event["count"], event["at"]) == ("link", 9, 8.0)
    assert meaning(value(event)).is_fault and ", 9 times" in sentence(value(event))
    assert kernel_log.events_in(lines, NOW, WALL, since=100.0) == []
    many = [XID.replace("05:00", f"{at:02x}:00") for at in range(256)]
    assert len(kernel_log.events_in(many, NOW, WALL)) == kernel_log.MOST_EVENTS
    killed = [f"Memory cgroup out of memory: Killed process {pid} (python)" for pid in range(60)]
    memory, gpu = kernel_log.events_in([*killed, XID], NOW, WALL)
    assert (memory["number"], memory["count"], gpu["number"]) == (59, 60, 79)


def test_devices_get_the_names_that_people_have_for_them(tmp_path: Path) -> None:
    for name in (
        "proc/driver/nvidia/gpus/0000:05:00.0",
        "proc/driver/nvidia/gpus/0000:03:00.0",
        "sys/bus/pci/devices/0000:5c:00.0/infiniband/mlx5_3",
        "sys/bus/pci/devices/0000:5c:00.0/net/ens1f0np0",
    ):
        (tmp_path / name).mkdir(parents=True)
    events = kernel_log.events_in([XID, FLAP], NOW, WALL)
    gpu, nic = map(value, kernel_log.name_devices(events, str(tmp_path)))
    assert "Xid 79 on GPU 1 (0000:05:00.0): it has fallen" in sentence(gpu)
    assert "the link of mlx5_3, ens1f0np0 (0000:5c:00.0) went down" in sentence(nic)


HOW = {
    "rotated": lambda path: path.rename(path.with_suffix(".1")),
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("how", HOW)
def test_a_log_that_rotates_is_followed(how: str, tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("old\n" * 100 + XID)  # the line is not whole yet
    assert [one.number for one in read_host(log=str(path), areas=LOG).kernel_log.events] == [79]
    with path.open("a") as file:
        file.write("\n")
    log = kernel_log.KernelLog(str(path), from_end=True)
    assert log.lines() == []
    with path.open("a") as file:
        file.write("first\nhal")
    assert log.lines() == ["first"]
    HOW[how](path)
    assert log.lines() == []
    with path.open("a") as file:
        file.write("second\n")
    assert log.lines()[-1].endswith("second") and log.lines() == []
    log.close()


def test_of_a_huge_or_binary_log_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    with path.open("wb") as file:
        file.truncate(100 << 20)  # 100 MiB of zeros
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + bytes(range(256)) * 40 + b"\n" + XID.encode() + b"\xff\x00\x1b[31m\n")
    facts = read_host(areas=LOG, log=str(path))
    (event,) = facts.kernel_log.events
    assert event.number == 79 and event.text.isprintable() and facts.kernel_log.source == str(path)
    log = kernel_log.KernelLog(str(path), from_end=True)
    with path.open("ab") as file:
        file.write(b"x" * (3 * kernel_log.MOST_BYTES) + b"\n" + XID.encode() + b"\n")
    assert XID in log.lines()
    log.close()


@pytest.mark.parametrize("what", ["missing", "directory", "fifo", "forbidden", "null", "kmsg"])
def test_a_log_that_cannot_be_read_is_no_fault(what: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "forbidden":
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        path.touch(mode=0)
    elif what == "kmsg":  # of that name, but another device
        path = tmp_path / "dev/kmsg"
        path.parent.mkdir()
        path.symlink_to("/dev/null")
    name = "/dev/null" if what == "null" else str(path)
    facts = read_host(areas=LOG, log=name)
    assert facts.kernel_log.why.startswith(name) and not facts.kernel_log.events and not facts.unreadable
    watch = kernel_log.HostWatch(name)
    watch._has_ports = False  # those of this machine
    assert watch.is_needed is (what == "missing") and watch.take() == {}
    if what == "missing":
        path.write_text(XID + "\n")
        assert len(watch.take()["events"]) == 1


def counter(root: Path, name: str, number: int, place: str = "counters") -> None:
    path = root / "sys/class/infiniband/mlx5_0/ports/1" / place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{number}\n")


def test_errors_of_ports_are_judged_by_what_they_grow(tmp_path, monkeypatch):
    counter(tmp_path, "symbol_error", 7)
    counter(tmp_path, "link_downed", 200)
    counter(tmp_path, "port_rcv_packets", 10**9)
    counter(tmp_path, "out_of_sequence", 0, "hw_counters")
    watch = kernel_log.HostWatch("/nowhere", root=str(tmp_path))
    assert watch.is_needed and watch.take() == {}
    counter(tmp_path, "port_rcv_packets", 2 * 10**9)
    assert watch.take(at_end=True) == {}
    counter(tmp_path, "symbol_error", 12)
    counter(tmp_path, "link_downed", 3)  # somebody cleared it
    counter(tmp_path, "out_of_sequence", 5, "hw_counters")
    assert watch.take() == {}, "ports are read every ten seconds"
    found = watch.take(at_end=True)["errors"]
    packets = {"port_rcv_packets": 10**9}
    assert found == {"mlx5_0/1": {"symbol_error": 5, "link_downed": 3, "out_of_sequence": 5, **packets}}
    said = {one.id: one.seen for _port, one in counted(found)}
    assert said == {
        "port.errors": "mlx5_0/1 has counted symbol_error 5 since the job began",
        "port.flaps": "mlx5_0/1 has counted link_downed 3 since the job began",
    }
    assert watch.take(at_end=True) == {}
    slow: set[str] = set()
    with monkeypatch.context() as late:
        late.setattr(traffic_counters, "SLOW_SECONDS", -1.0)
        assert traffic_counters.errors(str(tmp_path), slow) == {} and slow == {"mlx5_0/1"}
    assert traffic_counters.errors(str(tmp_path), slow) == {}, "a port that answers slowly is not read again"


def test_agents_read_the_errors_that_the_checks_judge() -> None:
    judged = [
        name
        for row in rows()["RDMA counters"].values()
        if not row.get("second")
        for name in row.get("counters", ())
    ]
    assert {*judged} == {name for names in traffic_counters.ERRORS.values() for name in names}
    numbers = [number for row in table()["xids"] for number in row[0]]
    assert {action for _, _, action in table()["xids"]} <= {*table()["actions"]}
    assert len(numbers) == len({*numbers}) > 40
    assert "-qkb" in kernel_log.PROGRAMS[1], "a word behind b would be the number of a start of the host"
    for words in ({}, {"events": [{}]}, {"events": [{"kind": 3, "text": "x"}]}, {"errors": {"p": {"x": 1}}}):
        assert HostFaults().take("h1", words, 0.0) == [], "words of an agent that are none"


class Launcher:
    pending = 0

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def say(self, **words: Any) -> None:
        self.said.append(words)


def test_an_agent_reports_what_its_kernel_says_from_the_start_on(tmp_path: Path) -> None:
    path, launcher = tmp_path / "kernel.log", Launcher()
    path.write_text(XID + "\n")
    evidence = RankEvidence()
    evidence.begin({"counters": True, "kernel_log": str(path)}, {}, str(tmp_path))
    evidence.sample(launcher)
    assert launcher.said == []
    with path.open("a") as file:
        file.write(f"{FLAP}\n{FLAP}\n")
    evidence.sample(launcher, at_end=True)
    (words,) = launcher.said
    assert words["do"] == "kernel" and [one["count"] for one in words["events"]] == [2]
    evidence.end()


def ended(host: str = "h2", signal: int | None = None, at: float = 2.0) -> JobExit:
    first = RankEnd(rank=1, host=host, exit_code=None if signal else 1, signal=signal, seconds=1.0, at=at)
    return JobExit(exit_code=first.code, whose="rank 1", reason="rank 1 failed", first_failure=first)


def events(*lines: str, **more: Any) -> dict[str, Any]:
    found = kernel_log.name_devices(kernel_log.events_in(lines, NOW, WALL), "/nowhere")
    return {"events": [{**one, **more} for one in found]}


OOM = "Out of memory: Killed process 7 (python3) total-vm:1kB"
POWER = (
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 2): Detected insufficient power on the PCIe slot (27W)."
)
BLAMELESS = [XID.replace(": 79,", f": {number},") for number in (43, 13, 31)]
AER = "pcieport 0000:00:01.0: PCIe Bus Error: severity="
CORRECTED = f"{AER}Corrected, type=Data Link Layer"
RECOVERY = "NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x0 (None) to"


def test_a_failing_ranks_message_quotes_the_kernel():
    for said, how, quotes in (
        ({"h2": events(XID, gpu=0)}, ended(), ["h2: Xid 79"]),
        (
            {
                "h1": events(XID),
                "h2": {"events": [*events(*BLAMELESS, XID, gpu=0)["events"], *events(POWER)["events"]]},
            },
            ended(),
            ["h2: Xid 79", "h2: 0000:5c:00.0: its driver", "h1: Xid 79"],
        ),
        ({"h2": events(OOM)}, ended(signal=9, at=500.0), []),
        ({"h2": events(OOM)}, ended(signal=9), ["h2: memory ran out"]),
        ({"h1": events(USED_BADLY)}, ended(), []),
        ({"h2": events(USED_BADLY)}, ended(), ["h2: Xid 31"]),
        ({"h2": {"errors": {"mlx5_0/1": {"link_downed": 1}}}}, ended(), ["h2: mlx5_0/1 has counted"]),
    ):
        faults = HostFaults()
        for host, words in said.items():
            assert faults.take(host, words, 1.5)
            assert faults.take(host, words, 2.5) == [], "each is told once"
        reason = faults.quoted(how, "0").reason
        found = [line.strip() for line in reason.splitlines()[1:] if "→" not in line]
        assert [
            line.replace("the kernel reports: ", "")[: len(quote)]
            for line, quote in zip(found, quotes, strict=True)
        ] == quotes
        good = JobExit(exit_code=0, whose="", reason="", first_failure=None)
        assert faults.quoted(good, None) is good


def test_what_is_new() -> None:
    """A fault also after what was none of the same device; links and corrected errors by their number."""
    for says, counts in (
        ([[CORRECTED] * 99, [CORRECTED], [CORRECTED]], [0, 1, 0]),
        ([[CORRECTED] * 100, [f"{AER}Uncorrected (Fatal), type=x"]], [1, 1]),
        ([[f"{RECOVERY} 0x0 (None)"], [f"{RECOVERY} 0x1 (GPU Reset Required)"]], [1, 1]),
        ([[FLAP], [FLAP] * 3, [FLAP], [FLAP]], [1, 0, 1, 0]),
        ([[OOM.replace("7", f"{number}")] for number in range(10, 500)] + [[XID]], [1] * 491),
    ):
        faults = HostFaults()
        assert [len(faults.take("h1", events(*lines), 1.0)) for lines in says] == counts
        assert len(faults.found) < 200


def test_only_errors_of_its_own_port_are_a_hosts_fault() -> None:
    """Others grow on its partners' hosts, too, when a host is lost."""
    others = ("ack_timeout", "seq", "rnr", "of_buffer", "discards", "dropped", "constraint")
    for counter in {name for row in traffic_counters.ERRORS.values() for name in row}:
        (*_, fault) = HostFaults().take("h1", {"errors": {"mlx5_0/1": {counter: 10**9}}}, 1.0)
        assert fault.is_fault is not any(one in counter for one in others), counter
