"""``ringleader.run``: results in order, exceptions as themselves."""

import os
import sys
import threading

import pytest

import ringleader
from ringleader.errors import RankError, RefusedError, RequestError

pytestmark = pytest.mark.mpi


def test_results_come_in_rank_order():
    assert ringleader.run(lambda base: base + int(os.environ["RANK"]), (10,), np=2, oversubscribe=True) == [
        10,
        11,
    ]


def test_large_results_and_arguments():
    data = os.urandom(5_000_000)
    assert ringleader.run(lambda given: given[::-1], (data,), np=1) == [data[::-1]]


def test_exception_comes_back_as_itself():
    def bad():
        if os.environ["RANK"] == "1":
            raise LookupError("only here")
        threading.Event().wait(60)

    with pytest.raises(LookupError, match="only here") as caught:
        ringleader.run(bad, np=2, oversubscribe=True, quiet=True)
    assert "in bad" in str(caught.value.__cause__)
    assert caught.value.__notes__ == ["raised on rank 1 on localhost"]


def test_exception_that_cannot_travel_keeps_its_words():
    def bad():
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(one)

        raise Odd("odd one", 2)

    with pytest.raises(RankError, match="odd one") as caught:
        ringleader.run(bad, np=1, quiet=True)
    assert "in bad" in str(caught.value.__cause__)


def test_result_that_cannot_be_pickled_is_a_clear_error():
    with pytest.raises(RankError, match="result cannot be pickled"):
        ringleader.run(threading.Lock, np=1, quiet=True)


def test_argument_that_cannot_be_pickled_is_a_request_error():
    with pytest.raises(RequestError, match="cannot be pickled"):
        ringleader.run(print, (threading.Lock(),), np=1)


def test_sys_exit_and_none():
    with pytest.raises(RankError) as caught:
        ringleader.run(lambda: sys.exit(4), np=1, quiet=True)
    assert caught.value.exit_code == 4
    assert ringleader.run(lambda: None, np=1) == [None]


def test_from_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(ringleader.run(lambda: 5, np=1)))
    thread.start()
    thread.join(60)
    assert found == [[5]]


def test_hosts_are_checked_first(tmp_path):
    log = tmp_path / "kernel.log"
    log.write_text("NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.\n")
    with pytest.raises(RefusedError, match=r"kernel\.xid: Xid 79"):
        ringleader.run(os.getpid, np=1, check="quick", kernel_log=str(log))
    log.write_text("")
    assert len(ringleader.run(os.getpid, np=1, check="quick", kernel_log=str(log))) == 1
    with pytest.raises(RequestError, match="--check"):
        ringleader.run(os.getpid, np=1, check="slow")
    with pytest.raises(RequestError, match="--spare-hosts"):
        ringleader.run(os.getpid, hosts="h1,h2", check="quick", spare_hosts=2)
