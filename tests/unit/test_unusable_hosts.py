"""What ssh says, explained; hosts compared with ours; cores granted. All from tables."""

import dataclasses
import errno
import os
import shlex
import sys
from types import SimpleNamespace

import pytest

from ringleader.agents import host_facts_script
from ringleader.errors import ProbeError, RequestError
from ringleader.launch.host_probe.host_answer import (
    MOST_NAMES,
    HostReport,
    cores_granted,
    question_of,
    some_names,
)
from ringleader.launch.host_probe.probe import (
    is_this_machine,
    own_names,
    probe,
    reached_by_ssh,
    remote_question,
)
from ringleader.launch.host_probe.remote_hosts import SshQuery, ask_all, dropped, reached
from ringleader.launch.host_probe.unusable_hosts import (
    faults_of,
    interpreted_script,
    platform_faults,
    script_of,
)
from ringleader.launch.ssh.connections import remote_command
from ringleader.launch.ssh.failure_messages import Failure, explain
from ringleader.plan.job import Host, Job, Ssh
from ringleader.plan.rank_placement import duplicate_names, place

SETTINGS = {"hostname": ("10.0.0.3",), "port": ("2222",), "user": ("alice",)}
KEYS = ("/home/alice/.ssh/id_ed25519",)


def failure(stderr="", **values):
    base = {
        "name": "h3",
        "exit_code": 255,
        "settings": SETTINGS,
        "keys_present": KEYS,
        "python": "/opt/py/bin/python",
    }
    return Failure(**{**base, "stderr": stderr, **values})


@pytest.mark.parametrize(
    ("stderr", "what", "hint"),
    [
        ("ssh: Could not resolve hostname h3: Name or service not known",
         "its name 10.0.0.3 does not resolve on this machine", "/etc/hosts"),
        ("ssh: connect to host 10.0.0.3 port 2222: Connection refused",
         "nothing listens on 10.0.0.3 port 2222", "--ssh-port"),
        ("ssh: connect to host 10.0.0.3 port 2222: No route to host", "cannot be reached: No route to host",
         "firewall"),
        ("Connection timed out during banner exchange", "does not answer as sshd does", "--ssh-port"),
        ("kex_exchange_identification: read: Connection reset by peer", "does not answer as sshd does",
         "MaxStartups"),
        (
            "No ED25519 host key is known for [10.0.0.3]:2222 and you have requested strict checking.\n"
            "Host key verification failed.",
            "its host key is unknown ([10.0.0.3]:2222)",
            "ssh-keyscan -p 2222 10.0.0.3 2>/dev/null | ssh-keygen -lf -",
        ),
        (
            "@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
            "Offending ED25519 key in /home/alice/.ssh/known_hosts:3\nHost key verification failed.",
            "its host key is not the one we know",
            "ssh-keygen -f /home/alice/.ssh/known_hosts -R '[10.0.0.3]:2222'",
        ),
        ("alice@10.0.0.3: Permission denied (publickey,password).",
         "it refused to let alice in (it takes: publickey,password); keys tried: /home/alice/.ssh/",
         "ssh-copy-id -i /home/alice/.ssh/id_ed25519 -p 2222 alice@10.0.0.3"),
        (
            "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nPermissions 0644 for 'k' are too open.\n"
            "alice@10.0.0.3: Permission denied (publickey).",
            "others can read it",
            "chmod 600 /home/alice/.ssh/id_ed25519",
        ),
        ("/x/config: line 3: Bad configuration option: prot", "ssh cannot use its configuration", "repair"),
        ("Unable to negotiate with 10.0.0.3: no matching host key type found.", "no algorithm in common",
         "update"),
        ("", "it said nothing", "try: ssh"),
    ],
)  # fmt: skip
def test_what_ssh_says(stderr, what, hint):
    fault = explain(failure(stderr))
    assert fault.where == "host h3"
    assert what in fault.what
    assert hint in fault.hint


