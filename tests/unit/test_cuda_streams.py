"""The order of operations on the streams of a GPU, of which every step is noted here."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tests.collectives.programs import fake_cuda

from ringleader.engine.operations import Signature, Work
from ringleader.torch.cuda.cuda_streams import CudaStreams

CPU = torch.device("cpu")


class Stream:
    def __init__(self, steps: list[str], name: str) -> None:
        self.steps, self.name = steps, name

    def record_event(self) -> str:
        return self.name

    def wait_event(self, event: str) -> None:
        self.steps.append(f"{self.name} waits for {event}")


class Gpu:
    """What is used of torch.cuda; `current` is the stream of the script."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.current = self.new("script")
        self.made = 0

    def new(self, name: str) -> Stream:
        return Stream(self.steps, name)

    def current_stream(self, device: torch.device) -> Stream:
        return self.current

    def Stream(self, device: torch.device) -> Stream:
        self.made += 1
        return self.new(f"lane{self.made}")

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        yield

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.steps.append(f"on {stream.name}")
        yield


def work() -> Work:
    array: Any = torch.zeros(2)
    signature = Signature(kind="allreduce", dtype="float32", shape=(2,), device="cuda")
    return Work(signature, 0, name="one", serial=0, array=array, out=array)


def test_a_bucket_comes_after_every_stream_that_wrote_a_part_of_it() -> None:
    gpu = Gpu()
    streams, bucket = CudaStreams(gpu), work()
    script, side = gpu.current, gpu.new("side")
    for current in (script, side, script):
        gpu.current = current
        streams.written(bucket, CPU)
    streams.submitted(bucket, CPU)
    with streams.ordered(bucket):
        pass
    streams.delivered(bucket)
    assert gpu.steps == [
        "lane1 waits for script",
        "lane1 waits for side",
        "on lane1",
        "script waits for lane1",
    ]
    # The next time only those that write then.
    del gpu.steps[:]
    streams.submitted(bucket, CPU)
    with streams.ordered(bucket):
        pass
    assert gpu.steps == ["lane1 waits for script", "on lane1"]


def test_what_goes_aside_does_not_wait_behind_the_rest() -> None:
    gpu = Gpu()
    streams, first, second = CudaStreams(gpu), work(), work()
    for one in (first, second):
        streams.submitted(one, CPU)
    with streams.ordered(first):
        pass
    with streams.ordered(second, aside=True):
        pass
    streams.delivered(second)
    assert gpu.steps[-3:] == ["lane2 waits for script", "on lane2", "script waits for lane2"]


def test_works_of_two_gpus_have_a_stream_each_and_no_context_elsewhere() -> None:
    gpu = fake_cuda.Gpu(devices=3)
    gpu.set_device(1)
    streams, works = CudaStreams(gpu, gpu.record_stream), [work(), work()]
    first, second = torch.device("cpu", 1), torch.device("cpu", 2)
    for one, device in zip(works, (first, second), strict=True):
        streams.submitted(one, device)
    del gpu.steps[:]

    def carry_out() -> None:  # in a thread of the engine's, where GPU 0 is the current one
        with streams.ordered(*works, carrier=first):
            assert gpu.current_device() == 1
            assert [gpu.current_stream(device).name for device in (first, second)] == ["lane2", "lane1"]

    thread = threading.Thread(target=carry_out)
    thread.start()
    thread.join()
    for one in works:
        streams.delivered(one)
    assert gpu.contexts == {1, 2}
    assert gpu.steps[-2:] == ["script1 waits for lane2", "script2 waits for lane1"]


def test_several_at_once_are_one_entry() -> None:
    gpu = Gpu()
    streams, works = CudaStreams(gpu), [work(), work()]
    for one in works:
        streams.submitted(one, CPU)
    with streams.ordered(*works):
        pass
    assert gpu.steps == ["lane1 waits for script"] * 2 + ["on lane1"]
    assert works[0].stream_events.finished is works[1].stream_events.finished
