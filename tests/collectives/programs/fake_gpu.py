"""A GPU and NCCL that note what is launched when, in one list: tensors stay on the CPU, Gloo carries them.

As on a GPU nothing that is launched is waited for, until the script's stream waits for it.
"""

import contextlib
import os
import signal
import threading

import torch
from torch._C._distributed_c10d import ErrorType
from torch.distributed import ReduceOp

from ringleader.collectives import mpi_or_proxy
from ringleader.collectives.communicators import count_over
from ringleader.collectives.framework_adapter import TransportContext
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait
from ringleader.torch.basics import session
from ringleader.torch.c10d.connect import open_process_group
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.c10d.process_group import ProcessGroup
from ringleader.torch.cuda.cuda_streams import CudaStreams
from ringleader.torch.cuda.gpu_transport import GpuFacts, GpuTransport
from ringleader.torch.kernels import TorchKernels

CPU = torch.device("cpu")


class Event:
    """Keeps the name of what it follows."""

    def __init__(self, name):
        self.name = name


class Stream:
    """A stream that notes what it is asked to do."""

    def __init__(self, steps, name):
        self.steps, self.name = steps, name

    def record_event(self):
        self.steps.append(f"{self.name} records")
        return Event(self.name)

    def wait_event(self, event):
        self.steps.append(f"{self.name} waits for {event.name}")


class Script(Stream):
    """The script's stream: what it waits for is done afterwards."""

    def __init__(self, gpu):
        super().__init__(gpu.steps, "script")
        self._gpu = gpu

    def wait_event(self, event):
        super().wait_event(event)
        self._gpu.finish()


class Gpu:
    """What `CudaStreams` uses of torch.cuda, without a GPU."""

    def __init__(self):
        self.steps = []
        self.script = Script(self)
        self.launched = []
        self.captures = False
        self.dies = False  # when it launches the next reduction, which the others have agreed on
        self._streams = 0

    def finish(self):
        """Let everything that was launched be done."""
        launched, self.launched = self.launched, []
        for done in launched:
            done()

    def is_current_stream_capturing(self):
        return self.captures

    def current_stream(self, device):
        return self.script

    def Stream(self, device):
        self._streams += 1
        return Stream(self.steps, f"lane{self._streams}")

    @contextlib.contextmanager
    def stream(self, stream):
        self.steps.append(f"on {stream.name}")
        yield
        self.steps.append(f"off {stream.name}")


class Nccl:
    """Gloo's group with NCCL's averages and premultiplied sums, which notes every call.

    As a kernel of NCCL's, what it has begun with a peer that has died ends by an abort and by nothing else.
    """

    def __init__(self, raw, gpu, name):
        self._raw, self._gpu, self._steps, self._name = raw, gpu, gpu.steps, name
        self._aborted = threading.Event()
        self._steps.append(f"nccl opens {name}")

    def size(self):
        return self._raw.size()

    def get_error(self):
        return ErrorType.SUCCESS

    def eager_connect_single_device(self, device):
        pass

    def shutdown(self):
        self._steps.append(f"nccl shuts down {self._name}")

    def abort(self):
        self._steps.append(f"nccl aborts {self._name} in {threading.current_thread().name}")
        self._aborted.set()

    def allreduce(self, tensors, options):
        return self._reduce("allreduce", tensors, options)

    def allreduce_coalesced(self, tensors, options):
        return self._reduce("allreduce_coalesced", tensors, options)

    def _reduce(self, call, tensors, options):
        if self._gpu.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        op, factor = options.reduceOp.__getstate__()
        counts = "+".join(str(tensor.numel()) for tensor in tensors)
        self._steps.append(f"nccl {call} {str(op).rpartition('.')[2]} {counts}")
        for tensor in tensors:
            if op == ReduceOp.PREMUL_SUM:
                tensor.mul_(factor)
        if op in (ReduceOp.AVG, ReduceOp.PREMUL_SUM):
            options.reduceOp = ReduceOp.SUM
        work = getattr(self._raw, call)(tensors, options)

        def done():
            while not work.is_completed():
                if self._aborted.wait(0.001):
                    return
            try:
                work.wait()
            except RuntimeError:
                assert self._aborted.wait(60), "nobody aborts what waits for a peer that has died"
                return
            for tensor in tensors:
                if op == ReduceOp.AVG:
                    tensor.div_(self.size())

        self._gpu.launched.append(done)
        return Launched()

    def __getattr__(self, name):
        self._steps.append(f"nccl {name}")
        return getattr(self._raw, name)


class Unwatched(GroupWatch):
    """Leaves groups alone."""

    def add(self, group, **more):
        pass


class Launched:
    """A work that the host does not wait for."""

    def wait(self):
        pass


def use_fake_gpu(group=None, *, number=0, gpu=None, kind=GpuTransport, deadline=60.0, watch=None):
    """Have the engine of a group carry works "on cuda" with the fakes; return the GPU and its transport.

    ``watch`` is for all groups of the session.
    """
    current = session()
    group = group or current.group
    engine, gpu, watch = group.engine, gpu or Gpu(), watch or GroupWatch()
    rank, mpi = engine.ranks.rank, group.comms.mpi
    peer_wait = PeerWait(
        rank=rank,
        liveness_sources=[current.end_messages],
        warn_seconds=60.0,
        deadline_seconds=deadline,
        why_broken=group.peer_wait.why_broken,
    )
    context = TransportContext(
        ranks=engine.ranks,
        peer_wait=peer_wait,
        deadline_seconds=deadline,
        mpi_calls=MpiCalls(mpi, group.comms.comm, peer_wait, polling=True),
        host=engine.transport,
        number=number,
        generation=mpi_or_proxy.generation(mpi),
        launch_order=current.launch_order,
    )

    class Kernels(TorchKernels):
        """Notes when a factor is applied after a reduction."""

        def scale(self, array, factor):
            gpu.steps.append("scale")
            gpu.finish()
            super().scale(array, factor)

    def open_nccl(backend, mpi_calls, peer_wait, *, watch, generation, **more):
        assert backend == "nccl"
        unwatched = Unwatched()  # what the fake does with it is watched
        inner = open_process_group(
            "gloo", mpi_calls, peer_wait, watch=unwatched, generation=generation, **more
        )
        keys = [key.split("/") for key in inner._store.underlying_store.list_keys()]
        (name,) = {"/".join(key[:3]) for key in keys if key[1:] != ["token"]}
        fake = ProcessGroup(
            "nccl",
            Nccl(inner._raw, gpu, name),
            inner._store,
            peer_wait,
            count_over(engine.ranks, context.traffic, "x"),
            name=name,
            watch=watch,
        )
        watch.add(fake, generation=generation, why_broken=peer_wait.why_broken)
        return fake

    devices = kind(
        context,
        streams=CudaStreams(gpu),
        kind="cpu",
        usual_device=lambda: CPU,
        facts=lambda device: GpuFacts(gpu=f"GPU-{rank}", obstacle=""),
        open_nccl=open_nccl,
        new_kernels=Kernels,
        watch=watch,
    )
    engine.queue.devices = devices
    return gpu, devices
