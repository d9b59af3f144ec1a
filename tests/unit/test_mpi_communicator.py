"""Which call of mpi4py's a call becomes, messages with their lengths, and what is shared with a proxy."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest
from tests.commands import finished

from ringleader.agents.rank_identity import host_identity, host_key
from ringleader.engine import loaded_mpi
from ringleader.engine.communicator import (
    ANY,
    BLOCK_BYTES,
    OPERATIONS,
    SHORT_BYTES,
    Call,
    Communicator,
    block_of,
)
from ringleader.engine.engine_settings import read_settings
from ringleader.engine.exceptions import WorldError
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.mpi_communicator import MpiCommunicator
from ringleader.engine.mpi_proxy.libc_calls import Mapped

NAMES = "UINT8_T INT8_T UINT16_T INT16_T UINT32_T INT32_T UINT64_T INT64_T FLOAT DOUBLE"


class Raw:
    """A communicator of three ranks that notes its calls; this one is MPI's rank 1."""

    size, rank = 3, 1

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments, **options: self.calls.append((name, arguments, options))

    def Iprobe(self, source, tag, status):
        status.found = source
        return True


class Status:
    found = 0

    def Get_source(self):
        return max(self.found, 0)

    def Get_count(self, kind):
        return 7


MPI = SimpleNamespace(
    BYTE="BYTE",
    IN_PLACE="IN_PLACE",
    ANY_SOURCE=-99,
    Status=Status,
    **{name: name for name in (*NAMES, *OPERATIONS)},
)


def called(call, places=None, **operands):
    raw = Raw()
    MpiCommunicator(MPI, raw, places).begin(call, **operands)
    return raw.calls[0]


def test_in_another_order_peers_and_parts_are_mpis():
    """Here rank 0 is MPI's 2, rank 1 is MPI's 0, rank 2 is MPI's 1."""
    places, one, three = [2, 0, 1], bytearray(4), bytearray(12)
    assert MpiCommunicator(MPI, Raw(), places).rank == 2
    parts = [[4, 4, 4], [4, 8, 0], "BYTE"]
    assert called(Call.ALLGATHER, places, source=one, target=three) == (
        "Iallgatherv",
        ([one, 4, "BYTE"], [three, *parts]),
        {},
    )
    assert called(Call.ALLTOALL, places, source=three, target=three) == (
        "Ialltoallv",
        ([three, *parts], [three, *parts]),
        {},
    )
    assert called(Call.ALLGATHERV, places, source=one, target=three, listed=[4, 3, 5, 0, 4, 7])[1][1] == [
        three,
        [3, 5, 4],
        [4, 7, 0],
        "BYTE",
    ]
    assert called(Call.SEND, places, source=one, peer=0, tag=5)[2] == {"dest": 2, "tag": 5}
    assert called(Call.RECEIVE, places, target=one, peer=1)[2]["source"] == 0
    assert called(Call.BROADCAST, places, target=one, peer=2)[2] == {"root": 1}
    comm = MpiCommunicator(MPI, Raw(), places)
    assert comm.probe(0, 1) == (0, 7)
    assert comm.probe(ANY, 1) == (1, 7), "MPI's rank 0 has sent it"


def test_memory_without_bytes_is_taken_and_a_duplicate_in_the_making_not_asked():
    """MPI gives no answer about a communicator before the request that makes it is done."""
    name, (source, target), _ = called(Call.ALLTOALL, [1, 0, 2], source=bytearray(), target=bytearray())
    assert name == "Ialltoallv" and source[1] == [0, 0, 0] == target[2 - 1]
    made, request, raw = object(), object(), Raw()
    raw.Idup = lambda: (made, request)
    duplicate, under_way = MpiCommunicator(MPI, raw).begin_duplicate()
    assert (duplicate.comm, duplicate.rank, duplicate.size, under_way) == (made, 1, 3, request)


class Ranks(Communicator):
    """Rank 0 of several, of which each has a message."""

    rank = 0

    def __init__(self, messages):
        self.size, self.all, self.called = len(messages), messages, list[Call]()

    def run(self, call, **operands):
        target = operands["target"]
        self.called.append(call)
        if call is Call.ALLGATHER:
            assert operands["source"] == block_of(self.all[0])
            target[:] = b"".join(block_of(message) for message in self.all)
            assert len(target) == BLOCK_BYTES * self.size
        elif call is Call.ALLGATHERV:
            target[:] = b"".join(self.all)
        else:
            assert call is Call.BROADCAST
            sent = self.called.count(call) - 1
            target[:] = b"".join(self.all)[sent * len(target) :][: len(target)]


