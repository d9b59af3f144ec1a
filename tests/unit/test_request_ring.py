"""The memory between a rank and its MPI proxy: requests and completions go through it unchanged."""

import fcntl
import os
import resource
from collections import deque
from random import Random
from types import SimpleNamespace

import pytest

from ringleader.agents.elastic.generation_server import RING_BYTES
from ringleader.engine.communicator import MOST_LISTS, Call, SlicedCopy
from ringleader.engine.exceptions import is_transport_error
from ringleader.engine.mpi_communicator import SLICED_BYTES, MpiCommunicator, MpiPackedCopy
from ringleader.engine.mpi_proxy.channel import address_of
from ringleader.engine.mpi_proxy.libc_calls import DescriptorWait
from ringleader.engine.mpi_proxy.proxy_communicator import ProxyCommunicator
from ringleader.engine.mpi_proxy.request_ring import (
    ALIGNMENT,
    DATA_START,
    SLOTS,
    BlockAllocator,
    Completion,
    Memory,
    Record,
    RequestRing,
    Slots,
)


def test_who_sleeps_is_woken(sides):
    rank, proxy = sides
    assert not rank.push(Record(1, Call.BARRIER))
    assert not proxy.proxy_sleeps()  # something is there
    proxy.pop()
    assert proxy.proxy_sleeps()
    assert rank.push(Record(2, Call.BARRIER))
    proxy.proxy_awake()
    assert not rank.push(Record(3, Call.BARRIER))
    assert not proxy.complete(1, Completion())
    assert rank.completed == 1 and not rank.rank_sleeps(0)  # more was done
    assert not proxy.complete(2, Completion())
    assert rank.rank_sleeps(rank.completed) and proxy.complete(3, Completion())
    rank.rank_awake()
    assert not proxy.complete(4, Completion())


@pytest.fixture
def sides():
    memory = memoryview(bytearray(RING_BYTES))
    return RequestRing(memory), RequestRing(memory)


