"""GPUs without a GPU: devices, streams, events and contexts as in `torch.cuda`; tensors stay on the CPU.

Follows, of PyTorch 2.8.0 and 2.13.0: ``torch/cuda/__init__.py`` (``device``, ``StreamContext``: leaving a
stream of another device makes the device before current again, and with it a context; leaving ``device``
makes none) and ``torch/cuda/streams.py``; c10's ``CUDAFunctions.cpp`` (``SetDevice``, ``MaybeSetDevice``).

What is put on a stream is not done before somebody waits for it: an event that the script's stream waits for,
or a kernel that is called on the same stream. So what is read without having been waited for still has its
old values. The script's own streams are those of the default: what a script computes is done at once.

Never tried against a GPU: that order is the only thing that a device guarantees, which memory the allocator
hands out again and when, and what a context costs.
"""

import contextlib
import threading
from functools import partial

import torch
from torch.overrides import TorchFunctionMode

PASSIVE = {
    "__get__", "__getitem__", "__len__", "view", "numel", "split", "size", "dim", "element_size", "data_ptr",
    "is_contiguous", "is_floating_point", "empty", "empty_like", "untyped_storage", "nelement",
    "storage_offset", "is_cpu", "is_complex",
}  # fmt: skip
"""Functions that read no values, so that no kernel is put on a stream."""


class Event:
    """A place in the order of a stream."""

    def __init__(self, stream):
        self.stream, self.position = stream, stream.length
        self.name = stream.name

    def query(self):
        return self.stream.done >= self.position


class Stream:
    """What was put on it, in order, and how much of it is done."""

    def __init__(self, gpu, name, device):
        self.gpu, self.name, self.device = gpu, name, device
        self._items, self._running, self.done = [], threading.RLock(), 0
        self.pending = []  # tensors that something not yet done writes

    @property
    def length(self):
        return len(self._items)

    def record_event(self):
        self.gpu.steps.append(f"{self.name} records")
        return Event(self)

    def wait_event(self, event):
        self.gpu.steps.append(f"{self.name} waits for {event.name}")
        self._items.append(partial(event.stream.run_to, event.position))

    def put(self, act, writes=()):
        self.pending += writes
        self._items.append(act)
        if self.gpu.synchronous:
            self.run_to(self.length)

    def run_to(self, position):
        with self._running:
            while self.done < position:
                self._items[self.done]()
                self.done += 1
            if self.done == self.length:
                self.pending = []


class Script(Stream):
    """A stream of the script's: what it waits for is done afterwards."""

    def wait_event(self, event):
        self.gpu.steps.append(f"{self.name} waits for {event.name}")
        event.stream.run_to(event.position)
        self.gpu.check_kept(event.stream)


class InOrder(TorchFunctionMode):
    """Kernels called while streams are current come after what is on them."""

    def __init__(self, gpu):
        super().__init__()
        self._gpu = gpu

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") not in PASSIVE:
            self._gpu.drain()
        return func(*args, **(kwargs or {}))


class Gpu:
    """`torch.cuda` of one process with some devices, ``cpu:0`` and so on."""

    def __init__(self, devices=2):
        self.devices = devices
        self.steps = []
        self.contexts = set()
        """Devices on which this process has a context."""
        self.captures = False
        self.synchronous = False
        """Whether what is put on a stream is done at once, for programs whose tensors count as the host's."""
        self.dies = False  # when it launches the next reduction, which the others have agreed on
        self.fails = None  # what the next collective raises
        self._scripts = [
            Script(self, f"script{index or ''}", torch.device("cpu", index)) for index in range(devices)
        ]
        self._lanes = []
        self._thread = threading.local()
        self._ranges = []  # (first address, last address, device, tensor, whose memory may not be reused)
        self._owned = []
        self._recorded = set()
        self._used = []

    # what `CudaStreams` uses

    def current_device(self):
        return getattr(self._thread, "device", 0)

    def set_device(self, device):
        index = self._index(device)
        if index >= self.devices:
            raise RuntimeError("CUDA error: invalid device ordinal")
        self._thread.device = index
        self.contexts.add(index)

    @contextlib.contextmanager
    def device(self, device):
        before = self.current_device()
        self.set_device(device)
        yield
        self._thread.device = before  # makes no context there

    def current_stream(self, device=None):
        index = self.current_device() if device is None else self._index(device)
        return self._streams.get(index) or self._scripts[index]

    def Stream(self, device):
        lane = Stream(self, f"lane{len(self._lanes) + 1}", torch.device("cpu", self._index(device)))
        self._lanes.append(lane)
        return lane

    def _set_stream(self, stream):
        if stream.device.index != self.current_device():
            self.set_device(stream.device)
        self._streams[stream.device.index] = stream

    @contextlib.contextmanager
    def stream(self, stream):
        source, target = self.current_stream(), self.current_stream(stream.device)
        self._set_stream(stream)
        self.steps.append(f"on {stream.name}")
        try:
            with InOrder(self):
                yield
        finally:
            self.steps.append(f"off {stream.name}")
            if source.device != stream.device:
                self._set_stream(target)
            self._set_stream(source)

    def is_current_stream_capturing(self):
        return self.captures

    def record_stream(self, tensor, stream):
        self._recorded.add((tensor.untyped_storage().data_ptr(), stream.name))

    # what tests and the fake NCCL use

    @property
    def _streams(self):
        if not hasattr(self._thread, "streams"):
            self._thread.streams = {}
        return self._thread.streams

    def _index(self, device):
        return device if isinstance(device, int) else (torch.device(device).index or 0)

    def place(self, tensor, index):
        """Have a tensor, and every view of it, be one of a device."""
        start = tensor.data_ptr()
        self._ranges.append((start, start + max(1, tensor.nbytes), index, tensor))
        return tensor

    def device_of(self, tensor):
        address = tensor.data_ptr()
        for start, end, index, _tensor in reversed(self._ranges):
            if start <= address < end:
                return torch.device("cpu", index)
        return torch.device("cpu", self.current_device())

    def owns(self, tensors):
        """Take tensors for memory that the script's stream was given."""
        self._owned += tensors

    def used(self, what, tensors, stream):
        """Note that a stream reads or writes tensors."""
        self._used += [(what, tensor.untyped_storage().data_ptr(), stream) for tensor in tensors]

    def check_kept(self, stream):
        """Fail where the allocator may have handed on memory that a stream still used."""
        owned = {tensor.untyped_storage().data_ptr() for tensor in self._owned}
        for what, address, where in self._used:
            if where is stream and address in owned and (address, where.name) not in self._recorded:
                raise AssertionError(
                    f"{what} uses memory of the script's on {where.name} without record_stream"
                )
        self._used = [one for one in self._used if one[2] is not stream]

    def drain(self):
        """Let everything be done that is on the current streams of this thread."""
        for stream in list(self._streams.values()):
            stream.run_to(stream.length)

    def finish(self):
        for stream in (*self._lanes, *self._scripts):
            stream.run_to(stream.length)
