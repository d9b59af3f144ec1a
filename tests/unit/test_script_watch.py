"""What a rank's Python reports of a script that reports nothing: steps, collectives, waiting."""

import ast
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.commands import finished

from ringleader.agents import script_watch
from ringleader.agents.script_watch import (
    MOST_BYTES,
    Steps,
    flight_record,
    line_of,
    next_reading,
    ras_findings,
    waited,
)

SECOND = 10**9


class Counted:
    def __init__(self):
        self.steps = 0
        self.by = ""
        self.watch = Steps(self.at)

    def at(self, steps, by):
        self.steps, self.by = steps, by

    def torch_step(self, *optimizers):
        """A step of an optimizer, which may wrap others: their steps are within its own."""
        for optimizer in optimizers:
            self.watch.before_torch(optimizer, (), {})
        for optimizer in reversed(optimizers):
            self.watch.after_torch(optimizer, (), {})


class Optimizer:
    pass


def test_what_counts_as_a_step():
    one, ones = Optimizer(), [Optimizer() for _ in range(3)]
    for turn in ([one], ones, [one]):
        counted = Counted()
        for _ in range(5):
            for optimizer in turn:
                counted.torch_step(optimizer)
        assert (counted.steps, counted.by) == (5, "torch.optim")
    wrapped, raised, keras = Counted(), Counted(), Counted()
    wrapped.torch_step(one, one)
    raised.watch.before_torch(one)
    raised.torch_step(one)
    assert wrapped.steps == raised.steps == 1
    for _ in range(4):
        keras.watch.add("keras.optimizers", 1)
        keras.watch.add("keras", 1)
    keras.watch.add("keras", 3)
    assert (keras.steps, keras.by) == (7, "keras"), "of counters of the same steps the farthest counts"


def optimizer_module(hooks, **torch):
    """As much of ``torch.optim.optimizer`` as a watch needs to begin."""
    return SimpleNamespace(
        __name__="torch.optim.optimizer",
        torch=SimpleNamespace(**torch),
        register_optimizer_step_pre_hook=hooks.append,
        register_optimizer_step_post_hook=hooks.append,
    )


