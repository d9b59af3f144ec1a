"""A rank that is forked from a Python which has imported PyTorch, so that its start costs no import.

``serve SOCKET`` is that Python (`rank_pool.ForkServer` starts it). ``run SOCKET PROGRAM ARGUMENTS…`` is what
an mpirun starts as a rank: it has the server fork the program, passes signals on, and ends as the program
does. The program runs as a rank of ``ringleader run --warm`` (`ringleader.agents.forked_script`).
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys

MODULES = ("numpy", "torch", "torch._dynamo", "ringleader.torch", "ringleader.torch.elastic")
"""What ranks need; the third is imported by PyTorch with the first optimizer, for seconds."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def serve(path: str) -> None:
    """Fork a rank for each that connects, until standard input ends."""
    del sys.path[0]  # of this file; that of the program comes in its place
    from ringleader.agents import fork_server

    failure = fork_server.import_all(list(MODULES))
    assert not failure, failure
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(64)
    print("ready", flush=True)
    # The descriptor of a connection → that of its rank's process, and the reverse.
    pids: dict[int, tuple[int, socket.socket]] = {}
    lines: dict[int, int] = {}
    while True:
        ready = set(select.select([0, door, *pids, *lines], [], [])[0])
        if 0 in ready:
            os._exit(0)  # the ranks die with their parent
        for process in {lines.get(fd, fd) for fd in ready & {*pids, *lines}}:
            pid, line = pids.pop(process)
            del lines[line.fileno()]
            if process not in ready:  # what it runs in the place of is gone
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            os.close(process)
            with line, contextlib.suppress(OSError):
                line.sendall(b"%d\n" % status)
        if door in ready:
            line = door.accept()[0]
            command, streams = received(line)
            pid = os.fork()
            if not pid:
                become(command, streams)
                return
            for fd in streams:
                os.close(fd)
            line.sendall(b"%d\n" % pid)
            process = os.pidfd_open(pid)
            pids[process], lines[line.fileno()] = (pid, line), process


def received(line: socket.socket) -> "tuple[dict[str, object], list[int]]":
    """Return a rank's command and its standard streams."""
    streams = array.array("i")
    data, beside, _flags, _address = line.recvmsg(65536, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(beside[0][2])
    while not data.endswith(b"\n"):
        data += line.recv(65536)
    return json.loads(data), streams.tolist()


def become(command: "dict[str, object]", streams: "list[int]") -> None:
    """Run a rank's program in this process, which ends with it."""
    from ringleader.agents import process_tree
    from ringleader.agents.forked_script import run
    from ringleader.agents.start_command import ForkedRank

    os.setpgid(0, 0)
    process_tree.die_with_parent(signal.SIGKILL, os.getppid())
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.chdir(command["cwd"])
    os.sched_setaffinity(0, command["cpus"])
    run(ForkedRank([sys.executable, *command["argv"]], command["env"], 2), [])


def rank(path: str, argv: "list[str]") -> None:
    """Be a rank for mpirun: have it forked, and end as it does."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    command = {"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ), "cpus": [*os.sched_getaffinity(0)]}
    streams = array.array("i", [0, 1, 2])
    line.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    line.sendall(json.dumps(command).encode() + b"\n")
    answers = line.makefile()
    pid = int(answers.readline())
    for number in PASSED_ON:
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(answers.readline() or signal.SIGKILL))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        rank(sys.argv[2], sys.argv[3:])