def any_record(random, number):
    def integer():
        return random.choice((0, 1, -1, 2**62, -(2**62), random.getrandbits(40)))

    def memory():
        return Memory(integer(), integer(), integer())

    return Record(
        number, random.choice(list(Call)), integer(), memory(), memory(), 3, 4, integer(), 6, memory()
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_goes_in_comes_out_in_order(sides, seed):
    rank, proxy = sides
    random, under_way, slots = Random(seed), deque[Record](), Slots()
    expected = {}
    for _ in range(5000):
        what = random.random()
        number = slots.take() if what < 0.5 else None
        if number is not None:
            record = any_record(random, number)
            under_way.append(record)
            assert not rank.done(number)
            rank.push(record)
        elif what < 0.9 and under_way:
            record = under_way.popleft()
            assert proxy.pop() == record
            completion = Completion(
                random.choice(("", "what MPI said: ä")),
                random.randrange(-1, 9),
                random.getrandbits(40),
            )
            proxy.complete(record.number, completion)
            expected[record.number] = completion
        elif expected:
            number, completion = expected.popitem()
            assert rank.done(number)
            if completion.error == rank.completion(number).error:
                assert rank.completion(number) == completion
            slots.give_back(number)
    assert [proxy.pop() for _ in under_way] == list(under_way)
    assert proxy.pop() is None


@pytest.mark.parametrize("above", [0, 1100])
def test_descriptors_are_waited_for(above):
    """Whatever their numbers are."""
    first, second = os.eventfd(0), os.eventfd(0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2000:
        pytest.skip("this process may not open this many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, limits[1]))
    try:
        high = fcntl.fcntl(second, fcntl.F_DUPFD_CLOEXEC, above)
        wait = DescriptorWait([first, high])
        assert wait.ready(0.0001) == []
        os.eventfd_write(second, 1)
        assert wait.ready(10) == [high]
        os.eventfd_write(first, 1)
        assert wait.ready(1.5) == [first, high]
        assert (os.eventfd_read(first), os.eventfd_read(high)) == (1, 1)
        assert wait.ready(0) == []
        os.close(high)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(first)
        os.close(second)


def test_numbers_are_never_the_same_again():
    slots = Slots()
    seen = set()
    for _ in range(3):
        numbers = [slots.take() for _ in range(SLOTS)]
        assert slots.take() is None
        assert None not in numbers
        assert len({number & 0xFFFF for number in numbers if number is not None}) == SLOTS
        assert not seen & set(numbers)
        seen |= set(numbers)
        for number in numbers:
            if number is not None:
                slots.give_back(number)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_do_not_overlap_and_come_back(seed):
    random, start, stop = Random(seed), 4096, 4096 + (1 << 16)
    blocks = BlockAllocator(start, stop)
    used = {}
    refused = 0
    for _ in range(3000):
        nbytes = random.choice((0, 1, 63, 64, 65, 1000, 1 << 14))
        if random.random() < 0.5:
            offset = blocks.take(nbytes)
            refused += offset is None
            if offset is not None:
                assert start <= offset <= stop - nbytes
                assert offset % ALIGNMENT == 0
                assert all(
                    offset + max(nbytes, 1) <= other or other + max(length, 1) <= offset
                    for other, length in used.items()
                )
                used[offset] = nbytes
        elif used:
            blocks.give_back(used.popitem()[0])
    assert refused
    for offset in used:
        blocks.give_back(offset)
    assert blocks.unused
    assert blocks.take(stop - start) == start
    with pytest.raises(KeyError):
        blocks.give_back(stop)


@pytest.mark.parametrize("why", [MemoryError("the host agent gives no memory: full"), OSError(12, "no room")])
def test_no_shared_memory_is_an_operations_failure(why):
    """An elastic job continues after it, and the text says how much was asked for."""

    def refuse(key, nbytes, parts):
        raise why

    channel = SimpleNamespace(open_memory=refuse)
    comm = ProxyCommunicator(channel, (0, 1), 0, "all", (0, 0), when_used=True)
    with pytest.raises(RuntimeError, match="no shared memory of 1,000,000 bytes each") as caught:
        comm.shared_memory(1_000_000)
    assert is_transport_error(caught.value) and str(why) in str(caught.value)


def test_there_is_room_for_data():
    assert RING_BYTES - DATA_START >= 512 << 10
    with pytest.raises(ValueError, match="no room"):
        RequestRing(memoryview(bytearray(DATA_START)))


def test_packed_pieces():
    scattered, packed = memoryview(bytearray(range(24))), memoryview(bytearray(8))
    comm = ProxyCommunicator(SimpleNamespace(), (0, 1), 0, "all", (0, 0), when_used=True)
    copy = comm.packed_copy(address_of(packed), [3, 1, 4])
    copy.pack([address_of(scattered) + start for start in (10, 0, 20)])
    assert list(packed) == [10, 11, 12, 0, 20, 21, 22, 23]
    other = memoryview(bytearray(24))
    copy.unpack([address_of(other) + start for start in (10, 0, 20)])
    assert [other[at] for at in (0, 10, 12, 23)] == [0, 10, 12, 23]
    assert sum(other) == sum(packed)
    sources = [memoryview(bytearray(range(at, at + 24))) for at in range(MOST_LISTS)]
    for source in (other, scattered, *sources, other):  # more than have their views kept
        if source is sources[-1]:  # a plan that is kept may outlive those that were forgotten
            copy.close()
        copy.pack([address_of(source) + start for start in (10, 0, 20)])
        assert list(packed) == [*source[10:13], source[0], *source[20:24]]


def test_packed_pieces_that_are_used_again_are_not_looked_up_again():
    """Results may be new in every step, while what is reduced lies where it lay."""
    packed, source = memoryview(bytearray(8)), memoryview(bytearray(8))
    looked_up = []

    class Counting(SlicedCopy):
        def _look_up(self, addresses):
            looked_up.append(addresses)
            return super()._look_up(addresses)

    copy = Counting(address_of(packed), [3, 5])
    where, results = [address_of(source), address_of(source) + 3], []
    for _ in range(3 * MOST_LISTS):
        copy.pack(where)
        results.append(memoryview(bytearray(8)))
        copy.unpack([address_of(results[-1]), address_of(results[-1]) + 3])
    assert looked_up.count(where) == 1


@pytest.mark.parametrize(("lengths", "by_mpi"), [([SLICED_BYTES, 3], True), ([2 * SLICED_BYTES, 3], False)])
def test_mpi_copies_what_is_short(lengths, by_mpi):
    memory = memoryview(bytearray(sum(lengths)))
    comm = MpiCommunicator.__new__(MpiCommunicator)
    comm._mpi = SimpleNamespace(buffer=SimpleNamespace(fromaddress=lambda address, nbytes: nbytes))
    assert isinstance(comm.packed_copy(address_of(memory), lengths), MpiPackedCopy) == by_mpi
