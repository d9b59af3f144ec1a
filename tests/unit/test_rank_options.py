"""Options of ranks and hosts become a job, and their variables."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.cli.options.host_options import HostOptions, allocation_text, bare_hosts_text, choose_hosts
from ringleader.cli.options.option_checks import read_ranks
from ringleader.cli.options.rank_options import make_job, parse_assignments, parse_env_file
from ringleader.cli.run.command import RunOptions, build_job, command
from ringleader.cli.typed_command import faults_of_words, options_of
from ringleader.errors import RequestError
from ringleader.option_fields import WrongValueError
from ringleader.plan.job import Host, Job, Placement, Ssh, faults_of

FILES = {
    "hosts.txt": "h1 slots=2\nh2:4\n",
    "bad.txt": "h1 slots=zero\nh2 slots=2\nh3 what\n",
    "a.env": "A=file\nB=file\n",
    "bad.env": "OK=1\nno good\n",
    "/lab/hostfile": "l1 slots=2\nl2 slots=2\n",
    "/labs/big": "l1 slots=2\nl2 slots=2\n",
}


def read(path):
    if path == "binary":
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


@dataclass
class FakeLab:
    hostfile: str = "/lab/hostfile"
    ssh_config: str = "/lab/ssh_config"


def find_lab(name):
    return FakeLab(hostfile=f"/labs/{name}") if name else FakeLab()


@pytest.mark.parametrize("kind", ["SLURM_STEP_NUM_TASKS SLURM_PROCID", "PMI_SIZE PMI_RANK"])
def test_one_of_several_copies_does_not_start_a_whole_job(kind):
    def faults(environ, options=None):
        return choose_hosts(
            options or HostOptions(), Ssh(), environ=environ, read=read, find_lab=find_lab
        ).faults

    size, rank = kind.split()
    environ = {size: "4", rank: "1"}
    (fault,) = faults(environ)
    assert fault.where == f"{size}=4" and "this is task 1 of 4" in fault.what and "srun -N1 -n1" in fault.hint
    for others in (environ | {size: "1"}, {size: "4"}, {rank: "1"}, environ | {size: "x"}):
        assert faults(others) == ()
    assert faults(environ, HostOptions(no_allocation=True)) == ()


def parse(words):
    """Parse a command line as click does, without running anything."""
    argv = words.split() if isinstance(words, str) else list(words)
    with command.make_context("run", argv) as ctx:
        return options_of(RunOptions, ctx.params, faults=tuple(faults_of_words(ctx)))


def job_of(words, environ=None):
    """The job of a command line, with every fault in it."""
    options = parse(words)
    asked, environ = options.job, environ if environ is not None else {}
    chosen = choose_hosts(options.hosts, asked.ssh, environ=environ, read=read, find_lab=find_lab)
    return make_job(asked, options.ranks, chosen=chosen, environ=environ, read=read, current_dir="/work dir")


def wheres(job):
    return [fault.where for fault in faults_of(job)]


def test_the_commands_own_options_are_untouched():
    line = "python train.py --lr 1 -n 9 -H x --hostfile y -- -x Z"
    job = job_of(f"-n 2 {line}")
    assert (job.command, job.np, job.hosts, job.env) == (tuple(line.split()), 2, (), ())
    words = ["echo", "a b", "'\"", "$HOME;ls", "line\nbreak", "", "*", "é"]
    assert job_of(["-n3", *words]).command == tuple(words), "byte for byte"
    assert job_of("-np 3 -- --odd -n 2") == Job(command=("--odd", "-n", "2"), np=3, workdir="/work dir")
    assert job_of("--np=3 --workdir /abs x").workdir == "/abs"


def test_hosts_from_a_file_repeated_options_or_an_allocation():
    assert job_of("--hostfile hosts.txt x").hosts == (Host(name="h1", slots=2), Host(name="h2", slots=4))
    assert job_of("-H h1:2 -H h2,h1 x").hosts == (Host(name="h1", slots=3), Host(name="h2", slots=1))
    assert wheres(job_of("x", {"SLURM_JOB_NODELIST": "n[1"})) == ["SLURM_JOB_NODELIST"]


def test_every_rank_sees_all_gpus_unless_it_is_to_see_its_own():
    assert job_of("true").all_gpus and job_of("--all-gpus true").all_gpus
    assert not job_of("--own-gpu true").all_gpus
    (fault,) = job_of("--own-gpu --all-gpus true").faults
    assert (fault.where, fault.what) == ("--own-gpu", "contradicts --all-gpus")


def test_the_lab():
    for words in ("--lab x", "--on lab x", "--lab-name big x"):
        job = job_of(words)
        assert job.hosts == (Host(name="l1", slots=2), Host(name="l2", slots=2))
        assert job.ssh.config == "/lab/ssh_config" and wheres(job) == []


def test_torchruns_words():
    job = job_of("--hostfile hosts.txt --nnodes 1 --nproc_per_node=3 --master_port 1234 x")
    assert (job.hosts, job.np, job.master_port) == ((Host(name="h1", slots=3),), 3, 1234)
    assert wheres(job_of("--nproc-per-node 2 -n 2 x")) == []
    assert wheres(job_of("--nproc-per-node 2 -n 3 x")) == ["-n and --nproc-per-node"]


SLURM = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}


def test_an_allocation_is_used_and_shown():
    chosen = choose_hosts(HostOptions(), Ssh(), environ=SLURM, read=read, find_lab=find_lab)
    assert chosen.hosts == (Host(name="n1", slots=2), Host(name="n2", slots=2))
    text = allocation_text(chosen.allocation)
    assert text.startswith("Slurm allocation with 4 slots: n1:2, n2:2 (from SLURM_JOB_NODELIST")
    assert "--no-allocation" in text
    job = job_of("--env-file a.env -x B=word -x C x", {"C": "caller"})
    assert job.env == (("A", "file"), ("B", "word"), ("C", "caller")), "the later wins"


def test_an_allocation_is_left_alone_when_told_or_hosts_are_named():
    for words in ("--no-allocation x", "--on local x", "-H h1 x", "--hostfile hosts.txt x", "--lab x"):
        assert all(not host.name.startswith("n") for host in job_of(words, SLURM).hosts)
        assert wheres(job_of(words, SLURM)) == []


def test_each_fault_names_its_option():
    for words, where in (
        ("-H h1 --hostfile hosts.txt x", "-H and --hostfile"),
        ("--hostfile binary x", "--hostfile"),
        ("-H h1 --lab x", "-H and --lab"),
        ("--on local -H h1 x", "--on local and -H"),
        ("--on ssh --lab x", "--on ssh and --lab"),
        ("--on moon x", "--on"),
        ("--on ssh x", "--on"),
        ("--lab --ssh-config f x", "--lab and --ssh-config"),
        ("--hostfile nowhere x", "--hostfile"),
        ("--env-file nowhere x", "--env-file"),
        ("-x NOT_SET x", "-x NOT_SET"),
        ("-x RANK=1 x", "-x RANK"),
        ("--env-file bad.env x", "bad.env:2"),
        ("--nnodes 2 x", "--nnodes"),
        ("--nproc-per-node gpu x", "--nproc-per-node"),
    ):
        assert wheres(job_of(words)) == [where]


def test_a_timeline_is_a_variable_of_the_ranks():
    for words, expected in (
        ("--timeline t.json x", "/work dir/t.json"),
        ("--timeline dynamic x", "DYNAMIC"),
        ("-x RINGLEADER_TIMELINE=u --timeline t.json x", "/work dir/t.json"),
    ):
        assert dict(job_of(words).env)["RINGLEADER_TIMELINE"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,3", {0, 3}),
        ("0-2, 5", {0, 1, 2, 5}),
        ("3-1", None),
    ],
)
def test_ranks_to_show(text, expected):
    if expected is not None:
        assert read_ranks(text) == expected
        return
    with pytest.raises(WrongValueError, match="names no ranks"):
        read_ranks(text)


def test_a_rank_to_show_must_be_there():
    with pytest.raises(RequestError) as caught:
        build_job(parse(["-n", "4", "--show-ranks", "0-4", "true"]), environ={})
    assert [str(fault) for fault in caught.value.faults] == [
        "--show-ranks: there is no rank 4\n    → the last one is 3"
    ]
    assert build_job(parse(["-n", "4", "--show-ranks", "3", "true"]), environ={}).np == 4


def test_bare_names_of_hosts_have_one_slot_and_that_is_said():
    for hosts, text in (
        ((), ""),
        (("h1:2,h2:1",), ""),
        (("[fe80::1]:2",), ""),
        (("fe80::1",), "-H fe80::1: 1 slot, as in Open MPI"),
        (
            ("h1,h2:2",),
            "-H h1: 1 slot, as in Open MPI; a bare name in a hostfile has one for each GPU or core",
        ),
        (("a,b", "c,d,e"), "-H a, b, c, d and 1 more: 1 slot each, as in Open MPI"),
    ):
        assert bare_hosts_text(HostOptions(hosts=hosts)).startswith(text)
        assert bool(bare_hosts_text(HostOptions(hosts=hosts))) == bool(text)


def test_a_job_that_slurm_queued_again_has_directories_of_its_own():
    words = ["--report", "/r", "--profile", "2:3", "--profile-dir", "/p", "true"]

    def of(restart):
        job = build_job(parse(words), environ={"SLURM_RESTART_COUNT": restart})
        return job.report, job.profile_dir

    assert of("0") == of("") == ("/r", "/p")
    assert of("2") == ("/r/restart-2", "/p/restart-2")
    assert build_job(parse(["true"]), environ={"SLURM_RESTART_COUNT": "2"}).report is None


CALLER = {"HERE": "from the caller", "EMPTY": ""}


def test_values():
    for line, value in (
        ("A=b", "b"),
        ("export A=b", "b"),
        ("A=b # comment", "b"),
        ("A=b#no comment", "b#no comment"),
        ("A='b # c'", "b # c"),
        ('A="b\\nc\\t\\"d\\" \\\\ \\$x \\q"', 'b\nc\t"d" \\ $x \\q'),
        ('A="b" # comment', "b"),
        ("A=$HOME", "$HOME"),
        ("A='it''s", None),
        ("A=b\r", "b"),
    ):
        parsed = parse_env_file(line, {}, "f")
        if value is None:
            assert len(parsed.faults) == 1
        else:
            assert (parsed.values, parsed.faults) == ((("A", value),), ())


def test_a_whole_file():
    text = "\ufeff# settings\n\nA=1\nHERE\nEMPTY  # passed on\nexport HERE\nA=2\n"
    parsed = parse_env_file(text, CALLER, "f")
    assert parsed.faults == ()
    assert parsed.values == (
        ("A", "1"),
        ("HERE", "from the caller"),
        ("EMPTY", ""),
        ("HERE", "from the caller"),
        ("A", "2"),
    )


def test_every_bad_line_is_named():
    text = "A=1\n1A=2\nMISSING\nB='open\nC=\"x\" y\nRANK=3\nD E=1\nA=\0\nF='x'\n"
    parsed = parse_env_file(text, CALLER, "my env")
    assert [fault.where for fault in parsed.faults] == [f"my env:{line}" for line in range(2, 9)]
    assert parsed.values == (("A", "1"), ("F", "x"))


def test_words_of_the_command_line_are_taken_as_they_are():
    words = ("A=b # c", "B='x'", "HERE", "C=", "D=a=b")
    parsed = parse_assignments(words, CALLER)
    assert parsed.faults == ()
    assert parsed.values == (
        ("A", "b # c"),
        ("B", "'x'"),
        ("HERE", "from the caller"),
        ("C", ""),
        ("D", "a=b"),
    )


def test_words_that_set_nothing():
    for word, what in (
        ("NOT_SET", "not set here"),
        ("=x", "not a name"),
        ("WORLD_SIZE=4", "rank's place"),
        ("RINGLEADER_TOKEN=x", "rank's place"),
    ):
        parsed = parse_assignments((word,), CALLER)
        assert what in parsed.faults[0].what
        assert parsed.faults[0].where.startswith("-x")


@given(st.text(alphabet="A=1'\"\\# \n\texport$\r"))
def test_any_text_gives_values_or_faults(text):
    parsed = parse_env_file(text, {}, "f")
    assert all(name and "\n" not in name for name, _ in parsed.values)
    assert all(fault.where.startswith("f:") for fault in parsed.faults)


@given(st.text(st.characters(exclude_characters="\0\n", exclude_categories=("Cs",))))
def test_a_quoted_value_comes_back(value):
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_env_file(f'A="{escaped}"', {}, "f").values == (("A", value),)


def test_every_option_arrives():
    words = (
        "-n 4 -H h1:2,h2:2 --ssh-port 33 --ssh-identity /k --ssh-config /c --accept-new-host-keys "
        "--network-interface eth0 --map-by node --oversubscribe --share-gpus --own-gpu --bind none "
        "--threads 3 --mpi mpich -x A=1 --output out --quiet --no-prefix --timeout 90 --grace 0.5 "
        "--lost-after 7 --start-timeout 5.5 --workdir sub --python /py --mpirun-arg=-v --mpirun-arg x "
        "--master-port 4000 --as-horovod --no-settings prog"
    )
    hosts = (Host(name="h1", slots=2), Host(name="h2", slots=2))
    ssh = Ssh(port=33, identity="/k", config="/c", accept_new=True)
    given = {"np": 4, "mpi": "mpich", "placement": Placement.NODE, "bind": "none", "threads": 3}
    given |= {"oversubscribe": True, "share_gpus": True, "all_gpus": False, "network_interface": "eth0"}
    given |= {"master_port": 4000, "env": (("A", "1"),), "as_horovod": True, "transport_settings": False}
    given |= {"output_dir": "out", "quiet": True, "prefix_output": False, "timeout": 90.0, "grace": 0.5}
    given |= {"start_timeout": 5.5, "lost_after": 7.0, "workdir": "/work dir/sub", "python": "/py"}
    expected = Job(command=("prog",), hosts=hosts, ssh=ssh, extra_mpirun_args=("-v", "x"), **given)
    assert job_of(words) == expected
