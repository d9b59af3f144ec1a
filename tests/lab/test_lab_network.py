"""Links: their rate, and cut, heal and kill."""

import contextlib
import json
import socket
import subprocess
import time

import pytest
from tests.commands import finished

from ringleader.lab import hosts as lab_hosts

pytestmark = pytest.mark.lab


def _iperf3(lab, server, client, tool, *options):
    """Return the rate in bit/s that iperf3 counts between two hosts.

    Both ends run before everything else on the machine: the link is measured, not who else wants a core.
    """
    program = (tool("chrt"), "--fifo", "10", tool("iperf3"))
    listen = subprocess.Popen(
        lab_hosts.argv_on(lab, server, (*program, "-s", "-1", "--forceflush")),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in listen.stdout:
            if "listening" in line:
                break
        words = (*program, "-c", server.address, "-t", "1.5", "-O", "0.5", "-J", *options)
        done = finished(lab_hosts.argv_on(lab, client, words), timeout=30, check=True)
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]
    finally:
        listen.kill()
        listen.wait(timeout=10)
        listen.stdout.close()


@pytest.mark.parametrize(
    ("bandwidth", "direction"),
    [(1_000_000_000, ("-R",)), (8_000_000_000, ())],
    ids=["1gbit back", "8gbit forth"],
)
def test_iperf3_confirms_the_rate_of_a_link(bandwidth, direction, lab, tool, shaped_to):
    server, client = lab.hosts[:2]
    shaped_to(bandwidth)
    best = 0.0
    for _ in range(3):
        best = max(best, _iperf3(lab, server, client, tool, *direction))
        if best >= 0.9 * bandwidth:
            break
    assert best <= 1.1 * bandwidth
    if best < 0.9 * bandwidth:
        # A slow machine does not fill the link: then a link without any limit is hardly faster.
        shaped_to(10 * bandwidth)
        unlimited = _iperf3(lab, server, client, tool, *direction)
        assert best >= 0.7 * min(bandwidth, unlimited)


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
