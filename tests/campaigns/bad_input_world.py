"""The world of one worker of the campaign: its own mounts, processes and network; a case runs in it.

The worker is process 1 of its PID namespace, so whatever is left of a case is a child of it, and /tmp,
/dev/shm, /run are empty file systems of its own: what a case leaves is found by looking.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bad_input_cases import HARMLESS, OK, PIPE, REFUSED, REQUEST, STREAMS, Case
from campaign import Result

from ringleader.bench import run_file
from ringleader.metrics import Sample
from ringleader.scaling import Context, Point, Run

WORK, HOME = Path("/mnt/work"), Path("/mnt/home")
MEASURED = Path(__file__).parents[1] / "golden/guide"
STORED = {"pairs": "p2p", "collective": "allreduce", "training": "train"}
"""Stored runs of the benchmarks, by the directory in which a case finds them."""
PYTHON_FOR_STRANGERS = "/mnt/python"
STRANGER = 65534
LIMIT_SECONDS, SERVICE_SECONDS, LEFT_SECONDS = 60.0, 4.0, 6.0
SWEPT = ("/tmp", "/dev/shm", "/run", "/var/tmp")
LONGEST_LINE = 1500
STOPPED = 143
"""A service that is told to stop while it starts."""
IN_OUTPUT = ("image check", "doctor")
"""Commands whose findings are their output."""
WANTED = (".dockerignore", ".ringleader-files", ".env")
"""Hidden files that a command is asked for."""
OF_OTHERS = (
    *("/mnt/home/.rustup", "/mnt/home/.config", "/run/containers"),
    *("/run/libpod", "/dev/shm/libpod_lock", "/run/crun", "/mnt/home/.local/share/containers"),
)
"""What programs that we call keep: rustc, whose version pip asks for, buildah and podman."""
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096

_libc = ctypes.CDLL(None, use_errno=True)


class Ended(NamedTuple):
    code: int | None
    """128+n for a signal; ``None`` where it had to be killed."""
    out: bytes
    err: str
    seconds: float
    left: list[str]


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def unmount(target: str) -> None:
    _libc.umount2(target.encode(), 2)


def make_world() -> None:
    """Give this process's namespaces empty directories of their own and a loopback device that is up."""
    for place in ("/mnt", *SWEPT):
        mount("tmpfs", place, "tmpfs", 0, "mode=1777" if place != "/mnt" else "mode=0755")
    os.makedirs(PYTHON_FOR_STRANGERS)
    mount(sys.base_prefix, PYTHON_FOR_STRANGERS, "", MS_BIND)
    with socket.socket() as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH22x", b"lo", 1 | 64))  # SIOCSIFFLAGS: up, running


