"""Memory that an MPI proxy shares with its rank, and what lies there when the rank's has been let go."""

import os

import pytest

from ringleader.engine.mpi_proxy.libc_calls import Mapped

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
