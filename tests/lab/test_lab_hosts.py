"""What a user may rely on: the hosts of a lab behave like hosts, their links like links."""

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ringleader.lab import hosts as lab_hosts
from ringleader.lab import saved_state

pytestmark = pytest.mark.lab


def test_names_networks_and_keys_are_those_of_hosts(lab, on_host):
    own, (first, last) = socket.gethostname(), (lab.hosts[0], lab.hosts[-1])
    wanted = {host.name: host.address for host in lab.hosts} | {own: lab.spec.head_address}
    for name, address in wanted.items():
        assert on_host(first.name, "getent", "ahostsv4", name).stdout.split()[0] == address
    for host in lab.hosts:
        assert socket.gethostbyname(host.name) == host.address
    done = on_host(first.name, "ssh", "-F", lab.ssh_config, last.name, "hostname")
    assert done.stdout.strip() == last.name, done.stderr
    said = on_host(first.name, "cat /etc/hostname; cat /proc/mounts").stdout.splitlines()
    assert said[0] == first.name
    places = [line.split()[1] for line in said[1:]]
    assert "/etc" in places and "/etc/hosts" not in places, "names do not hang on the machine's own file"
    (route,) = on_host(first.name, "ip", "-4", "route").stdout.strip().splitlines()
    assert route.startswith(lab.spec.subnet), "they reach each other and the head, and nothing else"
    assert "inet6" not in on_host(first.name, "ip", "-6", "addr", "show", "dev", "eth0").stdout
    numbers = sorted(int(on_host(host.name, "echo $$").stdout) for host in lab.hosts)
    assert all(later - earlier > 1000 for earlier, later in itertools.pairwise(numbers)), numbers
    keys = [line.split()[2] for line in Path(lab.directory, "known_hosts").read_text().splitlines()]
    assert len(set(keys)) == len(lab.hosts)
    assert Path(lab.directory).stat().st_mode & 0o777 == 0o700
    assert Path(lab.directory, "id").stat().st_mode & 0o777 == 0o600
    path, name = on_host(first.name, "echo $PATH; echo $RINGLEADER_LAB").stdout.splitlines()
    assert path.split(":")[0] == str(Path(sys.executable).parent) and name == lab.name


def test_shared_memory_processes_and_temporary_files_are_a_hosts_own(lab, on_host):
    first, second = (host.name for host in lab.hosts[:2])
    # Other tests, and what they start, write there too: only what was made here is looked for.
    seen = "ls -d /dev/shm/mark /var/tmp/mark 2> /dev/null; pgrep -fxc 'sleep 7777'"
    started = on_host(
        first, "touch /dev/shm/mark; sleep 7777 < /dev/null > /dev/null 2>&1 & echo $! | tee /var/tmp/mark"
    )
    try:
        assert on_host(first, seen).stdout.split() == ["/dev/shm/mark", "/var/tmp/mark", "1"]
        assert on_host(second, seen).stdout.split() == ["0"]
        assert not Path("/dev/shm/mark").exists() and not Path("/var/tmp/mark").exists()
        assert on_host(first, "echo $TMPDIR").stdout.strip() == "/var/tmp"
    finally:
        on_host(first, f"kill {started.stdout.strip()}; rm -f /dev/shm/mark /var/tmp/mark")


def test_exec_passes_arguments_directory_and_exit_code_through(lab, ringleader, tmp_path, monkeypatch):
    odd, host = "a b'c\"d;$HOME\n*", lab.hosts[1].name
    on = ("lab", "exec", "--lab-name", lab.name)
    done = ringleader(*on, host, "--", "printf", "%s", odd)
    assert (done.returncode, done.stdout, done.stderr) == (0, odd, "")
    assert ringleader(*on, "h2", "hostname").stdout.strip() == host
    done = ringleader(*on, "--all", "--", "sh", "-c", "hostname; exit 5")
    assert done.stdout == "".join(f"[{host.name}] {host.name}\n" for host in lab.hosts)
    assert done.returncode == 5
    monkeypatch.chdir(tmp_path)
    argv = lab_hosts.argv_on(lab, lab.hosts[0], ("pwd",))
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == str(tmp_path)