class World:
    def __init__(self) -> None:
        """Listen for those who speak to a server that never answers, or answers rubbish."""
        self._plain: dict[tuple[str, ...], Ended] = {}
        self._servers = {name: socket.create_server(("127.0.0.1", 0)) for name in ("silent", "garbage")}
        threading.Thread(target=_talk, args=(self._servers["garbage"],), daemon=True).start()

    def result(self, case: Case) -> Result:
        plain = None
        if case.surroundings in (*HARMLESS, *STREAMS):
            if case.argv not in self._plain:
                self._plain[case.argv] = self._run(case, "plain")
            plain = self._plain[case.argv]
        ended = self._run(case, case.surroundings)
        faults = [*_judged(case, ended, plain), *(f"left behind: {one}" for one in ended.left)]
        return {
            "line": case.name,
            "command": case.command,
            "argv": [os.fsencode(word).decode(errors="backslashreplace")[:200] for word in case.argv],
            "surroundings": case.surroundings,
            "code": ended.code,
            "seconds": round(ended.seconds, 2),
            "message": next((line for line in ended.err.splitlines() if line.strip()), "")[:200],
            "faults": faults,
            "output": ended.err[-4000:].splitlines()[-12:],
        }

    def _run(self, case: Case, surroundings: str) -> Ended:
        with contextlib.ExitStack() as stack:
            program, environ, prepare = self._entered(surroundings, case, stack)
            before, out_path, err_path = _there(), Path("/mnt/out"), Path("/mnt/err")
            elsewhere = {"full-stdout": "/dev/full", "all-closed": "/dev/null", "closed-stdout": "/dev/null"}
            out = stack.enter_context(open(elsewhere.get(surroundings, out_path), "wb"))
            err = stack.enter_context(open("/dev/full" if surroundings == "full-stderr" else err_path, "wb"))
            if surroundings == "broken-stdout":
                reading, writing = os.pipe()
                os.close(reading)
                out = stack.enter_context(open(writing, "wb"))
            began = time.monotonic()
            process = subprocess.Popen(
                (*program, *case.argv),
                cwd=WORK,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=prepare,
            )
            code = _ended(process, case)
            seconds, text = time.monotonic() - began, _bytes(err_path).decode(errors="replace")
            return Ended(code, _bytes(out_path), text, seconds, _left(before))

    def _entered(
        self, name: str, case: Case, stack: contextlib.ExitStack
    ) -> tuple[tuple[str, ...], dict[bytes, bytes], Callable[[], None]]:
        """Make what a case finds around it; what others need is put back with ``stack``."""
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir()
        WORK.mkdir(exist_ok=True)
        mount("tmpfs", str(WORK), "tmpfs", 0, "size=8m,mode=0755")
        stack.callback(unmount, str(WORK))
        _make_files(case)
        program, user, steps = (sys.executable, "-m", "ringleader"), None, list[Callable[[], Any]]()
        environ = {
            key: value for key, value in os.environb.items() if not key.startswith((b"RINGLEADER", b"KUBE"))
        }
        path = os.fsencode(f"{Path(sys.executable).parent}{os.pathsep}")
        environ |= {
            b"KUBECONFIG": os.fsencode(WORK / "kubeconfig"),
            b"HOME": os.fsencode(HOME),
            b"PATH": path + environ.get(b"PATH", b"/usr/bin:/bin"),
            b"PYTHONDONTWRITEBYTECODE": b"1",
            b"OMP_NUM_THREADS": b"1",
            **VARIABLES.get(name, {}),
        }
        if name == "no-home":
            del environ[b"HOME"]
        for place in READ_ONLY.get(name, ()):
            mount(place, place, "", MS_BIND)
            stack.callback(unmount, place)
            mount("none", place, "", MS_REMOUNT | MS_BIND | MS_RDONLY)
        if name == "full-disk":
            _fill(WORK)
        elif name == "full-tmp":
            for place in ("/tmp", "/var/tmp", str(HOME)):
                mount("tmpfs", place, "tmpfs", 0, "size=64k,mode=1777")
                stack.callback(unmount, place)
                _fill(Path(place))
        elif name in ("stranger", "no-processes"):
            user = STRANGER
            program = (f"{PYTHON_FOR_STRANGERS}/bin/python3.{sys.version_info[1]}", "-m", "ringleader")
            environ |= _for_a_stranger()
        elif name == "deleted-directory":
            (WORK / "here").mkdir()
            steps.append(lambda: (os.chdir(WORK / "here"), shutil.rmtree(WORK / "here")))
        elif name in ("silent-server", "garbage-server"):
            port = self._servers[name.removesuffix("-server")].getsockname()[1]
            (WORK / "kubeconfig").write_text(_kubeconfig(port))

        return program, environ, functools.partial(_prepare, name, user, steps)


# --- surroundings -----------------------------------------------------------------------------------------