@pytest.mark.parametrize(
    ("stderr", "what", "hint"),
    [
        ("channel 0: open failed: connect failed: No route to host\nstdio forwarding failed",
         "no way through the jump host gate", "it reaches 10.0.0.3 port 2222"),
        ("kex_exchange_identification: Connection closed by remote host", "no way through", "ssh gate works"),
        ("ssh: Could not resolve hostname gate: Name or service not known", "its name gate", "/etc/hosts"),
        (
            "No ED25519 host key is known for gate.example.org and you have requested strict checking.\n"
            "Host key verification failed.\nConnection closed by UNKNOWN port 65535",
            "its host key is unknown (gate.example.org)",
            "ssh-keyscan -p 22 gate.example.org",
        ),
        (
            "No ED25519 host key is known for [10.0.0.9]:2200 and you have requested strict checking.\n"
            "Host key verification failed.",
            "its host key is unknown ([10.0.0.9]:2200)",
            "ssh-keyscan -p 2200 10.0.0.9",
        ),
        ("bob@gate: Permission denied (publickey).\nConnection closed by UNKNOWN port 65535",
         "gate refused to let bob in", "-p 22 bob@gate"),
        ("ssh: connect to host gate port 22: Connection refused\nConnection closed by UNKNOWN port 65535",
         "nothing listens on gate port 22", "start sshd there"),
        ("alice@10.0.0.3: Permission denied (publickey).", "[10.0.0.3]:2222 refused to let alice in",
         "-p 2222 alice@10.0.0.3"),
    ],
)  # fmt: skip
def test_whom_ssh_means_behind_a_jump_host(stderr, what, hint):
    fault = explain(failure(stderr, settings={**SETTINGS, "proxyjump": ("gate",)}))
    assert what in fault.what
    assert hint in fault.hint


def test_what_a_host_without_our_python_is_told():
    found = explain(failure(exit_code=127, pythons_there="/usr/bin/python3 Python 3.9.2\n"))
    assert found.what == ("/opt/py/bin/python does not exist; found there: /usr/bin/python3 Python 3.9.2")
    assert "no other Python" in explain(failure(exit_code=127)).what
    assert "may not be started" in explain(failure(exit_code=126)).what
    assert "within 30 s" in explain(failure(timed_out=True, deadline=30.0, exit_code=-1)).what
    nologin = explain(failure(exit_code=1, stdout="This account is currently not available.\n"))
    assert "This account is currently not available" in nologin.what
    killed = explain(failure("", exit_code=-9))
    assert killed.what == "the ssh to it was ended on this machine (SIGKILL)"


def test_only_dropped_connections_are_tried_again_and_progress_names_three_hosts():
    assert dropped("kex_exchange_identification: Connection closed by remote host")
    assert not dropped("ssh: connect to host h port 22: Connection refused")
    assert reached(3, 4, ["h3"]) == "3 of 4 hosts reached, waiting for h3"
    assert reached(0, 9, ["h0", "h1", "h2", "h3", "h4"]).endswith("waiting for h0, h1, h2 and 2 more")


def report(name, **values):
    base = {
        "host": Host(name=name, slots=2), "hostname": name, "identity": name, "is_local": False,
        "python": "/opt/py/bin/python", "python_version": "3.11.7",
        "agent": "/opt/r/agent.py", "ringleader_version": "1.0", "ringleader_checksum": "c",
        "mpirun": "/opt/mpi/bin/mpirun", "mpi_version": "5.0.11",
        "cpus": (0,), "cpusets": ((0,),), "gpus": (), "interfaces": {"eth0": ("10.0.0.1",), "eth1": ()},
        "addresses": ("10.0.0.1",), "names": {}, "script": "a" * 64,
        "program": "/bin/python", "workdir": True,
    }  # fmt: skip
    return HostReport(**{**base, **values})


JOB = Job(command=("python", "train.py"), workdir="/w")
OURS = report("head", is_local=True)


def test_what_took_too_long_is_unknown_and_not_absent():
    slow = report("h2", mpi_version="", unread=("/opt/mpi/bin/mpirun --version",))
    assert faults_of(JOB, [slow], OURS) == ()
    late = report("h2", names={"h3": ()}, unread=("the name h3",))
    (fault,) = faults_of(JOB, [late], OURS)
    assert "was not resolved in time" in fault.what and "--start-timeout" in fault.hint
    (fault,) = faults_of(JOB, [report("h2", unread=("nvidia-smi -L",))], OURS)
    assert "GPUs are not known" in fault.what and "--start-timeout" in fault.hint


def test_hosts_have_more_time_where_the_start_has():
    assert Job(command=("x",)).patience == Job(command=("x",), start_timeout=5).patience == 1.0
    slow = Job(command=("x",), start_timeout=300)
    assert slow.patience == 5.0 and question_of(slow, {}, "/python")["patience"] == 5.0
    assert "patience" not in question_of(JOB, {}, "/python")


