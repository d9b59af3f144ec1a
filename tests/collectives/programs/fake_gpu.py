"""Has an engine carry works "on cuda" with the fake GPU and the fake NCCL of the modules beside."""

import torch
from fake_cuda import Gpu
from fake_nccl import install

from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.peer_wait import PeerWait
from ringleader.torch.basics import session
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.c10d.process_group import missing
from ringleader.torch.cuda.cuda_streams import CudaStreams, tensors_of
from ringleader.torch.cuda.gpu_transport import GpuFacts, GpuTransport
from ringleader.torch.torch_kernels import TorchKernels, scale_on_device


def on_gpu(array, name, **fields):
    """Return an operation on a tensor that counts as one of a GPU."""
    dtype = str(array.dtype).removeprefix("torch.")
    fields = {"kind": "allreduce", "dtype": dtype, "op": ReduceOp.SUM, **fields}
    signature = Signature(shape=tuple(array.shape), device="cuda", **fields)
    return Work(signature, signature_digest(signature), name=name, serial=0, array=array, out=array)


def owning(kind, gpu):
    """Return a transport that tells the fake which memory is the script's."""

    class Owning(kind):
        def submitted(self, work):
            gpu.owns(tensors_of(work))
            super().submitted(work)

        def launch(self, work):
            gpu.owns(tensors_of(work))
            super().launch(work)

    return Owning


def use_fake_gpu(
    group=None, *, number=0, gpu=None, kind=GpuTransport, deadline=60.0, watch=None, own=0, say=None
):
    """Have the engine of a group carry works "on cuda" with the fakes; return the GPU and its transport.

    ``watch`` is for all groups of the session. ``own``: the number of this rank's GPU.
    """
    current = session()
    group = group or current.group
    engine, gpu, watch = group.engine, gpu or Gpu(), watch or GroupWatch()
    rank = engine.ranks.rank
    install(gpu)
    gpu.set_device(own)
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
        mpi_calls=MpiCalls(group.comms.comm, peer_wait, polling=True),
        host=engine.transport,
        number=number,
        generation=group.comms.world.generation,
        launch_order=current.launch_order,
    )

    class Kernels(TorchKernels):
        """Notes when a factor is applied after a reduction."""

        def scale(self, array, factor):
            gpu.steps.append("scale")
            if array.is_floating_point():
                super().scale(array, factor)
            else:  # as on a device: NumPy would not wait for what is under way on a stream
                scale_on_device(array, factor)

    devices = owning(kind, gpu)(
        context,
        streams=CudaStreams(gpu, gpu.record_stream),
        kind="cpu",
        device_of=gpu.device_of,
        usual_device=lambda: torch.device("cpu", own),
        facts=lambda device: GpuFacts(gpu=f"GPU-{rank}", obstacle=missing("nccl")),
        new_kernels=Kernels,
        watch=watch,
        **({"say": say} if say else {}),
    )
    engine.queue.devices = devices
    return gpu, devices