def test_an_error_of_ours_in_a_hook_is_none_of_the_scripts():
    hooks = []
    watch = script_watch.Watch(SimpleNamespace(start=lambda: 1 // 0), lambda _line: None, "")
    watch.begin(optimizer_module(hooks))
    assert [hook(Optimizer(), (), {}) for hook in hooks] == [None, None]


def test_hooks_are_hidden_from_pytorchs_compiler():
    """``torch.optim.optimizer`` hides its own methods by ``torch._disable_dynamo``, from PyTorch 2.1 on."""
    hooks, hidden = [], []
    module = optimizer_module(hooks, _disable_dynamo=lambda hook: hidden.append(hook) or hook)
    script_watch.Watch(SimpleNamespace(), lambda _line: None, "").begin(module)
    assert hooks == hidden and len(hooks) == 2


def test_a_record_is_made_in_older_pythons():
    """Python 3.8 joins no dicts by ``|``: the source that a script's Python loads has to do without."""
    for file in ("script_watch.py", "training_progress.py", "python_startup/sitecustomize.py"):
        tree = ast.parse((STARTUP.parent / file).read_text(), feature_version=(3, 8))
        joins = [one for one in ast.walk(tree) if isinstance(getattr(one, "op", None), ast.BitOr)]
        parts = [part for one in joins for part in ast.iter_child_nodes(one)]
        assert not [part.lineno for part in parts if isinstance(part, ast.Dict)]


STARTUP = Path(script_watch.__file__).parent / "python_startup"
OPTIMIZER = """
import torch
HOOKS = []
register_optimizer_step_pre_hook = register_optimizer_step_post_hook = HOOKS.append
def step(self=object()):
    for hook in HOOKS:
        hook(self, (), {})
"""
"""As much of ``torch/optim/optimizer.py`` (PyTorch 2.13) as a watched script needs."""


def rank(tmp_path, script, python=sys.executable):
    """Run a script as a rank's Python; what it wrote to the report pipe."""
    (tmp_path / "torch" / "optim").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "optim" / "__init__.py").write_text("")
    (tmp_path / "torch" / "optim" / "optimizer.py").write_text(OPTIMIZER)
    read, write = os.pipe()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{STARTUP}:{tmp_path}"}
    environ["RINGLEADER_REPORT_FD"] = str(write)
    command = [python, "-c", script]
    with open(read, "rb") as reports:
        try:
            done = finished(command, env=environ, pass_fds=[write], timeout=60)
        finally:
            os.close(write)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return [json.loads(line) for line in reports]


@pytest.mark.process
@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_scripts_of_other_pythons_are_watched(tmp_path, version):
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python {version}")
    reports = rank(tmp_path, "from torch.optim.optimizer import step\nfor _ in range(3): step()", found)
    assert reports[0]["kind"] == "context" and reports[-1]["steps"] == 3


@pytest.mark.process
@pytest.mark.parametrize(
    "finder",
    [
        "class Finder: pass",
        "class Finder:\n    find_spec = None",
        "class Loader:\n    __slots__ = ()\n    def create_module(self, spec): return None\n"
        "    def exec_module(self, module): module.step = lambda: None\n"
        "class Finder:\n    def find_spec(name, path, target=None):\n"
        "        if name.endswith('.optimizer'): return importlib.machinery.ModuleSpec(name, Loader())",
        "class Finder:\n    @staticmethod\n    def find_spec(name, path, target=None):\n"
        "        if name.endswith('.optimizer'): return importlib.machinery.ModuleSpec(name, one)\n"
        "class Loader:\n    def create_module(self, spec): return None\n"
        "    def exec_module(self, module): module.step = lambda: None\n"
        "one = Loader()\nimport torch.optim\nimportlib.util.find_spec('torch.optim.optimizer')",
    ],
)
def test_finders_and_loaders_of_any_kind_may_stand_before_pythons(tmp_path, finder):
    into = "sys.meta_path.insert(1, Finder)\n"
    head = "import importlib.machinery, importlib.util, sys, torch.optim\n"
    import_twice = "importlib.util.find_spec('torch.optim.optimizer')\n"
    rank(tmp_path, f"{head}{finder}\n{into}{import_twice}from torch.optim.optimizer import step\nstep()")


STACKS = """
import os
os.{gone}
import runpy
startup = runpy.run_path({startup!r})
import signal, sys
for path in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + path)
    except OSError:
        continue
    if "ringleader-stacks" in target:
        print(target)
        signal.raise_signal(startup["ASKED"])
        print(os.pread(int(path), 1000, 0).decode(), flush=True)
        break
os.write(2, b"asked\\n")
signal.raise_signal(signal.SIGQUIT)
print("alive")
"""


@pytest.mark.process
@pytest.mark.parametrize("has_directory", [True, False])
def test_stacks_need_no_file_in_memory_and_sigquit_writes_them_on_standard_error(tmp_path, has_directory):
    """Pythons built for a glibc before 2.27 have no ``os.memfd_create``."""
    script = STACKS.format(gone="__dict__.pop('memfd_create', None)", startup=f"{STARTUP}/sitecustomize.py")
    environ = {"RINGLEADER_STATUS_FILE": f"{tmp_path if has_directory else '/nowhere'}/status"}
    done = finished([sys.executable, "-c", script], env=environ, timeout=60)
    assert done.returncode == 0 and "alive" in done.stdout, done.stderr
    before, _, after = done.stderr.partition("asked\n")
    assert before == "" and "(most recent call first)" in after
    assert ("(most recent call first)" in done.stdout) is has_directory
    if has_directory:
        assert f"{tmp_path}/ringleader-stacks." in done.stdout
        assert not list(tmp_path.iterdir())


def entry(number, *, at=0, sizes=((5,),), name="gloo:all_reduce", **more):
    """One entry as PyTorch 2.13's flight recorder dumps it (format 2.10)."""
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number,
        "p2p_seq_id": 0, "op_id": number, "profiling_name": name, "time_created_ns": at,
        "input_sizes": [list(size) for size in sizes], "input_dtypes": ["Float"], "output_sizes": [],
        "output_dtypes": [], "state": "scheduled", "retired": True, "timeout_ms": 1, "is_p2p": False, **more,
    }  # fmt: skip


def test_how_long_steps_waited():
    for calls, begun, expected in (
        (((1, 2, 1000), (2, 4, 100)), (1, 11), (1, 10.0, 7.0)),  # from the last gradients to the optimizer
        (((1, 4, 1000), (2, 9, 1)), (1, 11), (1, 10.0, 5.0)),  # or to a loss that is averaged
        (((9, 25, 1000),), (1, 11, 21, 31), (1, 10.0, 6.0)),  # of steps that the recorder still has
        ((), (1, 2, 3), (0, 0.0, 0.0)),
        (((9, 25, 1000),), (), (0, 0.0, 0.0)),
    ):
        entries = [entry(number, at=at * SECOND, sizes=[(size,)]) for number, at, size in calls]
        assert waited(entries, [at * SECOND for at in begun]) == expected