def test_status_is_a_table_and_json(lab, ringleader):
    done = ringleader("lab", "status", "--lab-name", lab.name)
    assert done.stdout.split()[:6] == ["host", "address", "slots", "rate", "state", "sshd"]
    document = json.loads(ringleader("lab", "status", "--lab-name", lab.name, "--json").stdout)
    first = document["hosts"][0]
    assert (first["name"], first["address"]) == (lab.hosts[0].name, lab.hosts[0].address)
    assert (first["slots"], first["rate"], first["state"], first["sshd"]) == (2, "8gbit", "up", True)
    assert document["bandwidth_bit_per_s"] == 8_000_000_000
    only = ringleader("lab", "status", "--lab-name", lab.name, "--hostfile").stdout.strip()
    assert Path(only).read_text() == "".join(f"{host.name} slots=2\n" for host in lab.hosts)


def test_up_again_says_that_it_is_up_and_other_parameters_are_refused(lab, ringleader):
    words = ("lab", "up", "--lab-name", lab.name, "--hosts", "4", "--slots", "2", "--ssh-port", "34")
    key = Path(lab.directory, "id").read_bytes()
    again = ringleader(*words)
    assert again.returncode == 0 and "is up already" in again.stdout, again.stderr
    assert Path(lab.directory, "id").read_bytes() == key
    other = ringleader(
        "lab", "up", "--lab-name", lab.name, "--hosts", "3", "--slots", "2", "--ssh-port", "34"
    )
    assert other.returncode == 3
    assert "hosts 4 (asked for: 3)" in other.stderr and "--replace" in other.stderr
    assert [row.state for row in lab_hosts.status(lab)] == ["up"] * 4


def test_a_subnet_that_is_in_use_is_refused(lab, scratch_name, ringleader, snapshot):
    before = snapshot(scratch_name)
    words = ("--hosts", "2", "--ssh-port", "34", "--subnet", lab.spec.subnet)
    done = ringleader("lab", "up", "--lab-name", scratch_name, *words)
    assert done.returncode == 3 and "in use" in done.stderr
    assert snapshot(scratch_name) == before


def test_replace_makes_the_lab_anew_and_down_twice_is_no_error(scratch_name, ringleader, snapshot):
    before = snapshot(scratch_name)
    for hosts, options in (("1", ()), ("2", ("--replace",))):
        words = ("--hosts", hosts, "--ssh-port", "34", "--private-tmp", *options)
        done = ringleader("lab", "up", "--lab-name", scratch_name, *words)
        assert done.returncode == 0, done.stderr
    lab = saved_state.load(scratch_name)
    assert [row.state for row in lab_hosts.status(lab)] == ["up", "up"]
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        listed = ringleader("lab", "exec", "--lab-name", scratch_name, "h2", "ls", "-A", "/tmp")
        assert listed.returncode == 0 and Path(file.name).name not in listed.stdout.split()
    assert "is down" in ringleader("lab", "down", "--lab-name", scratch_name).stdout
    again = ringleader("lab", "down", "--lab-name", scratch_name)
    assert again.returncode == 0 and "nothing to remove" in again.stdout
    assert snapshot(scratch_name) == before


