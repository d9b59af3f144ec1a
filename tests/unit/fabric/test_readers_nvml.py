"""What is asked of NVML, with something else in its place."""

import ctypes

import pytest

from ringleader.fabric.facts import Gpu
from ringleader.fabric.readers import nvml

ADDRESSES = ("0000:1b:00.0", "0000:43:00.0")


def put(**values):
    """Return a function of the library that writes fields of its last argument; a value may be computed."""

    def called(*arguments):
        for name, value in values.items():
            setattr(arguments[-1]._obj, name, value(*arguments) if callable(value) else value)
        return 0

    return called


def text(of):
    def called(*arguments):
        arguments[-2].value = of(*arguments)
        return 0

    return called


def link_state(handle, link, state):
    state._obj.value = int(link.value != 2)
    return 2 if link.value >= 4 else 0  # invalid argument


def remapped(handle, corrected, uncorrected, pending, failed):
    pending._obj.value = handle.value - 100
    return 0


def errors(handle, kind, counter, found):
    assert (kind.value, counter.value) == (1, 0)
    found._obj.value = 3
    return 0


OPTIONAL = {
    "DeviceGetCount_v2": put(value=2),
    "DeviceGetHandleByIndex_v2": put(value=lambda index, handle: 100 + index.value),
    "SystemGetDriverVersion": text(lambda *_: b"570.133.20"),
    "DeviceGetName": text(lambda *_: b"NVIDIA H100 80GB HBM3"),
    "DeviceGetUUID": text(lambda handle, *_: f"GPU-{handle.value}".encode()),
    "DeviceGetPciInfo_v3": put(
        bus_id=lambda handle, _: f"0000{ADDRESSES[handle.value - 100]}".upper().encode()
    ),
    "DeviceGetMemoryInfo": put(total=80 << 30),
    "DeviceGetBAR1MemoryInfo": put(total=128 << 30),
    "DeviceGetCurrentClocksThrottleReasons": put(value=0x1_0000_0040),
    "DeviceGetTotalEccErrors": errors,
    "DeviceGetRemappedRows": remapped,
    "DeviceGetPersistenceMode": put(value=1),
    "DeviceGetNvLinkState": link_state,
    "DeviceGetP2PStatus": put(value=lambda one, other, *_: int(one.value > other.value)),
    "DeviceGetGpuFabricInfo": put(state=3),
}


class Library:
    """Two H100; ``lacks``: functions that it does not have, ``fails``: those that answer an error."""

    def __init__(self, *, lacks: tuple[str, ...] = (), fails: tuple[str, ...] = (), fabric: int = 3) -> None:
        self.ended = 0
        known = OPTIONAL | {"Init_v2": lambda: 0, "Shutdown": self.shutdown}
        known["DeviceGetGpuFabricInfo"] = put(state=fabric)
        for name, function in known.items():
            if name not in lacks:
                setattr(self, f"nvml{name}", function if name not in fails else lambda *_: 999)

    def shutdown(self):
        self.ended += 1
        return 0


def gpus(*addresses):
    fields = {"vendor": 0x10DE, "driver": "nvidia"}
    return [
        Gpu(index=index, pci_address=address, device_file=f"/dev/nvidia{index}", **fields)
        for index, address in enumerate(addresses)
    ]


def test_everything():
    library = Library()
    found = nvml.read(gpus(*ADDRESSES), library)
    assert (found.state, found.driver_version, found.fabric_manager) == ("loaded", "570.133.20", "running")
    first, second = found.gpus
    assert (first.index, first.pci_address, first.device_file) == (0, ADDRESSES[0], "/dev/nvidia0")
    assert (first.name, first.uuid, first.memory, first.bar1_memory) == (
        "NVIDIA H100 80GB HBM3",
        "GPU-100",
        80 << 30,
        128 << 30,
    )
    assert (first.throttle_reasons, first.uncorrected_errors, first.persistence) == (0x1_0000_0040, 3, True)
    assert (first.remap_pending, second.remap_pending) == (False, True)
    assert (first.nvlinks, first.nvlinks_active) == (4, 3)
    assert (first.p2p, second.p2p) == ({1: "ok"}, {0: "chipset not supported"})
    assert library.ended == 1


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("how", ["lacks", "fails"])
def test_each_question_may_fail_alone(name, how):
    found = nvml.read(gpus(*ADDRESSES), Library(**{how: (name,)}))
    assert found.state == "loaded"
    assert {one.pci_address for one in found.gpus} >= set(ADDRESSES)


def test_gpus_that_it_does_not_open_come_last():
    found = nvml.read(gpus("0000:00:01.0", *ADDRESSES), Library())
    assert [(one.index, one.pci_address) for one in found.gpus] == [
        (0, ADDRESSES[0]),
        (1, ADDRESSES[1]),
        (2, "0000:00:01.0"),
    ]


def test_what_it_says_where_it_does_not_start():
    known = gpus(ADDRESSES[0])
    assert nvml.read(known, Library(fails=("Init_v2",))).state == "error 999"
    assert nvml.read(known, Library(lacks=("Init_v2",))).gpus == tuple(known)
    try:
        ctypes.CDLL(nvml.LIBRARY)
    except OSError:
        assert nvml.LIBRARY in nvml.read(known).state


def test_the_worst_state_of_the_fabric():
    assert nvml.read(gpus(*ADDRESSES), Library(fabric=1)).fabric_manager == "not running"
    assert nvml.read(gpus(*ADDRESSES), Library(fabric=0)).fabric_manager == ""


def test_structures_are_as_large_as_the_library_writes_them():
    assert ctypes.sizeof(nvml.PciInfo) == 68
    assert ctypes.sizeof(nvml.Memory) == 24
    assert ctypes.sizeof(nvml.FabricInfo) == 28
