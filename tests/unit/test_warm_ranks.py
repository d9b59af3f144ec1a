"""What a script sees and leaves in a rank that was forked, against what `python script` does."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from itertools import count

import pytest
from tests.unit.host_agent_world import Launcher

WAYS = {
    "directory": ("place", "a"),
    "archive": ("archive.pyz", "a"),
    "module": ("-m", "place.script", "a"),
    "package": ("-m", "place", "a"),
    "absolute": ("{}/place/script.py", "a"),
    "unbuffered": ("-u", "place/script.py", "a"),
    "link": ("link.py", "a"),
    "no script": ("missing.py",),
    "no module": ("-m", "no_such_module"),
}


pytestmark = pytest.mark.process
PRELOAD = ("json", "logging", "multiprocessing", "numpy")


@pytest.fixture(scope="module")
def launcher(tmp_path_factory):
    made = Launcher(tmp_path_factory.mktemp("job"))
    made.begin()
    made.prepare(PRELOAD, env={"PYTHONUNBUFFERED": "1"})  # as for all ranks
    made.until("prepared")
    yield made
    made.bye()
    made.close()


numbers = count(1)


def both(launcher, directory, *argv):
    """How a command ends as its own process, and as a warm rank."""
    env = {"PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    fresh = subprocess.run(
        (sys.executable, *argv),
        cwd=directory,
        env={**os.environ, **env},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    rank, ended = launcher.run(next(numbers), *argv, cwd=str(directory), env=env)
    code = ended["exit_code"] if ended["signal"] is None else -ended["signal"]
    return (
        {"stdout": fresh.stdout.decode(), "stderr": fresh.stderr.decode(), "code": fresh.returncode},
        {"stdout": rank.stdout.decode(), "stderr": rank.stderr.decode(), "code": code},
    )


SCRIPTS = {
    "names": "print(sorted(n for n in globals())); print(__name__, __file__, __spec__, __doc__, __package__)",
    "loader": "print(type(__loader__).__name__, __loader__.name, __loader__.path)",
    "argv": "import sys; print(sys.argv, sys.orig_argv[1:], sys.executable, sys.flags)",
    "path": "import sys; print([p for p in sys.path if 'python_startup' not in p])",
    "main": "import sys; x = 5; m = sys.modules['__main__']; print(m.x, m.__dict__ is globals())",
    "exception": "def f(n):\n    return 1 / n\nf(0)\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('two') from e\n",
    "syntax": "x = = 1\n",
    "exit_code": "import sys; sys.exit(300)",
    "exit_words": "import sys; sys.exit('some words')",
    "exit_now": "import os; print('x'); os._exit(9)",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)",
    "hook": "import sys; sys.excepthook = lambda t, v, b: print('mine', t, v, b.tb_lineno); 1 / 0",
    "atexit": "import atexit; atexit.register(print, 'at exit'); print('end'); raise SystemExit(2)",
    "thread": (
        "import threading, time\n"
        "print(threading.current_thread() is threading.main_thread())\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        "print('end')\n"
    ),
    "finalizer": "class A:\n    def __del__(self): print('gone')\na = A()\n",
    "signals": (
        "import signal, os\n"
        "numbers = sorted(signal.valid_signals() - {3, 15})\n"
        "print([(n, str(signal.getsignal(n))) for n in numbers], signal.pthread_sigmask(0, []))\n"
    ),
    "descriptors": (
        "import os\n"
        "print([n for n in sorted(map(int, os.listdir('/proc/self/fd'))) if n < 3])\n"
        "print(open(0).read() == '', os.isatty(1))\n"
    ),
    "warnings": "import warnings; warnings.warn('look'); import logging; logging.warning('here')",
    "main_of_pickle": (
        "import multiprocessing as m\n"
        "def f(x): return x + 1\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1, 2]))\n"
    ),
    "stacks": "import inspect, traceback as t; print(inspect.stack()[0].lineno, t.extract_stack()[-1])",
    "streams": (
        "import sys\n"
        "for s in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through)\n"
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_in_a_python_of_its_own(launcher, tmp_path, name):
    (tmp_path / "script.py").write_text(SCRIPTS[name])
    fresh, warm = both(launcher, tmp_path, "script.py", "one", "--two")
    assert warm == fresh


def test_ranks_are_no_copies_in_what_they_draw(launcher, tmp_path):
    (tmp_path / "script.py").write_text(
        "import json, random, numpy, os, uuid, tempfile, multiprocessing\n"
        "print(json.dumps([random.random(), numpy.random.rand(), numpy.random.default_rng().random(),"
        " str(uuid.uuid4()), next(tempfile._get_candidate_names()),"
        " multiprocessing.current_process().authkey.hex()]))\n"
    )
    drawn = [json.loads(launcher.run(next(numbers), "script.py", cwd=str(tmp_path))[0].stdout) for _ in "ab"]
    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_cores_and_group_and_limits(launcher, tmp_path):
    (tmp_path / "script.py").write_text(
        "import os, resource\n"
        "print(os.sched_getaffinity(0), os.getpgid(0) == os.getpid(), os.getcwd())\n"
        "print([n for n in os.environ if n in ('RINGLEADER_TOKEN', 'RINGLEADER_CONTROL', 'OF_THE_SERVER')])\n"
    )
    cpu = min(os.sched_getaffinity(0))
    rank, _ = launcher.run(next(numbers), "script.py", cwd=str(tmp_path), cpus=[cpu])
    assert rank.stdout.decode() == f"{{{cpu}}} True {tmp_path}\n[]\n"


@pytest.mark.parametrize("how", WAYS)
def test_every_way_to_name_a_script(launcher, tmp_path, how):
    text = (
        "import sys, helper; print(__name__, __file__, sys.argv, __package__, helper.__file__, not __spec__)"
    )
    place = tmp_path / "place"
    place.mkdir()
    for name in ("__main__.py", "script.py"):
        (place / name).write_text(text + "\n1 / 0\n")
    for name in ("helper.py", "__init__.py", "../helper.py"):
        if how in ("module", "package") or not name.startswith(".."):
            (place / name).write_text("")
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.write(place / "__main__.py", "__main__.py")
        archive.write(place / "helper.py", "helper.py")
    (tmp_path / "link.py").symlink_to("place/script.py")
    fresh, warm = both(launcher, tmp_path, *(word.format(tmp_path) for word in WAYS[how]))
    assert ("__main__" in fresh["stdout"]) is not how.startswith("no ")
    assert warm == fresh and fresh["code"] != 0


def test_stacks_are_printed_on_sigquit(launcher, tmp_path):
    (tmp_path / "script.py").write_text(
        "import time\ndef here():\n    print(1, flush=True)\n    time.sleep(600)\nhere()\n"
    )
    rank = launcher.start(next(numbers), "script.py", cwd=str(tmp_path))
    launcher.wait(lambda: rank.stdout, "its line")
    launcher.tell(rank, do="stacks")
    launcher.wait(lambda: rank.words("stacks"), "its stack")
    stacks = rank.words("stacks")
    assert (len(stacks["pythons"]), stacks["mute"], stacks["asked"]) == (1, [], 0)
    assert "in here" in stacks["pythons"][0]["text"] and b"in here" not in rank.stderr
    launcher.tell(rank, do="stop", grace=60.0)
    assert launcher.finish(rank)["signal"] == signal.SIGTERM