def test_a_host_compared_with_ours():
    for changes, what in (
        ({}, None),
        ({"python_version": "3.12.1"}, "Python 3.12.1 there, 3.11.7 elsewhere"),
        ({"python_version": "3.10.4"}, "Ringleader needs 3.11 or later"),
        ({"agent": ""}, "Ringleader is not installed there"),
        ({"ringleader_version": "0.9"}, "Ringleader is 0.9 there, 1.0 here"),
        ({"ringleader_checksum": "d"}, "another build of 1.0"),
        ({"mpirun": "", "mpi_version": ""}, "the MPI does not exist: no /opt/mpi/bin/mpirun"),
        ({"mpi_version": "5.0.8"}, "/opt/mpi/bin/mpirun is version 5.0.8 there, 5.0.11 here"),
        ({"script": ""}, "the script does not exist (train.py in /w)"),
        ({"script": "b" * 64}, "SHA-256 bbbbbbbbbbbb… there, aaaaaaaaaaaa… here"),
        ({"workdir": False, "script": "", "program": ""}, "the working directory /w does not exist"),
        ({"program": ""}, "the program python does not exist"),
        ({"names": {"h9": ()}}, "the name h9 does not resolve there"),
        ({"names": {"h9": ("127.0.1.1", "::1")}}, "the name h9 means itself there (127.0.1.1, ::1)"),
        ({"names": {"h9": ("127.0.1.1", "10.0.0.9")}}, None),
    ):
        found = faults_of(JOB, (report("h1", **changes),), OURS)
        assert [fault.where for fault in found] == ([] if what is None else ["host h1"])
        assert what is None or what in found[0].what
        assert all(fault.hint for fault in found)


def test_names_are_needed_only_where_something_uses_them():
    host = report("h1", names={"head": (), "alias": ()})
    ours = dataclasses.replace(OURS, names={"alias": ()})  # unknown here too: an ssh alias
    assert faults_of(JOB, (host,), ours) == ()
    assert "the name head" in faults_of(JOB, (host, OURS), ours)[0].what
    ours = dataclasses.replace(OURS, names={"head": ()})
    assert faults_of(JOB, (report("h1"),), ours)[0].where == "this machine"
    assert faults_of(JOB, (ours,), ours) == ()


def test_several_names_that_are_all_one_machine_are_refused():
    for names in (("a", "b"), ("localhost", "b"), ("b", "127.0.0.1")):
        facts = tuple(report(name, identity="x", hostname="vm") for name in names)
        with pytest.raises(RequestError) as caught:
            place(JOB, facts)
        assert f"{', '.join(names)} are 2 names of one machine, vm" in str(caught.value)
        own = tuple(report(name, identity="x", hostname="vm") for name in ("localhost", "vm.here"))
        assert len(place(JOB, own).hosts) == 1
        hosts = (report("a"), report("b", identity="a"), report("c"))
        assert faults_of(JOB, hosts, OURS) == () and duplicate_names(hosts) == (("b", "a"),)


def test_words_for_a_shell_there_are_quoted():
    words = ("a b", "", "'", '"', "$x", ";", "\n", "ü", "*", "~", "\\")
    assert tuple(shlex.split(remote_command(words))) == words
    with pytest.raises(ValueError, match="NUL"):
        remote_command(("a\0b",))


def test_script_of_a_command():
    for command, script in (("python -m package", None), ("./train x", "./train"), ("/usr/bin/train", None)):
        assert script_of(Job(command=tuple(command.split()))) == script


def test_a_port_that_is_taken_where_rank_0_goes():
    job = dataclasses.replace(JOB, np=2, master_port=29500)
    free, taken = report("a"), report("b", port_taken="Address already in use")
    with pytest.raises(RequestError) as caught:
        place(job, (taken, free))
    assert "port 29500 cannot be used on b: Address already in use" in str(caught.value)
    assert place(job, (free, taken)).hosts
    assert place(dataclasses.replace(job, master_port=None), (taken, free)).hosts


def test_interfaces():
    job = dataclasses.replace(JOB, network_interface="eth0, eth1,ib0")
    found = [fault.what for fault in faults_of(job, (report("h1"),), OURS)]
    assert found == ["network interface eth1 has no address", "network interface ib0 does not exist"]


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True),
        ("head", True), ("10.0.0.7", True), ("fd00::7", True), ("h1", False), ("127.example.org", False),
        ("alice@head", False), ("10.0.0.8", False),
    ],
)  # fmt: skip
def test_which_names_are_this_machine(name, here):
    names = own_names("head.example.org", {"eth0": ["10.0.0.7", "fd00::7"], "lo": ["127.0.0.1", "::1"]})
    assert is_this_machine(name, names) is here


HERE = own_names("head", {"eth0": ["10.0.0.7"], "lo": ["127.0.0.1", "::1"]})


