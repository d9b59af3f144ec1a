"""The launcher's standard input, when rank 0 ends at the moment at which there is something to read."""

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ringleader.agents import protocol
from ringleader.launch.supervision.ranks import StdinForwarding


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_what_is_there_is_passed_on_when_it_is_asked_for(pipe: tuple[int, int]) -> None:
    selector, server, agent = selectors.DefaultSelector(), mock.Mock(), mock.Mock()
    stdin = StdinForwarding(selector, server, pipe[0])
    os.write(pipe[1], b"for rank 0")
    assert not selector.get_map(), "nobody has asked"
    stdin.asked(agent)
    assert [key.data for key, _ in selector.select(1)] == [stdin.serve]
    stdin.serve(pipe[0])
    assert b"for rank 0" in server.send.call_args.args[1]
    assert not selector.get_map()


def test_rank_0_ends_in_the_turn_in_which_there_is_something_to_read(pipe: tuple[int, int]) -> None:
    """One look finds both; the end is served first."""
    selector, server = selectors.DefaultSelector(), mock.Mock()
    stdin = StdinForwarding(selector, server, pipe[0])
    os.write(pipe[1], b"for the next")
    stdin.asked(mock.Mock())
    seen: list[Any] = [(key.data, key.fd) for key, _ in selector.select(1)]
    stdin.close()
    for serve, fd in seen:
        serve(fd)
    server.send.assert_not_called()
    assert os.read(pipe[0], 100) == b"for the next", "it is left to whoever reads it next"


def test_a_terminal_that_is_not_our_controlling_terminal_is_read() -> None:
    """A serial console, ``setsid``, ``docker run -t``: such a terminal has no background."""
    master, terminal = os.openpty()
    selector, server = selectors.DefaultSelector(), mock.Mock()
    try:
        stdin = StdinForwarding(selector, server, terminal)
        os.write(master, b"typed\n")
        stdin.asked(mock.Mock())
        assert [key.data for key, _ in selector.select(1)] == [stdin.serve]
        stdin.serve(terminal)
        assert b"typed" in server.send.call_args.args[1]
    finally:
        os.close(master)
        os.close(terminal)


def test_in_the_background_of_our_controlling_terminal_nothing_is_read() -> None:
    selector, master_terminal = selectors.DefaultSelector(), os.openpty()
    try:
        stdin = StdinForwarding(selector, mock.Mock(), master_terminal[1])
        with mock.patch("os.tcgetpgrp", return_value=os.getpgrp() + 1):
            stdin.asked(mock.Mock())
        assert not selector.get_map()
    finally:
        for fd in master_terminal:
            os.close(fd)


@pytest.mark.parametrize("text", [b"for rank 0", b""], ids=["a file", "an empty one"])
def test_a_file_is_read_without_a_wait_for_it(tmp_path: Path, text: bytes) -> None:
    """epoll refuses it: there would always be something to read."""
    (tmp_path / "input").write_bytes(text)
    selector, server = selectors.DefaultSelector(), mock.Mock()
    with (tmp_path / "input").open("rb") as file:
        stdin = StdinForwarding(selector, server, file.fileno())
        stdin.asked(mock.Mock())
        if text:
            stdin.asked(mock.Mock())
        stdin.asked(mock.Mock())
        assert not selector.get_map()
    sent = [call.args[1] for call in server.send.call_args_list]
    assert sent[:-1] == ([protocol.frame(protocol.STDIN, text)] if text else [])
    assert sent[-1] == protocol.message(do="end_of_input"), "once"
