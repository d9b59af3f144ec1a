"""An MPI that does not do what it was asked: the job fails, it never runs somewhere else in silence."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ringleader.errors import LaunchError
from ringleader.launch.host_probe.probe import Probe, probe
from ringleader.plan.job import Host

pytestmark = pytest.mark.mpi


def mpirun_like(path, body):
    """Write a program that calls itself Open MPI 5."""
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 5.0.8"; exit 0; fi\n'
        'while case "${1##*/}" in python*) false ;; esac; do shift; done\n'
        + body  # "$@" is the agent's command
    )
    path.chmod(0o755)
    return str(path)


def two_hosts(job, **options):
    """Answer for two hosts, of which only this one exists."""
    found = probe(replace(job, hosts=()), **options)
    here = found.facts[0]
    there = replace(here, host=Host(name="far", slots=1), identity="another machine", is_local=False)
    here = replace(here, host=Host(name="near", slots=1))
    return Probe(facts=(here, there), ssh=None)


def test_mpirun_that_ignores_the_hostfile_makes_the_run_fail(workplace, python):
    body = 'for r in 0 1; do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 "$@" & done; wait\n'
    fake = mpirun_like(workplace.tmp / "mpirun", body)
    ran = workplace.tmp / "ran"
    hosts = (Host(name="near", slots=1), Host(name="far", slots=1))
    with pytest.raises(LaunchError) as error:
        workplace.launch("touch", str(ran), mpi=fake, hosts=hosts, prober=two_hosts)
    assert "rank 1" in str(error.value) and "not on far" in str(error.value)
    assert not ran.exists(), "no rank has run anything"


def test_real_mpirun_misled_by_a_hostfile_of_its_own_is_caught_as_well(workplace, python):
    exported = "-x RINGLEADER_CONTROL -x RINGLEADER_TOKEN -x RINGLEADER_JOB_DIR"
    body = f'exec "{Path(python).parent}/mpirun" --host localhost:2 -n 2 {exported} "$@"\n'
    fake = mpirun_like(workplace.tmp / "mpirun", body)
    hosts = (Host(name="near", slots=1), Host(name="far", slots=1))
    with pytest.raises(LaunchError) as error:
        workplace.launch("true", mpi=fake, hosts=hosts, prober=two_hosts)
    assert "not on far" in str(error.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$@" & sleep 100',
            "rank 1 on localhost did not report within 3 s",
        ),
        ('echo "no such interface: ib7" >&2; exit 9', "exit code 9.*no such interface: ib7"),
        ("exit 0", "before ranks 0, 1 had started"),
    ],
)
def test_mpirun_that_does_not_start_every_rank_is_an_error(workplace, body, said):
    fake = mpirun_like(workplace.tmp / "mpirun", f"{body}\n")
    with pytest.raises(LaunchError, match=f"(?s){said}"):
        workplace.launch("true", mpi=fake, start_timeout=3.0)


def test_an_mpirun_that_never_ends_is_ended_with_its_ranks(workplace):
    ranks = 'for r in 0 1; do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=2 "$@" & done; wait'
    fake = mpirun_like(workplace.tmp / "mpirun", f'{ranks}\ntrap "" TERM\nsleep 150\n')
    done = workplace.run("run", "--oversubscribe", "--mpi", fake, "-n", "2", "sh", "-c", "exit $RANK")
    assert done.returncode == 1 and b"mpirun" not in done.stderr, done
    assert not workplace.gone_within(5)


def test_library_of_another_mpi_is_an_error_that_names_both(workplace, python):
    script = "import ctypes, time, sys, glob, os\nctypes.CDLL(os.environ['WRONG'])\ntime.sleep(60)"
    wrong = Path(sys.prefix) / "lib/libmpi.so.40"
    with pytest.raises(LaunchError) as error:
        workplace.launch(python, "-c", script, mpi="openmpi4", env=(("WRONG", str(wrong)),))
    assert str(wrong) in str(error.value) and "/usr/lib" in str(error.value)


def test_command_that_cannot_be_run(workplace):
    place = workplace.tmp / "not a program"
    place.write_text("text without a first line that names an interpreter")
    place.chmod(0o755)
    outcome, _ = workplace.launch(str(place))
    assert outcome.exit_code == 126
    assert "Exec format error" in outcome.reason


def test_stranger_on_the_control_port_changes_nothing(workplace, python):
    script = (
        "import os, socket, sys\n"
        "ports = [int(line.split()[1].split(':')[1], 16) for line in open('/proc/net/tcp').readlines()[1:]"
        " if line.split()[3] == '0A']\n"
        "for port in ports:\n"
        "    try:\n"
        "        s = socket.create_connection(('127.0.0.1', port), 0.2)\n"
        "        s.sendall(b'\\xff' * 4000); s.close()\n"
        "    except OSError: pass\n"
        "print('done')"
    )
    outcome, heard = workplace.launch(python, "-c", script, np=1)
    assert outcome.exit_code == 0 and heard.text(0) == "done\n"


def test_secret_reaches_neither_arguments_nor_the_rank(workplace, python):
    script = (
        "import os, pathlib\n"
        "paths = [p for p in pathlib.Path('/proc').glob('[0-9]*/cmdline') if p.exists()]\n"
        "words = [p.read_bytes() for p in paths if p.parent.name != str(os.getpid()) and p.exists()]\n"
        "print('RINGLEADER_TOKEN' in os.environ, any(b'RINGLEADER_TOK' + b'EN=' in w for w in words))"
    )
    _, heard = workplace.launch(python, "-c", script, np=1)
    assert heard.text(0) == "False False\n"


@pytest.fixture
def taken_port():
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


BAD = (
    ("-H no-such-host.invalid:1 true", 3, "host no-such-host.invalid: its name"),
    ("-H localhost:0 true", 2, "-H localhost:0: 0 slots"),
    ("-n 3 -H localhost:2 true", 2, "-n: 3 ranks asked for, 2 slots there"),
    ("-H h1:2000000 true", 2, "more than any host has"),
    ("-n 1 no-such-command", 2, "COMMAND: there is no program 'no-such-command'"),
    ("-n 1 python none.py", 2, "COMMAND: the script none.py does not exist"),
    ("-n 1 --workdir none true", 2, "there is no"),
    ("-n 1 --mpi /none/mpirun true", 2, "there is no program /none/mpirun"),
    ("-n 1 --mpi openmp true", 2, "--mpi: 'openmp' is unknown"),
    ("-n 1 --master-port {taken} true", 2, "--master-port: port {taken} cannot"),
    ("-H h1 --ssh-identity none true", 2, "none"),
    ("-n 1 --python /none/python true", 2, "--python: /none/python is no"),
    ("-n 1 --network-interface ib7 true", 3, "network interface ib7 does not exist"),
    ("-n 1 --output file true", 2, "--output: cannot"),
)
"""Words, exit code, what is said."""


@pytest.mark.parametrize(("words", "code", "said"), BAD)
def test_bad_input_is_one_clear_message(workplace, taken_port, words, code, said):
    (workplace.tmp / "file").touch()
    done = workplace.run("run", *words.replace("{taken}", str(taken_port)).split(), cwd=workplace.tmp)
    err = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b""), err
    assert said.replace("{taken}", str(taken_port)) in err
    assert "Traceback" not in err and len(err.splitlines()) <= 4, err
