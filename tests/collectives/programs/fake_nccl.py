"""`ProcessGroupNCCL` without NCCL: PyTorch's streams, works and errors; Gloo carries the values.

Follows ``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``: ``collective``, ``collectiveCoalesced``,
``getNcclReduceOp``, ``eagerConnectSingleDevice``, ``abort``, ``shutdown``, ``getError`` and the checks of
tensors as they are in the 2.9 and 2.12 series, the Python API as the wheels of 2.8.0 (for CUDA 12.8) and
2.13.0 have it. Between 2.8 and 2.13 nothing that is used here differs but where ``get_error`` is defined: in
2.8.0 ``ProcessGroupNCCL`` has it, its base class ``Backend`` has not. 2.14 reads factors of bfloat16 right.

- with ``asyncOp = False`` (since 2.8) the kernel is put on the current stream of the tensor's device, nothing
  is kept for the allocator, and there is no work: None;
- with ``asyncOp = True`` it is put on a stream of the group's own that waits for the current one; the work's
  ``wait`` has the current stream wait for it;
- the communicator is one device's: a tensor of another would make a second one, for which no peer comes;
- ``abort`` ends what is under way, whatever it waits for; every call after it raises `DistBackendError`;
- a kernel that waits for a peer that has died ends by an abort and by nothing else.

Never tried against NCCL: how soon an abort ends, which errors NCCL reports and when (``get_error``),
what several kernels of one device do that wait for each other, the watchdog's and the heartbeat's ends of a
process, ``TORCH_NCCL_BLOCKING_WAIT``, CUDA graphs, bits of averages in half types.
"""

import os
import signal
import struct
import threading
from types import SimpleNamespace

import torch
from fake_cuda import Stream
from torch._C._distributed_c10d import ErrorType
from torch.distributed import DistBackendError, ProcessGroupGloo, ReduceOp

NATIVE_OPS = {"SUM", "MIN", "MAX", "PRODUCT", "AVG", "PREMUL_SUM"}


def factor_as_read(factor, dtype, version):
    """Return the factor of a premultiplied sum as NCCL reads it (``unpackPreMulSum``)."""
    if dtype == torch.bfloat16 and version < (2, 14):
        # A float32 is handed over, and its first two bytes, the low ones, are taken for a bfloat16.
        return struct.unpack("<f", b"\0\0" + struct.pack("<f", factor)[:2])[0]
    return torch.tensor(factor, dtype=dtype).item()


class NamedStore(torch.distributed.PrefixStore):
    """A store that knows below which name it writes."""

    def __init__(self, prefix, store):
        super().__init__(prefix, store)
        self.prefix = prefix


class Work:
    """What an asynchronous collective returns."""

    def __init__(self, gpu, device, end):
        self._gpu, self._device, self._end = gpu, device, end

    def is_completed(self):
        return self._end.query()

    def wait(self):
        self._gpu.current_stream(self._device).wait_event(self._end)