VARIABLES: Mapping[str, dict[bytes, bytes]] = {
    "missing-tmpdir": {b"TMPDIR": b"/mnt/nowhere"},
    "file-tmpdir": {b"TMPDIR": os.fsencode(WORK / "train.py")},
    "binary-tmpdir": {b"TMPDIR": b"/mnt/\xff\xfe"},
    "full-tmp": {b"TMPDIR": b"/tmp"},
    "missing-home": {b"HOME": b"/mnt/nowhere"},
    "file-home": {b"HOME": b"/dev/null"},
    "no-locale": {b"LC_ALL": b"xx_XX.nonsense", b"LANG": b"\xff"},
    "c-locale": {b"LC_ALL": b"POSIX", b"PYTHONUTF8": b"0", b"PYTHONCOERCECLOCALE": b"0"},
    "dumb-encoding": {b"PYTHONIOENCODING": b"ascii"},
    "bad-term": {b"TERM": b"nonsense\xff"},
    "bad-columns": {b"COLUMNS": b"-1", b"LINES": b"x"},
    "binary-variable": {b"\xff\xfe": b"\xfd", b"RINGLEADER": b"\xff"},
    "no-path": {b"PATH": b""},
    "directory-kubeconfig": {b"KUBECONFIG": os.fsencode(WORK / "directory")},
}
LIMITS = {
    "few-files": ((resource.RLIMIT_NOFILE, 16),),
    # Standard error is a file as well: 4 KiB leave room for a message.
    "no-file-size": ((resource.RLIMIT_FSIZE, 4096),),
    "no-processes": ((resource.RLIMIT_NPROC, 0),),
}
CLOSED = {"closed-stdin": (0,), "closed-stdout": (1,), "closed-stderr": (2,), "all-closed": (0, 1, 2)}
READ_ONLY = {
    "read-only-disk": (str(WORK),),
    "read-only-tmp": ("/tmp", "/var/tmp", "/run"),
    "read-only-shm": ("/dev/shm",),
}


def _prepare(name: str, user: int | None, steps: list[Callable[[], Any]]) -> None:
    """Run in the child, just before the program."""
    for step in steps:
        step()
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    for limit, value in LIMITS.get(name, ()):
        resource.setrlimit(limit, (value, value))
    for descriptor in CLOSED.get(name, ()):
        os.close(descriptor)


def _for_a_stranger() -> dict[bytes, bytes]:
    """Return variables for another user, whose working directory is root's."""
    for file in ("job.yaml", "recipe.toml", "kept/run.json", "kubeconfig"):
        (WORK / file).chmod(0o600)
    site = [entry for entry in sys.path if entry.endswith("site-packages")]
    paths = [str(Path(__file__).parents[2] / "src"), *site]
    return {
        b"PYTHONPATH": os.fsencode(os.pathsep.join(paths)),
        b"LD_LIBRARY_PATH": os.fsencode(f"{PYTHON_FOR_STRANGERS}/lib"),
    }


def _make_files(case: Case) -> None:
    os.umask(0o022)
    for file, text in FILES.items():
        (WORK / file).write_text(text)
    (WORK / "kubeconfig").write_text(_kubeconfig(1))
    run_file.write(KEPT, WORK / "kept")
    for name, stored in STORED.items():
        (WORK / name).mkdir()
        shutil.copy(MEASURED / stored / "run.json", WORK / name)
    (WORK / "directory").mkdir()
    os.mkfifo(WORK / "pipe")
    (WORK / "dangling").symlink_to("nowhere")
    (WORK / "binary").write_bytes(bytes(range(256)) * 64)
    for script in ("bad-interpreter", "no-interpreter"):
        (WORK / script).chmod(0o755)
    if case.contents is not None:
        (WORK / case.contents[0]).write_bytes(case.contents[1])


