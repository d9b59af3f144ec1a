"""Commits of real ranks through a real host agent: they outlive ranks, become files, and return."""

import os
import signal
import textwrap
from pathlib import Path

import pytest
from tests.unit.host_agent_world import HOST, Launcher, gone

from ringleader.agents import protocol
from ringleader.agents.elastic import checkpoint_files

pytestmark = pytest.mark.process
BEGIN = """
    import os, sys, time
    from ringleader.agents.elastic.commit_memory import CommitMemory
    from ringleader.agents.elastic.generation_client import RankConnection
    agent = RankConnection(os.environ["RINGLEADER_HOST_AGENT"], int(os.environ["RINGLEADER_INCARNATION"]))
    memory = CommitMemory(lambda nbytes: agent.commit_memory(nbytes)[1], agent.committed)
    def commit(number, content):
        memory.buffer(len(content), number=number)[:] = content
        memory.set_number(number, len(content))
"""


@pytest.fixture
def launcher(tmp_path):
    made = Launcher(tmp_path)
    made.begin()
    made.prepare(["ringleader.agents.elastic.commit_memory"])
    made.until("prepared")
    yield made
    made.close()


def test_commits_that_come_fast_give_whole_files(launcher, tmp_path):
    """Ranks come round to a buffer while it is copied: what becomes a file is one commit, whole."""
    files = str(tmp_path / "files")
    launcher.agents.tell(HOST, do="checkpoint", directory=files, every=1)
    one = rank(launcher, tmp_path, 1, "for n in range(1, 120):\n    commit(n, b'%03d' % n * 1000000)\n")
    launcher.finish(one)
    launcher.until("committed", number=119)
    written = [event.path for event in launcher.events if event.do == "checkpointed"]
    content = bytearray(3000000)
    for path in checkpoint_files.files_in(files):
        try:
            number, nbytes = checkpoint_files.read(path, lambda nbytes: memoryview(content)[:nbytes])
        except checkpoint_files.CheckpointError:  # a newer file was finished meanwhile, so this one went
            assert not Path(path).exists()
            continue
        assert nbytes == 3000000 and content == b"%03d" % number * 1000000
    assert checkpoint_files.files_in(files) or not written


def rank(launcher, tmp_path, incarnation, text, **words):
    path = tmp_path / f"script-{incarnation}.py"
    path.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(text))
    return launcher.start(incarnation, str(path), **words)


def test_a_directory_that_cannot_be_written_is_told_and_the_job_goes_on(launcher, tmp_path):
    (tmp_path / "file").touch()
    launcher.agents.tell(HOST, do="checkpoint", directory=str(tmp_path / "file" / "below"), every=1)
    one = rank(launcher, tmp_path, 1, "commit(1, b'1'); print('on')")
    assert "Not a directory" in launcher.until("not_checkpointed").why
    assert launcher.finish(one)["exit_code"] == 0
    launcher.agents.tell(HOST, do="checkpoint", directory="/tmp", every="often")
    assert "invalid literal for int()" in launcher.until("host_failed").why, "it fails, and says why"


def test_commits_outlive_ranks_and_the_launcher_hears_of_them(launcher, tmp_path):
    one = rank(launcher, tmp_path, 1, "commit(1, b'a' * 5000); commit(2, b'b' * 6000); time.sleep(600)")
    assert launcher.until("committed", number=1).nbytes == 5000
    assert launcher.until("committed", number=2).nbytes == 6000
    launcher.kill(1)
    assert launcher.finish(one)["signal"] == signal.SIGKILL
    assert launcher.until("rank_gone").incarnation == 1
    text = """
        agent.wait(after=0, commits=memory.held(), reason="new")
        print(memory.held(), bytes(memory.view(2)) == b"b" * 6000, bytes(memory.view(1)) == b"a" * 5000)
    """
    other = rank(launcher, tmp_path, 2, text)
    assert launcher.finish(other)["exit_code"] == 0
    assert other.stdout == b"(2, 1) True True\n"
    waiting = launcher.until("rank_waiting")
    assert (waiting.incarnation, waiting.commits, waiting.reason) == (2, [2, 1], "new")


def test_every_nth_commit_becomes_a_file_and_a_new_job_loads_it(launcher, tmp_path):
    files = tmp_path / "files"
    launcher.agents.tell(HOST, do="checkpoint", directory=str(files), every=2)
    text = "for n in range(1, 8):\n    commit(n, b'%d' % n * 3000000)\n    sys.stdin.readline()\n"
    one = rank(launcher, tmp_path, 1, text, stdin=True)
    for number in range(1, 8):
        launcher.until("committed", number=number)
        if number % 2 == 0:
            done = launcher.until("checkpointed", number=number)
            assert Path(done.path).stat().st_size > 3000000
        launcher.server.send(one.connection, protocol.frame(protocol.STDIN, b"\n"))
    launcher.finish(one)
    names = sorted(path.name for path in files.iterdir())
    assert names == ["commit-000000000004.ringleader", "commit-000000000006.ringleader"]
    # Of the newest only a part is there: the one before counts.
    (files / names[1]).write_bytes((files / names[1]).read_bytes()[:-1])
    launcher.bye()
    launcher.begin()
    launcher.prepare(["ringleader.agents.elastic.commit_memory"])
    launcher.until("prepared")
    launcher.agents.tell(HOST, do="load_checkpoint", directory=str(files))
    loaded = launcher.until("checkpoint_loaded")
    assert (loaded.number, loaded.path) == (4, str(files / names[0]))
    assert len(loaded.refused) == 1 and "is cut off" in loaded.refused[0]
    two = rank(
        launcher,
        tmp_path,
        2,
        "print(memory.held(), bytes(memory.view(4)) == b'4' * 3000000, memory.origin(4))",
    )
    launcher.finish(two)
    assert two.stdout == f"(4,) True {files / names[0]}\n".encode()


def test_a_host_agent_takes_the_newest_good_file_whatever_else_there_is(launcher, tmp_path):
    files = tmp_path / "files"
    for number in (1, 2, 3):
        content = memoryview(b"%d" % number * 5000)
        checkpoint_files.write(str(files), content, number=number, intact=lambda: True)
    os.mkfifo(checkpoint_files.path_of(str(files), 4))
    third = Path(checkpoint_files.path_of(str(files), 3))
    third.write_bytes(third.read_bytes().replace(b'"number"', b'"nuMber"'))
    launcher.agents.tell(HOST, do="load_checkpoint", directory=str(files))
    loaded = launcher.until("checkpoint_loaded")
    assert loaded.number == 2 and len(loaded.refused) == 2
    assert "is not a regular file" in loaded.refused[0] and "its head cannot be read" in loaded.refused[1]
    one = rank(launcher, tmp_path, 1, "print(memory.held(), bytes(memory.view(2)) == b'2' * 5000)")
    assert launcher.finish(one)["exit_code"] == 0 and one.stdout == b"(2,) True\n"
    launcher.bye()
    assert gone([launcher.pid, launcher.outer], 10.0)
