"""Every way in which a job can end, on the embedded MPI: who is blamed, and that nothing is left."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
from tests.time_limits import patience

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "campaigns"))
import faults
import programs

pytestmark = pytest.mark.mpi

SLEEPER = "import time; print('up', flush=True); time.sleep(120)  # ringleader-test-rank"


def sleeping(workplace, python, *words, program=SLEEPER, ranks=2, **options):
    """Start ranks that print ``up`` and sleep; return the launcher."""
    command = ("run", "-n", str(ranks), "--oversubscribe", "--mpi", "embedded", *words, python, "-c", program)
    launcher = workplace.ringleader(*command, **options)
    for _ in range(ranks):
        assert b"up" in launcher.stdout.readline(), launcher.communicate()
    return launcher


@pytest.mark.parametrize(
    ("fault", "target"),
    [
        *(("int", "launcher"), ("term", "launcher"), ("kill", "rank"), ("segv", "supervisor")),
        *(pytest.param("kill", who, marks=pytest.mark.long) for who in ("agent", "agent_outer", "mpirun")),
    ],
)
def test_who_was_hit_is_named_and_nothing_is_left(fault, target):
    """Trials of the campaign of faults, with twice the time that it allows."""
    row = faults.Row("host", fault, target, "training")
    found = faults.one(row, random.Random(1), None, "embedded", time_factor=2.0)
    assert not found["faults"], (found["faults"], found["whose"], found["output"][-20:])


def test_an_interrupt_while_a_rank_waits_at_its_end_for_the_others_ends_the_job(workplace, python):
    script = (
        "import atexit, os, signal, threading, time\n"
        "from ringleader.adapters.basics import begin_session, rank\n"
        "from ringleader.adapters.numpy_adapter import NumpyAdapter\n"
        "begin_session(NumpyAdapter, None, None)\n"
        "def interrupt():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "if rank() == 1:\n"
        "    atexit.register(threading.Timer(0.5, interrupt).start)\n"
        "else:\n"
        "    time.sleep(120)\n"
    )
    outcome, _ = workplace.launch(python, "-c", script)
    assert (outcome.exit_code, outcome.whose) == (130, "rank 1")
    assert "SIGINT" in outcome.reason


def test_sigkill_of_ringleader_ends_children_that_called_setsid(workplace, python):
    child = "import os, time; os.setsid(); print('up', flush=True); time.sleep(120)  # ringleader-far-child"
    program = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(120)"
    )
    launcher = sleeping(workplace, python, program=program)
    workplace.wait_for("ringleader-far-child", 2)
    launcher.kill()
    assert not workplace.gone_within(5.0)
    workplace.run("run", "-n", "1", "true")


def test_processes_a_rank_leaves_behind_are_ended_with_it(workplace, python):
    script = (
        "import subprocess, sys; subprocess.Popen(['sleep', '120'], start_new_session=True); print('left it')"
    )
    outcome, heard = workplace.launch(python, "-c", script)
    assert outcome.exit_code == 0
    assert heard.text(0) == heard.text(1) == "left it\n"
    assert not workplace.gone_within(1.0)


def test_time_out_prints_every_stack(workplace, python):
    script = "import time\ndef where_it_hangs():\n    time.sleep(120)\nwhere_it_hangs()"
    outcome, heard = workplace.launch(python, "-c", script, timeout=2.0)
    assert (outcome.exit_code, outcome.whose) == (124, "ringleader")
    assert "2 s" in outcome.reason
    stacks = [text for text in heard.warnings if "line 3 in where_it_hangs" in text]
    assert len(stacks) == 1 and stacks[0].startswith("rank 0 (localhost), rank 1 (localhost):")
    outcome, heard = workplace.launch("sleep", "120", timeout=0.5)
    assert sum("(sleep)" in warning and "S (sleeping)" in warning for warning in heard.warnings) == 2


def test_sigquit_prints_stacks_and_the_job_goes_on(workplace, python):
    """To the launcher on its own standard error, to a rank or its agent on the rank's."""
    script = "import sys, time\nprint('up', flush=True)\nsys.stdin.readline()\nprint('continued')  # MARK"
    launcher = sleeping(workplace, python, program=script, ranks=1, stdin=-1)
    for word in ("-m ringleader", "MARK", "rank_agent"):
        found = {pid: words for pid, words in workplace.processes().items() if word in words}
        own = [
            pid for pid, words in found.items() if words.startswith(python) and "ringleader run" not in words
        ]
        for pid in [launcher.pid] if word == "-m ringleader" else own:
            os.kill(pid, signal.SIGQUIT)
            while b'File "<string>", line 3 in <module>' not in (line := launcher.stderr.readline()):
                assert line, "the launcher ended without printing a stack"
            assert line.startswith(b"[0]") == (pid != launcher.pid), (word, line)
    out, _ = launcher.communicate(b"\n", timeout=30)
    assert launcher.returncode == 0 and b"continued" in out