class FakeProcessGroupNCCL:
    """See the module; `install` makes it ``torch.distributed.ProcessGroupNCCL``."""

    gpu = None
    version = (2, 13)

    class Options:
        """As the real one's; made without arguments."""

        def __init__(self, is_high_priority_stream=False):
            self.is_high_priority_stream = is_high_priority_stream
            self._timeout = None
            self.config = SimpleNamespace(blocking=None)

    def __init__(self, store, rank, size, options):
        if not self.gpu.devices:
            raise ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
        self._rank, self._steps = rank, self.gpu.steps
        inner = ProcessGroupGloo._Options()
        inner._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        inner._timeout, inner._threads = options._timeout, 2
        self._gloo = ProcessGroupGloo(store, rank, size, inner)
        self._name = store.prefix
        self._device = self._own_stream = None
        self._aborted = threading.Event()
        self._launched = []
        self._error = ErrorType.SUCCESS
        self._steps.append(f"nccl opens {self._name}")

    def size(self):
        return self._gloo.size()

    def rank(self):
        return self._rank

    def get_error(self):
        return self._error

    def eager_connect_single_device(self, device):
        with self.gpu.device(device):  # OptionalCUDAGuard
            self._device = torch.device("cpu", device.index or 0)
            self._own_stream = Stream(self.gpu, "nccl's stream", self._device)

    def shutdown(self):
        self._steps.append(f"nccl shuts down {self._name}")
        for stream, position in self._launched[-1:]:
            stream.run_to(position)
        self._aborted.set()

    def abort(self):
        self._steps.append(f"nccl aborts {self._name} in {threading.current_thread().name}")
        self._aborted.set()

    # collectives

    def allreduce(self, tensors, options):
        assert len(tensors) == 1, "Expecting one tensor only but got multiple"
        return self._reduce("allreduce", tensors, options)

    def allreduce_coalesced(self, tensors, options):
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise TypeError("Tensors must have identical type")
        if len({self.gpu.device_of(tensor) for tensor in tensors}) > 1:
            raise ValueError("Expected list of tensors on the same device")
        return self._reduce("allreduce_coalesced", tensors, options)

    def broadcast(self, tensors, options):
        self._steps.append(f"nccl broadcast {tensors[0].numel()}")
        plain = torch.distributed.BroadcastOptions()
        plain.rootRank = options.rootRank
        return self._collective("broadcast", tensors, options, lambda mine: (mine, [mine, plain]))

    def _allgather_base(self, out, own, options):
        self._steps.append(f"nccl _allgather_base {own.numel()}")
        return self._collective("_allgather_base", [out, own], options, lambda mine: (mine[:1], mine))

    def alltoall_base(self, out, own, received, sent, options):
        self._steps.append(f"nccl alltoall_base {own.numel()}")
        return self._collective(
            "alltoall_base", [out, own], options, lambda mine: (mine[:1], (*mine, received, sent))
        )

    def _reduce_scatter_base(self, out, own, options):
        op, factor = self._operation(options, own.dtype)
        self._steps.append(f"nccl _reduce_scatter_base {op} {own.numel()}")
        with torch._C.DisableTorchFunction():
            whole = own.clone()
        start = self._rank * out.numel()
        part = whole[start : start + out.numel()]
        return self._collective(
            "allreduce",
            [out, own],
            options,
            lambda mine: ([part], [[whole]]),
            op=op,
            factor=factor,
            sums=[whole],
        )

    def _operation(self, options, dtype):
        op, factor = options.reduceOp.__getstate__()
        op = str(op).rpartition(".")[2]
        assert op in NATIVE_OPS, f"Unhandled ReduceOp {op}"
        if op == "PREMUL_SUM" and not dtype.is_floating_point:
            raise TypeError("PreMulSum Data type must be half, float, bfloat16 or double")
        return op, factor_as_read(factor, dtype, self.version) if op == "PREMUL_SUM" else 1.0

    def _reduce(self, call, tensors, options):
        if self.gpu.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        op, factor = self._operation(options, tensors[0].dtype)
        counts = "+".join(str(tensor.numel()) for tensor in tensors)
        self._steps.append(f"nccl {call} {op} {counts}")
        return self._collective(call, tensors, options, lambda mine: (mine, [mine]), op=op, factor=factor)

    def _collective(self, call, tensors, options, arguments, *, op="", factor=1.0, sums=None):
        """Begin a collective on copies of the tensors; they get the results once the stream gets to it.

        ``arguments``: from the copies, those that are results, and what Gloo is called with.
        """
        device = self._checked(tensors)
        with self.gpu.device(device), torch._C.DisableTorchFunction():  # OptionalCUDAGuard
            current = self.gpu.current_stream(device)
            stream = self._own_stream if options.asyncOp else current
            if options.asyncOp:
                stream.wait_event(current.record_event())
            for one in (stream, current):
                if any(shares(tensor, other) for tensor in tensors for other in one.pending):
                    one.run_to(one.length)
            mine = [tensor.clone() for tensor in tensors]
            results, inner = arguments(mine)
            sums = results if sums is None else sums
            if op:
                for one in sums:
                    one.mul_(factor) if op == "PREMUL_SUM" else None
                wanted = getattr(ReduceOp, op if op not in ("AVG", "PREMUL_SUM") else "SUM")
                plain = (
                    torch.distributed.AllreduceCoalescedOptions
                    if call.endswith("coalesced")
                    else torch.distributed.AllreduceOptions
                )()
                plain.reduceOp = wanted
                inner = (*inner, plain)
            work = getattr(self._gloo, call)(*inner)

        def kernel():
            with torch._C.DisableTorchFunction():
                while not work.is_completed():
                    if self._aborted.wait(0.001):
                        return
                try:
                    work.wait()
                except RuntimeError:
                    assert self._aborted.wait(60), "nobody aborts what waits for a peer that has died"
                    return
                for tensor, result in zip(tensors, results, strict=False):
                    tensor.copy_(result.div_(self.size()) if op == "AVG" else result)

        stream.put(kernel, tensors[: len(results)])
        self.gpu.used(f"nccl {call}", tensors, stream)
        self._launched.append((stream, stream.length))
        if not options.asyncOp:
            return None
        return Work(self.gpu, device, stream.record_event())

    def _checked(self, tensors):
        """Return the device of tensors; the checks of ``check_gpu_single_tensor`` and of the communicator."""
        device = self.gpu.device_of(tensors[0])
        for tensor in tensors:
            if tensor.is_sparse:
                raise ValueError("Tensors must be CUDA and dense")
            if not tensor.is_contiguous():
                raise ValueError("Tensors must be contiguous")
        if self._aborted.is_set():
            raise DistBackendError(f"NCCL communicator was aborted on rank {self._rank}.")
        if device != self._device:
            raise AssertionError(
                f"a tensor on GPU {device.index} for a communicator of GPU {self._device}: PyTorch would "
                "make another one, for which no peer comes"
            )
        if self.gpu.fails is not None:
            error, self.gpu.fails = self.gpu.fails, None
            raise error
        return device


def shares(tensor, other):
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    return start < other.data_ptr() + other.nbytes and other.data_ptr() < end


def install(gpu, version=None):
    """Have PyTorch of this process offer the fake. ``version``: of PyTorch, else FAKE_TORCH's, else 2.13."""
    numbers = version or os.environ.get("FAKE_TORCH", "2.13")
    FakeProcessGroupNCCL.gpu = gpu
    FakeProcessGroupNCCL.version = tuple(int(part) for part in numbers.split("."))
    torch.distributed.ProcessGroupNCCL = FakeProcessGroupNCCL
    torch.distributed.PrefixStore = NamedStore
    torch.distributed.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    torch.cuda.set_device = gpu.set_device