def test_short_messages_come_out_as_they_went_in():
    for messages in ([b""], [b"a"], [b"", b"bc", b"x" * SHORT_BYTES], [b"\0" * 3, b"\xff" * 5]):
        ranks = Ranks(messages)
        assert ranks.messages(messages[0]) == messages
        assert ranks.called == [Call.ALLGATHER]


def test_one_that_is_too_long_has_all_wait_for_a_second_call():
    messages = [b"a", b"x" * (SHORT_BYTES + 1), b""]
    ranks = Ranks(messages)
    assert ranks.messages(messages[0]) == messages
    assert ranks.called == [Call.ALLGATHER, Call.ALLGATHERV]


def test_no_call_carries_more_than_it_may():
    """Counts of MPI's calls are 32-bit numbers."""
    messages = [b"x" * 600, b"y" * 600]
    ranks, traffic, unused = Ranks(messages), mock.Mock(), mock.Mock()
    calls = MpiCalls(ranks, unused, polling=False, most_bytes=200, traffic=traffic)
    assert calls.messages(messages[0]) == messages
    assert ranks.called == [Call.ALLGATHER, *[Call.BROADCAST] * 6]
    assert not traffic.mock_calls, "they are no arrays of the script's"


NBYTES = 3 * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def shared():
    fd = os.memfd_create("test")
    os.ftruncate(fd, NBYTES)
    os.pwrite(fd, bytes(range(1, 201)) * (NBYTES // 200), 0)
    yield fd
    os.close(fd)


def test_what_is_still_sent_stays_and_everything_else_is_nobodys(shared):
    mapped = Mapped(os.dup(shared), NBYTES)
    view, before = mapped.view, bytes(mapped.view)
    kept = [(0, 10), (5000, 4000)]
    mapped.disown(kept)
    assert bytes(view[:10]) == before[:10] and bytes(view[5000:9000]) == before[5000:9000]
    assert not any(view[10:5000]) and not any(view[9000:])
    view[0:4] = b"late"  # a message for memory that the rank has used again by now
    assert os.pread(shared, NBYTES, 0) == before
    os.pwrite(shared, b"\0" * NBYTES, 0)
    assert bytes(view[5000:9000]) == before[5000:9000], "the rank's memory is another now"
    mapped.unmap()


def test_memory_that_cannot_be_mapped_is_told(shared):
    with pytest.raises(OSError, match="memory shared with a rank is not mapped"):
        Mapped(os.dup(shared), 0)


@pytest.mark.parametrize("version", ["4.0.3", "5.0.0"])
def test_another_mpi4py_is_named_before_mpi_starts(version, monkeypatch):
    module = ModuleType("mpi4py")
    module.__version__, module.__file__ = version, "/image/mpi4py/__init__.py"
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    with pytest.raises(WorldError, match=rf"mpi4py {version} \(/image/.*pip install 'mpi4py>=4.1,<5'"):
        loaded_mpi.load(read_settings({}))


BEGIN_ANEW = """
import os, runpy, sys
def execv(program, words):
    print(os.environ["LD_LIBRARY_PATH"])
    print(*sorted(name for name in sys.modules if name.startswith("ringleader.engine")))
    sys.exit(0)
os.execv = execv
runpy.run_module("ringleader.engine.mpi_proxy", run_name="__main__", alter_sys=True)
"""


@pytest.mark.process
def test_a_proxy_makes_links_before_it_imports_what_it_needs(tmp_path):
    """It begins anew with them, and would import all of it twice."""
    environ = {
        **os.environ,
        "RINGLEADER_PROXY_LIBRARY_LINKS": '{"libmpi.so.40": "/opt/mpi/libmpi.so.41"}',
        "RINGLEADER_JOB_DIR": str(tmp_path),
        "LD_LIBRARY_PATH": "/usr/lib/mine",
    }
    (tmp_path / host_key(host_identity())).mkdir()
    done = finished([sys.executable, "-c", BEGIN_ANEW], env=environ, check=True, timeout=60)
    path, modules = done.stdout.splitlines()
    links, rest = path.split(":")
    assert rest == "/usr/lib/mine" and Path(links).is_relative_to(tmp_path)
    assert (Path(links) / "libmpi.so.40").readlink() == Path("/opt/mpi/libmpi.so.41")
    assert modules.split() == ["ringleader.engine", "ringleader.engine.mpi_proxy"]