def test_early_end_with_zero_is_a_warning_that_names_who_waits(workplace, python):
    script = "import os, time\nif os.environ['RANK'] == '0': time.sleep(3)"
    outcome, heard = workplace.launch(python, "-c", script, early=0.5)
    assert outcome.exit_code == 0
    assert len(heard.warnings) == 1
    assert "rank 1 ended" in heard.warnings[0] and "rank 0 (localhost)" in heard.warnings[0]


PLAIN_MPI = """
import atexit, os, signal, subprocess, sys, threading
how = sys.argv[1]
if how == "survive":
    if os.fork() == 0:
        raise ValueError("of a child")
    os.wait()
from mpi4py import MPI
comm = MPI.COMM_WORLD
print("pid", os.getpid(), flush=True)
atexit.register(lambda: print("exit handler", flush=True))
comm.Barrier()
if comm.rank == 0 and how == "import":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that MPI's end waits for it
if comm.rank == 1:
    if how == "hook":
        sys.excepthook = lambda kind, error, trace: print("my hook:", error, file=sys.stderr)
    if how in ("raise", "hook", "stuck"):
        if how == "stuck":
            atexit.register(lambda: threading.Event().wait())
        raise ValueError("my bug")
    if how == "exit":
        sys.exit(3)
    if how == "import":  # what an import leaves that was interrupted after it initialized MPI
        del sys.modules["mpi4py.MPI"]
    if how in ("interrupt", "import"):
        os.kill(os.getpid(), signal.SIGINT)
    if how == "survive":
        try:
            sys.exit(4)
        except SystemExit as error:
            kept = error
        thread = threading.Thread(target=sys.exit, args=(5,))
        thread.start(), thread.join()
        subprocess.run([sys.executable, "-c", "raise ValueError('of a helper')"])
comm.Barrier()
print("done")
"""


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        pytest.param("raise", 1, "ValueError: my bug", marks=pytest.mark.long),  # as in "hook" and "stuck"
        ("hook", 1, "my hook: my bug"),
        ("stuck", 1, "ValueError: my bug"),
        ("exit", 3, ""),
        pytest.param("interrupt", 130, "KeyboardInterrupt", marks=pytest.mark.long),  # as in "import"
        ("import", 130, "KeyboardInterrupt"),
        ("survive", 0, "ValueError: of a child"),
    ],
)
def test_script_that_ends_alone_under_plain_mpi4py(workplace, python, how, code, said):
    """mpi4py's end waits for all ranks: the job must not."""
    outcome, heard = workplace.launch(python, "-c", PLAIN_MPI, how, grace=1.0, timeout=patience(60.0))
    assert outcome.exit_code == code, outcome.reason
    assert outcome.whose == ("rank 1" if code else "")
    assert heard.text(1, "stderr").count("Traceback") == {"exit": 0, "hook": 0, "survive": 2}.get(how, 1)
    if code == 130:  # by itself, and not by our SIGKILL
        assert outcome.ends[1].signal == signal.SIGINT
    assert said in heard.text(1, "stderr")
    if how != "stuck":  # it was the last one registered, so the first called, and never ends
        assert "exit handler" in heard.text(1)
    if code == 0:
        assert heard.text(1).endswith("done\nexit handler\n") and "done" in heard.text(0)


HELPER = """
import atexit, os, subprocess, sys, time
words = ("sh", "-c", "trap 'echo told; exit 5' TERM; read line; echo closed")
helper = subprocess.Popen(words, stdin=subprocess.PIPE)
def end():
    time.sleep(1)
    helper.stdin.close()
    print("helper:", helper.wait(), flush=True)
atexit.register(end)
raise ValueError("my bug")
"""


def test_exit_handlers_of_a_script_that_failed_end_its_helpers_themselves(workplace, python):
    """As PyTorch's DataLoader does with its workers, and complains where somebody else has ended them."""
    outcome, heard = workplace.launch(python, "-c", HELPER, np=1, grace=20.0, timeout=patience(60.0))
    assert outcome.exit_code == 1, outcome.reason
    assert heard.text(0) == "closed\nhelper: 0\n"


def test_sigkill_of_everything_is_cleaned_at_the_next_start(workplace, python):
    launcher = sleeping(workplace, python, program=programs.IN_MPI)
    [job] = workplace.job_directories()
    segments = list(Path(f"/dev/shm/ringleader-{job}").iterdir())
    assert segments, "Open MPI keeps its shared memory where it was told to"
    victims = [
        launcher.pid,
        *workplace.wait_for("mpirun_supervisor", 1),
        workplace.mpirun(),
        *workplace.wait_for("agent.py", 4),
    ]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert not workplace.gone_within(5.0)
    assert Path(f"/dev/shm/ringleader-{job}").is_dir() and workplace.job_directories() == [job]
    workplace.run("run", "-n", "1", "true")
    assert not Path(f"/dev/shm/ringleader-{job}").exists() and workplace.job_directories() == []


def test_an_exit_code_that_becomes_0_is_told(workplace, python):
    outcome, heard = workplace.launch(python, "-c", "import sys; sys.exit(512)", np=1, timeout=patience(60.0))
    assert outcome.exit_code == 0
    assert "exit code 0: a code has 8 bits" in heard.text(0, "stderr")
