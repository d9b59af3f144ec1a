"""A Python that is forked from one which has imported what it needs: its start costs no import.

``serve SOCKET MODULES…`` is the one that imports and forks (`fork_server.ForkServer` starts it).
``run SOCKET PROGRAM ARGUMENTS…``, or ``-m`` and a module for the program, stands in for ``python PROGRAM …``:
it has the program forked with its own environment, directory, processors and standard streams, passes signals
on, and ends as the program does. It imports little itself.

A Python that is started differs in this: here all programs have one seed of hashes and one layout of memory
(some long tests start theirs without this), each program has its own process group, which SIGKILL of what
stands in kills whole, and SIGSTOP stops what stands in alone, as nothing can pass it on.
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys

PASSED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTSTP, signal.SIGCONT),
)


def serve(path: str, modules: "list[str]") -> None:
    """Import, then fork a process for each that connects, until standard input ends."""
    del sys.path[0]  # of this file; that of the program comes in its place
    import gc

    from ringleader.agents import fork_server, process_tree

    failure = fork_server.import_all(modules)
    assert not failure, failure
    gc.collect()
    gc.freeze()
    kept = process_tree.open_descriptors()
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(64)
    print("ready", flush=True)
    # The descriptor of a process → its number and the connection; the descriptor of that → the first one.
    forked: dict[int, tuple[int, socket.socket]] = {}
    lines: dict[int, int] = {}
    while True:
        ready = set(select.select([0, door.fileno(), *forked, *lines], [], [])[0])
        if 0 in ready:
            os._exit(0)  # what was forked dies with its parent
        for process in {lines.get(fd, fd) for fd in ready & {*forked, *lines}}:
            pid, line = forked.pop(process)
            del lines[line.fileno()]
            if process not in ready:  # what it stands for was killed
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            os.close(process)
            with line, contextlib.suppress(OSError):
                line.sendall(b"%d\n" % status)
        if door.fileno() in ready:
            line = door.accept()[0]
            streams: list[int] = []
            try:
                command = received(line, streams)
            except OSError:  # what stands for it was killed before it had said what it stands for
                for fd in (*streams, line.detach()):
                    os.close(fd)
                continue
            pid = os.fork()
            if not pid:
                for one in (door, line, *(line for _pid, line in forked.values())):
                    one.detach()  # what has this number later is the program's
                become(command, streams, kept)
                return
            for fd in streams:
                os.close(fd)
            with contextlib.suppress(OSError):  # the program does it, too; whoever is first
                os.setpgid(pid, pid)
            with contextlib.suppress(OSError):  # it was killed; the next look kills the program
                line.sendall(b"%d\n" % pid)
            process = os.pidfd_open(pid)
            forked[process], lines[line.fileno()] = (pid, line), process


def received(line: socket.socket, streams: "list[int]") -> "dict":
    """Return a command, append its standard streams; OSError where its sender has gone."""
    data, beside, _flags, _address = line.recvmsg(65536, socket.CMSG_SPACE(12))
    for _level, _kind, descriptors in beside:
        streams += array.array("i", descriptors)
    while not data.endswith(b"\n"):
        part = line.recv(65536)
        if not part:
            raise ConnectionResetError
        data += part
    return json.loads(data)


def become(command: "dict", streams: "list[int]", kept: "set[int]") -> None:
    """Run a command's program in this process, which ends with it; ``kept``: descriptors of libraries."""
    import runpy

    from ringleader.agents import process_tree

    os.setpgid(0, 0)
    process_tree.die_with_parent(signal.SIGKILL, os.getppid())
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    process_tree.close_all_but(kept)
    os.environ.clear()
    os.environ.update(command["env"])
    os.chdir(command["cwd"])
    os.sched_setaffinity(0, command["cpus"])
    program, *arguments = command["argv"]
    if program == "-m":
        module, sys.argv = arguments[0], arguments
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(module)
    else:
        sys.argv = command["argv"]
        sys.path.insert(0, os.path.dirname(program))
        runpy.run_path(program, run_name="__main__")


def stand_in(path: str, argv: "list[str]") -> None:
    """Have a command forked, and end as it does."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    command = {"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ), "cpus": [*os.sched_getaffinity(0)]}
    streams = array.array("i", [0, 1, 2])
    line.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    line.sendall(json.dumps(command).encode() + b"\n")
    for fd in streams:
        os.close(fd)  # a pipe ends with the program
    answers = line.makefile()
    pid = int(answers.readline())

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    code = os.waitstatus_to_exitcode(int(answers.readline() or signal.SIGKILL))
    if code < 0:
        with contextlib.suppress(OSError):  # of SIGKILL, which has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3:])
    else:
        stand_in(sys.argv[2], sys.argv[3:])
