"""The probe against real sshds: what it learns, and every reason for which a host cannot take part."""

import os
import shlex
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
import sshd as servers

from ringleader.agents import host_facts_script, rank_identity
from ringleader.errors import ProbeError, RequestError
from ringleader.launch.host_probe.probe import AGENT, probe
from ringleader.plan.job import Host, Job, Mpi, Ssh

pytestmark = pytest.mark.timeout(120)
needs_root = pytest.mark.root("make namespaces")


@pytest.fixture
def ask(bench, environ):
    """Probe hosts by alias; sessions are closed at the end."""
    opened = []

    def run(
        *names: str, mpi: Mpi | None = None, progress=lambda text: None, accept_new=False, stop=None, **job
    ):
        request = Job(
            **{"command": ("true",), **job},
            hosts=tuple(Host(name=name) for name in names),
            ssh=Ssh(config=bench.config, accept_new=accept_new, connect_timeout=2.0),
        )
        found = probe(request, environ=environ, progress=progress, mpi=mpi, ssh_base=bench.base, stop=stop)
        if found.ssh is not None:
            opened.append(found.ssh)
        return found

    yield run
    for session in opened:
        session.close()


def faults(call, *names: str, **options: object) -> dict[str, str]:
    """Faults by place; several of one place are joined."""
    with pytest.raises(ProbeError) as caught:
        call(*names, **options)
    found: dict[str, str] = {}
    for fault in caught.value.faults:
        assert fault.hint, fault
        found[fault.where] = found.get(fault.where, "") + f"{fault.what} → {fault.hint}\n"
    return found


def test_a_host_is_known_over_one_connection(bench, ask):
    server = bench.sshd("h1")
    lines = []
    found = ask("h1", progress=lines.append)
    (fact,) = found.facts
    assert fact.hostname == socket.gethostname()
    assert fact.is_local and fact.identity == rank_identity.host_identity(), (
        "a name of this machine is seen through"
    )
    assert set(fact.cpus) <= os.sched_getaffinity(0)
    assert fact.python == sys.executable and fact.agent == str(AGENT)
    assert found.ssh.run(Host(name="h1"), ("true",), deadline=60).exit_code == 0
    assert server.connections == 1
    assert lines[0] == "0 of 1 hosts reached, waiting for h1"


def test_no_hosts_and_this_machine_need_no_ssh(environ):
    lines = []
    for hosts in (
        (),
        (Host(name="localhost"),),
        (Host(name=socket.gethostname()),),
        (Host(name="127.0.0.1"),),
    ):
        job = Job(command=("true",), hosts=hosts, ssh=Ssh(config="/nonexistent"))
        found = probe(job, environ={**environ, "PATH": "/usr/bin:/bin"}, progress=lines.append)
        assert found.ssh is None and len(found.facts) == 1 and found.facts[0].is_local
    assert not lines


def test_a_port_for_rank_0(bench, ask):
    bench.sshd("h1")
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        assert ask("h1", master_port=port).facts[0].port_taken == "Address already in use"
    assert ask("h1", master_port=servers.free_port()).facts[0].port_taken == ""