def library(gloo=(), nccl=None):
    """PyTorch's C extension, as far as it dumps what it recorded: a pickle, as ``_dump_fr_trace`` returns."""
    found = SimpleNamespace(
        _dump_fr_trace=lambda *_: pickle.dumps({"version": "2.10", "entries": list(gloo)})
    )
    if nccl is not None:
        found._dump_nccl_trace = lambda *_: pickle.dumps({"version": "2.10", "entries": list(nccl)})
    return found


def test_which_entries_are_done():
    """Those of Gloo when they are retired, those of NCCL when they are completed."""
    one, other = flight_record(library([entry(1), entry(2, at=5, retired=False)]))
    assert (one["done"], other["done"]) == (True, False)
    assert (one["group"], one["op"], one["seq"], one["sizes"]) == ("0", "all_reduce", 1, [[5]])
    entries = [entry(n, at=n, name="nccl:all_reduce", state=s) for n, s in ((1, "completed"), (2, "started"))]
    assert [one["done"] for one in flight_record(library(nccl=entries))] == [True, False]


def test_a_line_fits_into_a_pipe_whatever_is_in_it():
    entries = [script_watch.entry_of(entry(number, sizes=[(7, 8)] * 50), 0) for number in range(160)]
    line = line_of({"kind": "collectives", "rank": 0, "size": 2, "groups": {}, "entries": entries})
    kept = json.loads(line)["entries"]
    assert len(line) <= MOST_BYTES and kept and kept[-1]["seq"] == 159


def test_the_flight_recorder_is_read_for_a_thousandth_of_the_time_at_most():
    assert next_reading(5, 0) == next_reading(5, 10**7) == 5 + 10 * 10**9
    assert next_reading(5, 31 * 10**6) == 5 + 31 * 10**9


def test_the_line_of_a_script_is_the_innermost_that_is_no_librarys():
    try:
        json.loads("{")
    except ValueError as error:
        found = script_watch.script_line(error.__traceback__)
    assert found[0] == __file__ and found[2].startswith("test_the_line")
    assert script_watch.script_line(None) == []


STATUS = """NCCL version 2.28.7 compiled with CUDA 12.9

Communicators... (0.00s)
=============

Errors
======

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  1 ranks have launched up to operation 22

"""
"""What NCCL's RAS service answers to STATUS: written from ``src/ras/client_support.cc`` of NCCL 2.28."""
FINDINGS = """#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  1 ranks have launched up to operation 22"""


def test_of_ras_status_errors_and_warnings_are_kept():
    assert ras_findings(STATUS) == FINDINGS
    assert ras_findings("") == ras_findings("NCCL version 2.28.7\n") == ""


@pytest.fixture
def nccl(monkeypatch):
    version = [(2, 28, 7)]
    torch = SimpleNamespace(cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: version[0])))
    monkeypatch.setitem(script_watch.sys.modules, "torch", torch)
    return version


@pytest.mark.parametrize(
    "environ", [{"NCCL_RAS_ENABLE": "0"}, {"NCCL_RAS_ADDR": "127.0.0.1:1"}, {"NCCL_RAS_ADDR": "nonsense"}, {}]
)
def test_ras_is_not_asked_where_it_cannot_answer(nccl, environ):
    if not environ:
        nccl[0] = (2, 27, 3)
    assert script_watch.nccl_ras(environ) == ""


@pytest.mark.parametrize("name", script_watch.BUFFER_SIZE)
def test_a_recorder_that_the_user_has_set_stays_so(monkeypatch, tmp_path, name):
    for one in script_watch.BUFFER_SIZE:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, "0")
    c10d = SimpleNamespace(_dump_fr_trace=None)
    torch = SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=c10d))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(script_watch.os, "mkfifo", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        script_watch.Watch(SimpleNamespace(), lambda _line: None, str(tmp_path / "status")).listen()
    assert [one for one in script_watch.BUFFER_SIZE if one in os.environ] == [name]


def answering(answers):
    """NCCL's RAS service for one client: a fake from ``src/ras/client_support.cc`` of NCCL 2.28."""
    listener, heard = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        connection, _ = listener.accept()
        with connection, listener:
            for answer in answers:
                heard.append(connection.recv(1024))
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return {"NCCL_RAS_ADDR": f"127.0.0.1:{listener.getsockname()[1]}"}, heard, thread


def test_ras_is_asked_in_its_protocol(nccl):
    environ, heard, thread = answering([b"SERVER PROTOCOL 2\n", b"OK\n", STATUS.encode()])
    assert script_watch.nccl_ras(environ) == FINDINGS
    thread.join(10)
    assert heard == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 1\n", b"STATUS\n"]
    for answers in ([b"HTTP/1.1 400\n"], [b"SERVER PROTOCOL 2\n", b"ERROR: x\n"], [b""]):
        assert script_watch.nccl_ras(answering(answers)[0]) == "", "whoever else answers is not believed"
