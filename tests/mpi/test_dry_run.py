"""A dry run against what a launch really hands to mpirun and to the ranks."""

import json
import shlex
import signal
import socket
from pathlib import Path

import pytest
from tests.interpreter import write_program

from ringleader.cli.run.dry_run import FREE_PORT, JOB_ID, dry_run
from ringleader.plan.job import Job

pytestmark = pytest.mark.mpi

RECORDER = """\
import json, os, shutil, sys
if sys.argv[1:] == ["--version"]:
    print("{version}")
    sys.exit()
path = next(word for word in sys.argv if word.endswith("/hostfile"))
with open({record!r}, "w") as file:
    json.dump({{"argv": sys.argv, "env": dict(os.environ), "hostfile": open(path).read()}}, file)
os.environ |= {{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "PMI_RANK": "0", "PMI_SIZE": "1"}}
start = max(index for index, word in enumerate(sys.argv) if word == {agent!r})
os.execv(sys.argv[start], sys.argv[start:])
"""
VERSIONS = {
    "openmpi5": "mpirun (Open MPI) 5.0.8",
    "openmpi4": "mpirun (Open MPI) 4.1.4",
    "mpich": "HYDRA build details:\\n    Version: 4.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 1",
}


def sections(text):
    """Return a dry run's lines by the first words of their titles."""
    found = {}
    for part in text.removeprefix("# ").split("\n\n# "):
        title, *lines = part.rstrip("\n").split("\n")
        found[title.partition(":")[0] + (":" + title.split(":")[1][:5] if ": " in title else "")] = lines
    return found


def assignments(lines):
    return dict(shlex.split(line)[0].partition("=")[::2] for line in lines if not line.startswith("unset "))


@pytest.mark.parametrize("family", list(VERSIONS))
def test_a_dry_run_shows_what_mpirun_and_the_rank_get(workplace, python, family):
    record, seen = workplace.tmp / "record.json", workplace.tmp / "seen.json"
    fake = workplace.tmp / "my mpi" / "mpirun"
    fake.parent.mkdir()
    version = VERSIONS[family]
    write_program(fake, RECORDER.format(version=version, record=str(record), agent=python))
    workplace.environ |= {"SLURM_JOB_ID": "7", "NCCL_DEBUG": "INFO", "OMPI_MCA_rmaps": "seq", "HF_TOKEN": "s"}
    script = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    job = Job(
        command=(python, "-c", script, str(seen)),
        np=1,
        mpi=str(fake),
        env=(("ASKED", "a b"),),
        network_interface="lo",
        workdir=str(workplace.tmp),
        extra_mpirun_args=("--extra", "two words"),
    )
    options = {name: getattr(job, name) for name in ("mpi", "env", "network_interface", "workdir")}
    text = dry_run(job, environ=workplace.environ, listener=Quiet())
    assert not workplace.job_directories(), "nothing is made"
    outcome, heard = workplace.launch(
        *job.command, np=1, oversubscribe=False, extra_mpirun_args=job.extra_mpirun_args, **options
    )
    assert outcome.exit_code == 0, (outcome.reason, heard.all("stderr"))
    got, shown = json.loads(record.read_text()), sections(text)
    job_id = Path(got["env"]["RINGLEADER_JOB_DIR"]).name

    *before, argv = shown["mpirun: its "]
    assert shlex.split(argv) == [word.replace(job_id, JOB_ID) for word in got["argv"]]
    assert shown["hostfile"] == got["hostfile"].splitlines()
    told = assignments(before)
    added = {n: v for n, v in got["env"].items() if workplace.environ.get(n) != v}
    ports = ("RINGLEADER_CONTROL", "RINGLEADER_TOKEN")
    # Python sets the one for the recorder, in the C locale, and the shell that starts it the other.
    assert set(told) == set(added) - {"LC_CTYPE", "PWD"}
    assert {n: told[n] for n in told if n not in ports} == {
        n: v.replace(job_id, JOB_ID) for n, v in added.items() if n in told and n not in ports
    }
    gone = {line.split()[1] for line in before if line.startswith("unset ")}
    assert gone == {name for name in workplace.environ if name not in got["env"]}
    assert {"SLURM_JOB_ID", "OMPI_MCA_rmaps"} <= gone

    rank = json.loads(seen.read_text())
    for name, value in assignments(shown["every rank: envi"]).items():
        if name == "MASTER_PORT":
            assert value == FREE_PORT and rank[name].isdigit()
        elif name == "OMPI_MCA_orte_hnp_uri":  # JAX's port, and the number that it makes it from
            number, where = rank[name].split(".0;tcp://")
            assert value == f"0.0;tcp://127.0.0.1:{FREE_PORT}" and where == rank["JAX_COORDINATOR_ADDRESS"]
            assert int(number) // 4096 + 61440 == int(where.rpartition(":")[2])
        elif name == "JAX_COORDINATOR_ADDRESS":
            assert value == f"127.0.0.1:{FREE_PORT}" and rank[name].startswith("127.0.0.1:")
        elif name == "LD_LIBRARY_PATH":  # links of the job go in front
            assert rank[name].endswith(value)
        else:
            assert rank[name] == value.replace(JOB_ID, job_id), name
    assert rank["ASKED"] == "a b" and rank["SLURM_JOB_ID"] == "7"


class Quiet:
    """A listener of a dry run, which has nothing to warn of."""

    def progress(self, text):
        pass

    def warning(self, text):
        raise AssertionError(text)


@pytest.fixture
def silent():
    """The port of something that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(("number", "extra"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--dry-run",))])
def test_a_signal_while_a_host_is_being_reached(workplace, silent, number, extra):
    config = workplace.tmp / "config"
    config.write_text(f"Host mute\n  HostName 127.0.0.1\n  Port {silent}\n  ConnectTimeout 60\n")
    words = ("run", "-H", "mute:1", "--ssh-config", str(config), *extra, "true")
    launcher = workplace.ringleader(*words)
    workplace.wait_for("ssh", 1)
    launcher.send_signal(number)
    out, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 128 + number, err
    said = f"ringleader: stopped by {signal.Signals(number).name} before any rank was started\n"
    assert (out.decode(), err.decode()) == ("", said)
    assert not workplace.gone_within(2.0), "no ssh is left"


def test_names_of_one_machine_are_joined_and_that_is_told(workplace):
    words = ("run", "-H", f"localhost:1,127.0.0.1:1,{socket.gethostname()}:1")
    done = workplace.run(*words, "sh", "-c", "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_WORLD_SIZE")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [b"[%d] %d of 3 on 1" % (rank, rank) for rank in range(3)]
    notes = done.stderr.decode().splitlines()
    assert notes == [
        f"ringleader: {name} is the same machine as localhost: their slots are added up on localhost"
        for name in ("127.0.0.1", socket.gethostname())
    ]