def test_an_ssh_port_is_honored():
    for names, port, over_ssh in (
        ("127.0.0.2", None, ""),
        ("127.0.0.2", 1, "127.0.0.2"),
        ("localhost", 22, "localhost"),
        ("head h2", 22, "h2"),
    ):
        job = Job(command=("x",), hosts=tuple(Host(name=name) for name in names.split()), ssh=Ssh(port=port))
        assert " ".join(host.name for host in reached_by_ssh(job, HERE)) == over_ssh


def test_which_file_an_interpreter_runs():
    for command, script in (
        ("python train.py --lr 1", "train.py"),
        ("python3.11 -u -W ignore -X dev train.py", "train.py"),
        ("/usr/bin/python -O dir/train", "dir/train"),
        ("python -c pass x.py", None),
        ("python -m train x.py", None),
        ("python - x.py", None),
        ("python", None),
        ("python -um train", None),
        ("sh -ec true x.sh", None),
        ("./train.py", None),
        ("python -- -x.py", "-x.py"),
    ):
        assert interpreted_script(tuple(command.split())) == script


def test_a_script_and_an_interpreter_that_are_missing_are_named():
    job = Job(command=("python", "a.py"), workdir="/w")
    found = faults_of(job, (report("h1", unreadable="is a directory"),), OURS)
    assert [fault.what for fault in found] == ["the script is a directory (a.py in /w)"]
    bad, why = dataclasses.replace(job, command=("./a",)), "its first line names /x, which does not exist"
    found = faults_of(bad, (report("h1", unstartable=why),), OURS)
    assert f"./a cannot be started there: {why}" in found[0].what


def test_what_resolvers_are_asked_grows_with_the_hosts_only():
    assert some_names([]) == [] and some_names(["h1", "h2", "h1"]) == ["h1", "h2"]
    names = [f"h{i}" for i in range(2048)]
    assert some_names(names[:MOST_NAMES]) == names[:MOST_NAMES]
    asked = some_names(names)
    assert asked[0] == "h0" and len(asked) <= MOST_NAMES
    hosts = tuple(Host(name=name) for name in names)
    question = remote_question({"workdir": "/"}, Job(command=("x",), hosts=hosts), hosts, frozenset(), None)
    assert len(question["names"]) <= MOST_NAMES + 1


def test_ranks_need_linux_on_every_machine():
    faults = platform_faults({"host a": "linux", "host b": "darwin", "host c": "freebsd14"})
    assert [(fault.where, fault.what.partition(";")[0]) for fault in faults] == [
        ("host b", "this is macOS"),
        ("host c", "this is freebsd14"),
    ]


def test_on_another_system_the_job_is_refused_before_anything_is_asked(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ProbeError, match="this machine: this is macOS; ranks need Linux") as refused:
        probe(Job(command=("python",), np=1), environ={}, progress=lambda line: None)
    assert refused.value.exit_code == 3
    assert host_facts_script.answer({}, {}) == {"platform": "darwin"}


class Connections(SimpleNamespace):
    """Connections to hosts, of which asking one fails."""

    closed = False
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def run(self, host, *words, **named):
        raise self.error

    def close(self):
        self.closed = True


@pytest.mark.parametrize("shared", [True, False])
def test_a_machine_that_lacks_room_or_processes_is_a_fault_of_the_host_asked(shared):
    """Over the same connections an MPI's daemons may run: only those of its own are closed."""

    def ask(ssh):
        one = SshQuery(ssh=ssh, question={"workdir": "/"}, python="python3", seconds=1.0, shared=shared)
        return ask_all(one.ask, [Host(name="h1")], lambda text: None, give_up=one.give_up)

    ssh = Connections()
    answers, faults = ask(ssh)
    assert not answers and not ssh.closed
    assert [fault.where for fault in faults] == ["host h1"]
    assert faults[0].what == "it cannot be probed: No space left on device" and "ulimit -u" in faults[0].hint
    ssh = Connections(error=RuntimeError("can't start new thread"))
    with pytest.raises(RuntimeError):
        ask(ssh)
    assert ssh.closed is not shared


def test_cores_granted():
    cores = ((0, 4), (1, 5), (2, 6), (3, 7))
    everything = ((0, 1, 2, 3, 4, 5, 6, 7),)
    assert cores_granted(cores, None) == cores_granted(cores, 8.0) == ((0, 1, 2, 3), cores)
    assert cores_granted(cores, 2.9) == ((0, 1), everything * 2)
    assert cores_granted(cores, 0.5) == ((0,), everything)
