"""What a process that forks others closes in them, and which processes are below it."""

import os

import pytest

from ringleader.agents import process_tree


@pytest.mark.process
def test_a_child_has_the_standard_descriptors_and_those_it_is_to_have() -> None:
    kept = [os.memfd_create("kept") for _ in range(4)]
    others = [os.memfd_create("other") for _ in range(3)]
    kept.append(os.dup2(kept[0], max(*kept, *others) + 10))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            process_tree.close_all_but([*kept, write, 1])
            os.write(write, " ".join(map(str, sorted(process_tree.open_descriptors()))).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        there = set(map(int, answer.read().split()))
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (*kept, *others):
        os.close(fd)
    assert there - {0, 1, 2} == {*kept, write}