def _fill(place: Path) -> None:
    with contextlib.suppress(OSError), open(place / ".filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _talk(server: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"\0\xff rubbish \r\n\r\n" * 10)


def _kubeconfig(port: int) -> str:
    return f"""apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


# --- what came of it --------------------------------------------------------------------------------------


def _ended(process: subprocess.Popen[bytes], case: Case) -> int | None:
    """Wait for the end; a service is told to end after a while."""
    try:
        code = process.wait(SERVICE_SECONDS if case.is_service else LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM if case.is_service else signal.SIGKILL)
        try:
            code = process.wait(LIMIT_SECONDS) if case.is_service else None
        except subprocess.TimeoutExpired:
            code = None
    if code is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return code if code is None or code >= 0 else 128 - code


def _processes() -> list[int]:
    while True:  # what lost its parent is ours to collect
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                break
        except ChildProcessError:
            break
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())]


def _there() -> set[str]:
    found = {str(path) for place in (*SWEPT, str(HOME)) for path in Path(place).rglob("*")}
    found |= {str(path) for pattern in (".*", "*.tmp") for path in WORK.rglob(pattern)}
    return {path for path in found if Path(path).name not in WANTED and not path.startswith(OF_OTHERS)}


def _left(before: set[str]) -> list[str]:
    """Return what a case left; it is removed, for the next one."""
    until = time.monotonic() + LEFT_SECONDS
    while _processes() and time.monotonic() < until:
        time.sleep(0.05)
    left = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            left.append(f"process {words[:120]}")
            os.kill(pid, signal.SIGKILL)
    files = sorted(_there() - before)
    for path in files:
        if not any(path.startswith(f"{other}/") for other in files):
            left.append(path)
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    return left


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # it went elsewhere
        return b""
    finally:
        path.unlink(missing_ok=True)


def _judged(case: Case, ended: Ended, plain: Ended | None) -> list[str]:
    code, err = ended.code, ended.err
    if code is None:
        return [f"did not end in {LIMIT_SECONDS:.0f} s"]
    bad = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error")
    found = [one for one in bad if one in err or one.encode() in ended.out]
    codes = _codes(case, plain)
    if code not in codes:
        found.append(f"exit code {code}, not {' or '.join(map(str, sorted(codes)))}")
    heard = case.surroundings not in ("closed-stderr", "full-stderr", "all-closed")
    speaks = heard and case.command not in IN_OUTPUT
    if code and code not in (PIPE, STOPPED) and speaks and not err.strip():
        found.append("no message")
    if (longest := max(map(len, err.splitlines()), default=0)) > LONGEST_LINE:
        found.append(f"a line of {longest} characters")
    if case.surroundings == "full-stdout" and plain and plain.out and "o space left" not in err:
        found.append("standard output was lost without a word")
    if code == REQUEST and case.mentions and speaks:
        named = [os.fsencode(one).decode(errors="replace")[:40] for one in case.mentions]
        named += [repr(one)[1:-1][:40] for one in case.mentions]  # bytes that are no text are shown escaped
        if not any(one in err or repr(one)[1:-1] in err for one in named):
            found.append(f"the message names none of {', '.join(named)[:100]}")
    return found


def _codes(case: Case, plain: Ended | None) -> frozenset[int]:
    if plain is None or plain.code is None:
        return case.codes | {STOPPED} if case.is_service else case.codes
    usual = frozenset((plain.code,))
    if case.surroundings == "broken-stdout" and plain.out:
        return usual | {PIPE}
    if case.surroundings == "full-stdout" and plain.out and plain.code == OK:
        return frozenset((OK, REFUSED)) if case.command in ("run", "scale") else frozenset((REFUSED,))
    return usual | {STOPPED, OK} if case.is_service else usual


FILES = {
    "train.py": "print('trained')\n",
    "secret.py": "print('secret')\n",
    "job.yaml": """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: job}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: l, image: "a:1", command: [mpirun, hostname]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: "a:1"}]}}}
""",
    "recipe.toml": """name = "trial"
about = "a trial"
base = "debian:12"
[python]
[torch]
version = "2.13.0"
variant = "cpu"
""",
    "job-profile.toml": "batch = 64\nstep_seconds = 0.3\ngradient_bytes = 100000000\n",
    "hosts.txt": "localhost slots=1\n",
    "nccl-tests.txt": (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20\n"
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
        "#   (B)  (elements)  (us) (GB/s) (GB/s)  (us) (GB/s) (GB/s)\n"
        "  1024  256  float  sum  -1  20.00  0.05  0.05  0  20.00  0.05  0.05  0\n"
        "# Out of bounds values : 0 OK\n"
        "# Avg bus bandwidth    : 0.05\n"
    ),
    "curve.txt": "8 1e-5\n1000000 1e-3\n",
    "trace.json": (
        '{"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": ['
        '{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#20", "ts": 0, "dur": 90},'
        '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 50}]}\n'
    ),
    "variables": "A=1\n",
    "bad-interpreter": "#!/nowhere/python\nprint(1)\n",
    "no-interpreter": "#!\n",
}
"""The working directory of every case."""
KEPT = Run(
    name="kept",
    context=Context(command=("python", "train.py"), date="2026-01-02T03:04:05+00:00"),
    points=(Point(hosts=1, slots=1, samples=(Sample(rate=100.0, source="progress", heard=1, seconds=4.0),)),),
    repeats=1,
    warmup=0.2,
)