def test_every_host_that_cannot_be_asked_is_explained_at_once(bench, ask):
    good = bench.sshd("good")
    bench.sshd("unknown", known=False)
    changed = bench.sshd("changed", known=False)
    other = servers.make_key(bench.directory / "other_host_key")
    bench.know(changed, " ".join(Path(f"{other}.pub").read_text().split()[:2]))
    stranger = servers.make_key(bench.directory / "stranger")
    stray = bench.sshd("denied")
    bench.alias("denied", stray.port, IdentityFile=stranger)
    bench.alias("keyless", good.port, IdentityFile=bench.directory / "no_such_key", User="nobody")
    bench.alias("refused", servers.free_port())
    bench.alias("nowhere", 22, HostName="no-such-host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.create_server(("127.0.0.1", 0)) as wrong:
        bench.alias("mute", mute.getsockname()[1])
        bench.alias("wrong", wrong.getsockname()[1])
        thread = threading.Thread(target=hang_up, args=(wrong,), daemon=True)
        thread.start()
        lines = []
        names = ("good", "unknown", "changed", "denied", "keyless", "refused", "nowhere", "mute", "wrong")
        found = faults(ask, *names, progress=lines.append)
    assert set(found) == {f"host {name}" for name in names if name != "good"}
    assert "host key is unknown" in found["host unknown"]
    assert "ssh-keyscan -p" in found["host unknown"] and "--accept-new-host-keys" in found["host unknown"]
    assert "not the one we know" in found["host changed"]
    assert f"ssh-keygen -f {bench.known_hosts} -R '[127.0.0.1]:{changed.port}'" in found["host changed"]
    assert str(stranger) in found["host denied"] and "ssh-copy-id" in found["host denied"]
    assert "let nobody in" in found["host keyless"] and "no key file" in found["host keyless"]
    assert "connection refused" in found["host refused"] and "--ssh-port" in found["host refused"]
    assert "no-such-host.invalid does not resolve" in found["host nowhere"]
    assert "does not answer as sshd does" in found["host mute"] and "timed out" in found["host mute"]
    assert "does not answer as sshd does" in found["host wrong"]
    assert any("of 9 hosts reached, waiting for" in line for line in lines)


def hang_up(listener: socket.socket) -> None:
    while True:
        try:
            taken, _ = listener.accept()
        except OSError:
            return
        taken.close()


def test_unknown_key_is_taken_when_asked_but_a_changed_one_never(bench, ask):
    server = bench.sshd("h1", known=False)
    assert ask("h1", accept_new=True).facts
    assert server.public_host_key in bench.known_hosts.read_text()
    changed = bench.sshd("changed", known=False)
    other = servers.make_key(bench.directory / "other_host_key")
    bench.know(changed, " ".join(Path(f"{other}.pub").read_text().split()[:2]))
    assert "not the one we know" in faults(ask, "changed", accept_new=True)["host changed"]


def interpreter(path: Path, version: tuple[int, int, int]) -> str:
    """Write an interpreter that says it has another version."""
    code = f"import sys; sys.version_info = {version}; exec(sys.stdin.read())"
    path.write_text(f"#!/bin/sh\nexec {shlex.join((sys.executable, '-I', '-S', '-c', code))}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_python_that_is_missing_too_old_or_another(bench, ask):
    bench.sshd("h1")
    flat = bench.directory / "flat"
    flat.write_text("no program")
    assert "may not be started" in faults(ask, "h1", python=str(flat))["host h1"]
    old = interpreter(bench.directory / "old", (2, 7, 18))
    assert f"{old} is Python 2.7.18 there, which is too old" in faults(ask, "h1", python=old)["host h1"]
    other = interpreter(bench.directory / "other", (3, 9, 1))
    assert "is Python 3.9.1 there; Ringleader needs 3.11" in faults(ask, "h1", python=other)["host h1"]
    missing = faults(ask, "h1", python="/no/such/python")["host h1"]
    assert "/no/such/python does not exist; found there: /" in missing
    assert "--python" in missing
    with pytest.raises(RequestError, match="--python: /no/such/python is not a Python interpreter"):
        ask("localhost", python="/no/such/python")
    broken = bench.directory / "broken"
    broken.write_text("#!/bin/sh\necho 'cannot load libpython' >&2\nexit 3\n")
    broken.chmod(0o755)
    found = faults(ask, "h1", python=str(broken))["host h1"]
    assert "exit code 3" in found and "cannot load libpython" in found


def test_a_host_behind_a_jump_host(bench, ask):
    gate = bench.sshd("gate")
    inner = bench.sshd("inner")
    bench.alias("inner", inner.port, ProxyJump="gate")
    (fact,) = ask("inner").facts
    assert fact.is_local
    assert "Connection from" in gate.log
    bench.alias("inner", servers.free_port(), ProxyJump="gate")
    assert "no way through the jump host gate" in faults(ask, "inner")["host inner"]


def test_a_connection_that_is_dropped_is_tried_again(bench, ask):
    server = bench.sshd("h1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drop_then_relay, args=(listener, server.port), daemon=True).start()
        bench.alias("h1", listener.getsockname()[1], HostKeyAlias=f"[127.0.0.1]:{server.port}")
        assert ask("h1").facts


def drop_then_relay(listener: socket.socket, port: int) -> None:
    """Drop the first connection, as an sshd does at which too many arrive; carry the second to a real one."""
    listener.accept()[0].close()
    taken, _ = listener.accept()
    with taken, socket.create_connection(("127.0.0.1", port)) as onward:
        back = threading.Thread(target=carry, args=(onward, taken), daemon=True)
        back.start()
        carry(taken, onward)
        back.join()


def carry(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def test_an_interrupt_ends_the_probe_and_every_ssh(bench, ask):
    read, write = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        bench.alias("mute", mute.getsockname()[1])
        with pytest.raises(KeyboardInterrupt):
            ask("mute", progress=lambda line: os.write(write, b"x"), stop=read)
    assert os.read(read, 1) == b"x", "what was written is left for the caller"
    os.close(read)
    os.close(write)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert "ssh" not in [Path(f"/proc/{child}/comm").read_text().strip() for child in children]


@needs_root
class TestAnotherMachine:
    """Hosts with a hostname, files and names of their own: an sshd in its own UTS and mount namespaces."""

    def test_two_machines_in_the_users_order(self, bench, ask):
        for name in ("beta", "alpha"):
            bench.sshd(name, hostname=f"rl-{name}")
        found = ask("beta", "alpha")
        assert [fact.hostname for fact in found.facts] == ["rl-beta", "rl-alpha"]
        assert not any(fact.is_local for fact in found.facts)
        assert len({fact.identity for fact in found.facts}) == 2
        assert [server.connections for server in bench.started] == [1, 1]

    def test_a_script_that_differs_or_is_missing(self, bench, ask):
        work = bench.directory / "work dir"
        work.mkdir()
        script, changed = work / "train.py", bench.directory / "changed.py"
        script.write_text("print(1)\n")
        changed.write_text("print(2)\n")
        empty = bench.directory / "empty"
        empty.mkdir()
        bench.sshd("same", hostname="rl-same")
        bench.sshd("differs", hostname="rl-differs", mounts=((changed, script),))
        bench.sshd("missing", hostname="rl-missing", mounts=((empty, work),))
        command = ("python3", "train.py", "--lr", "0.1")
        found = faults(ask, "same", "differs", "missing", command=command, workdir=str(work))
        assert set(found) == {"host differs", "host missing"}
        for file in (script, changed):
            assert host_facts_script.checksum(file)[:12] in found["host differs"]
        assert "the script does not exist (train.py in" in found["host missing"]

    def test_a_name_that_does_not_resolve_there(self, bench, ask):
        here = socket.gethostname()
        if not host_facts_script.resolved([here])[here]:
            pytest.fail(f"the tests need a machine whose own name ({here}) resolves")
        hosts, resolver = bench.directory / "hosts", bench.directory / "resolv.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        resolver.write_text("nameserver 127.0.0.1\n")
        mounts = ((hosts, Path("/etc/hosts")), (resolver, Path("/etc/resolv.conf").resolve()))
        bench.sshd("lost", hostname="rl-lost", mounts=mounts)
        found = faults(ask, "lost", "localhost")
        assert set(found) == {"host lost"}
        assert f"the name {here} does not resolve there" in found["host lost"]