def test_what_up_and_down_print_makes_and_removes_the_lab(scratch_name, ringleader, snapshot):
    before = snapshot(scratch_name)
    words = ("--name", scratch_name, "--hosts", "2", "--ssh-port", "34")

    def shell(*argv: str, text: str | None = None) -> str:
        quiet = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        done = subprocess.run(argv, **quiet, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    shell("sh", text=ringleader("lab", "up", *words, "--dry-run").stdout)
    lab = saved_state.load(scratch_name)
    host = lab.hosts[1].name
    assert shell("ssh", "-F", lab.ssh_config, "-o", "ConnectionAttempts=20", host, "hostname") == host
    shell("sh", text=ringleader("lab", "down", "--lab-name", scratch_name, "--dry-run").stdout)
    ringleader("lab", "down", "--lab-name", scratch_name)
    assert snapshot(scratch_name) == before


# --- links: cut, heal and kill ----------------------------------------------------------------------------


def _exchange(connection):
    connection.sendall(b"x")
    return connection.recv(1)


@contextlib.contextmanager
def _echo(lab, host):
    """A connection from the head to an echo on the host."""
    program = (
        "import socket; s = socket.create_server(('', 5555)); print('ready', flush=True); "
        "c = s.accept()[0]\nwhile data := c.recv(100): c.sendall(data)"
    )
    process = subprocess.Popen(
        lab_hosts.argv_on(lab, host, ("python3", "-c", program)), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline().strip() == "ready"
        with socket.create_connection((host.address, 5555), timeout=10) as connection:
            yield connection
    finally:
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()


def test_a_cut_link_is_silent_and_a_healed_one_delivers_what_was_sent_meanwhile(lab, ringleader):
    host = lab.hosts[2]
    with _echo(lab, host) as connection:
        assert _exchange(connection) == b"x"
        try:
            assert ringleader("lab", "cut", "--lab-name", lab.name, host.name).returncode == 0
            assert [row.state for row in lab_hosts.status(lab)] == ["up", "up", "cut", "up"]
            connection.settimeout(2)
            with pytest.raises(TimeoutError):
                _exchange(connection)
            inside = ringleader("lab", "exec", "--lab-name", lab.name, host.name, "hostname")
            assert inside.stdout.strip() == host.name
        finally:
            healed = ringleader("lab", "heal", "--lab-name", lab.name, host.name)
        assert healed.returncode == 0, healed.stderr
        connection.settimeout(60)
        assert connection.recv(1) == b"x"
    assert [row.state for row in lab_hosts.status(lab)] == ["up"] * 4


def test_kill_ends_everything_on_one_host_and_heal_starts_it_again(lab, ringleader, on_host):
    host, other = lab.hosts[3], lab.hosts[0]
    sleeper = subprocess.Popen(lab_hosts.argv_on(lab, host, ("setsid", "sleep", "300")))
    remote = subprocess.Popen(
        ["ssh", "-F", lab.ssh_config, host.name, "trap '' TERM HUP INT; sleep 300; sleep 300"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(0.5)
        assert remote.poll() is None and sleeper.poll() is None
        assert ringleader("lab", "kill", "--lab-name", lab.name, host.name).returncode == 0
        assert remote.wait(timeout=20) == 255
        assert sleeper.wait(timeout=20) != 0
        rows = {row.host.name: row for row in lab_hosts.status(lab)}
        assert (rows[host.name].state, rows[host.name].sshd) == ("dead", False)
        assert (rows[other.name].state, rows[other.name].sshd) == ("up", True)
        refused = ringleader("lab", "exec", "--lab-name", lab.name, host.name, "true")
        assert refused.returncode == 3 and "lab heal" in refused.stderr
        again = ringleader("lab", "up", "--lab-name", lab.name, "--ssh-port", "34")
        assert again.returncode == 0 and f"dead: {host.name}" in again.stderr
    finally:
        healed = ringleader("lab", "heal", "--lab-name", lab.name, host.name)
        for process in (sleeper, remote):
            process.kill()
            process.wait(timeout=10)
    assert healed.returncode == 0, healed.stderr
    assert on_host(host.name, "hostname").stdout.strip() == host.name
    assert on_host(host.name, "pgrep -fxc 'sleep 300'").stdout.strip() == "0"


def test_latency_delays_each_frame_or_the_kernel_that_cannot_is_named(scratch_name, ringleader, snapshot):
    before = snapshot(scratch_name)
    words = ("--hosts", "1", "--ssh-port", "34", "--latency", "20ms")
    done = ringleader("lab", "up", "--lab-name", scratch_name, *words)
    if done.returncode:
        assert done.returncode == 3
        assert "netem" in done.stderr and "modprobe sch_netem" in done.stderr
        assert snapshot(scratch_name) == before
        return
    begin = time.monotonic()
    with socket.create_connection((f"{scratch_name}-h1", 34), timeout=10):
        assert time.monotonic() - begin >= 0.04
