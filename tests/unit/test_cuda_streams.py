"""The order of operations on the streams of a GPU, of which every step is noted here."""

import torch
from tests.collectives.programs import fake_cuda

from ringleader.engine.operations import Signature, Work
from ringleader.torch.cuda.cuda_streams import CudaStreams

CPU = torch.device("cpu")


def work():
    array = torch.zeros(2)
    signature = Signature(kind="allreduce", dtype="float32", shape=(2,), device="cuda")
    return Work(signature, 0, name="one", serial=0, array=array, out=array)


def test_a_bucket_comes_after_every_stream_that_wrote_a_part_of_it():
    gpu = fake_cuda.Gpu(devices=1)
    streams, bucket, written = CudaStreams(gpu), work(), gpu.Stream(CPU)
    streams.written(bucket, CPU)
    with gpu.stream(written):
        streams.written(bucket, CPU)
    streams.written(bucket, CPU)
    streams.submitted(bucket, CPU)
    with streams.ordered(bucket):
        pass
    streams.delivered(bucket)
    assert waits(gpu) == ["lane2 waits for script", "lane2 waits for lane1", "script waits for lane2"]
    # The next time only those that write then.
    del gpu.steps[:]
    streams.submitted(bucket, CPU)
    with streams.ordered(bucket):
        pass
    assert waits(gpu) == ["lane2 waits for script"]


def waits(gpu):
    return [step for step in gpu.steps if " waits for " in step]


def test_what_goes_aside_does_not_wait_behind_the_rest_and_several_are_one_entry():
    gpu = fake_cuda.Gpu(devices=1)
    streams, works = CudaStreams(gpu), [work(), work(), work()]
    for one in works:
        streams.submitted(one, CPU)
    with streams.ordered(*works[:2]):
        pass
    assert gpu.steps.count("on lane1") == 1
    assert works[0].stream_events.finished is works[1].stream_events.finished
    with streams.ordered(works[2], aside=True):
        pass
    streams.delivered(works[2])
    assert waits(gpu)[-2:] == ["lane2 waits for script", "script waits for lane2"]
