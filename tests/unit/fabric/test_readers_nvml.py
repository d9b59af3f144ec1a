"""What is asked of NVML, with something else in its place."""

import ctypes

import pytest

from ringleader.fabric.facts import Gpu
from ringleader.fabric.readers import nvml

ADDRESSES = ("0000:1b:00.0", "0000:43:00.0")


class Library:
    """Two H100; ``lacks``: functions that it does not have, ``fails``: those that answer an error."""

    def __init__(self, *, lacks: tuple[str, ...] = (), fails: tuple[str, ...] = (), fabric: int = 3) -> None:
        self._lacks = lacks
        self._fails = fails
        self._fabric = fabric
        self.ended = 0
        self._handles: dict[int, int] = {}

    def __getattr__(self, name: str):
        if name in self._lacks or not name.startswith("nvml") or not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)
        if name in self._fails:
            return lambda *arguments: 999
        return getattr(self, f"_{name}")

    def _nvmlInit_v2(self):
        return 0

    def _nvmlShutdown(self):
        self.ended += 1
        return 0

    def _nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = 100 + index.value
        return 0

    def _nvmlSystemGetDriverVersion(self, buffer, size):
        buffer.value = b"570.133.20"
        return 0

    def _nvmlDeviceGetName(self, handle, buffer, size):
        buffer.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def _nvmlDeviceGetUUID(self, handle, buffer, size):
        buffer.value = f"GPU-{handle.value}".encode()
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle, info):
        info._obj.bus_id = f"0000{ADDRESSES[handle.value - 100]}".upper().encode()
        return 0

    def _nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.total = 80 << 30
        return 0

    def _nvmlDeviceGetBAR1MemoryInfo(self, handle, memory):
        memory._obj.total = 128 << 30
        return 0

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, reasons):
        reasons._obj.value = 0x1_0000_0040
        return 0

    def _nvmlDeviceGetTotalEccErrors(self, handle, kind, counter, errors):
        assert (kind.value, counter.value) == (1, 0)
        errors._obj.value = 3
        return 0

    def _nvmlDeviceGetRemappedRows(self, handle, corrected, uncorrected, pending, failed):
        pending._obj.value = handle.value - 100
        return 0

    def _nvmlDeviceGetPersistenceMode(self, handle, mode):
        mode._obj.value = 1
        return 0

    def _nvmlDeviceGetNvLinkState(self, handle, link, state):
        if link.value >= 4:
            return 2  # invalid argument
        state._obj.value = int(link.value != 2)
        return 0

    def _nvmlDeviceGetP2PStatus(self, handle, other, index, state):
        state._obj.value = 1 if handle.value > other.value else 0
        return 0

    def _nvmlDeviceGetGpuFabricInfo(self, handle, info):
        info._obj.state = self._fabric
        return 0


def gpus(*addresses):
    return [
        Gpu(
            index=index,
            pci_address=address,
            vendor=0x10DE,
            driver="nvidia",
            device_file=f"/dev/nvidia{index}",
        )
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


OPTIONAL = tuple(
    name[1:]
    for name in vars(Library)
    if name.startswith("_nvml") and "Init" not in name and "Shutdown" not in name
)


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
    assert nvml.read(known, Library(fails=("nvmlInit_v2",))).state == "error 999"
    assert nvml.read(known, Library(lacks=("nvmlInit_v2",))).gpus == tuple(known)
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
