from dataclasses import dataclass

import click
import pytest

from ringleader.cli.options.host_options import HostOptions, allocation_text, bare_hosts_text, choose_hosts
from ringleader.cli.options.option_checks import read_ranks
from ringleader.cli.options.rank_options import make_job
from ringleader.cli.run.command import RunOptions, build_job, command
from ringleader.cli.typed_command import Option, faults_of_words, full_help, options_of
from ringleader.errors import Fault, LabError, RequestError
from ringleader.option_fields import WrongValueError, names_of
from ringleader.plan.job import Host, Job, Placement, Ssh, faults_of

FILES = {
    "hosts.txt": "h1 slots=2\nh2:4\n",
    "bad.txt": "h1 slots=zero\nh2 slots=2\nh3 what\n",
    "a.env": "A=file\nB=file\n",
    "bad.env": "OK=1\nno good\n",
    "/lab/hostfile": "l1 slots=2\nl2 slots=2\n",
    "/labs/big": "l1 slots=2\nl2 slots=2\n",
}


def read(path: str) -> str:
    if path == "binary":
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


@dataclass
class FakeLab:
    hostfile: str = "/lab/hostfile"
    ssh_config: str = "/lab/ssh_config"


def find_lab(name: str | None) -> FakeLab:
    return FakeLab(hostfile=f"/labs/{name}") if name else FakeLab()


def parse(words: str | list[str]) -> RunOptions:
    """Parse a command line as click does, without running anything."""
    argv = words.split() if isinstance(words, str) else list(words)
    with command.make_context("run", argv) as ctx:
        return options_of(RunOptions, ctx.params, faults=tuple(faults_of_words(ctx)))


def job_of(words: str | list[str], environ: dict[str, str] | None = None) -> Job:
    """The job of a command line, with every fault in it."""
    options = parse(words)
    asked, environ = options.job, environ if environ is not None else {}
    chosen = choose_hosts(options.hosts, asked.ssh, environ=environ, read=read, find_lab=find_lab)
    return make_job(asked, options.ranks, chosen=chosen, environ=environ, read=read, current_dir="/work dir")


def wheres(job: Job) -> list[str]:
    return [fault.where for fault in faults_of(job)]


def test_the_commands_own_options_are_untouched() -> None:
    job = job_of("-n 2 python train.py --lr 1 -n 9 -H x --hostfile y -- -x Z")
    assert job.command == (
        "python",
        "train.py",
        "--lr",
        "1",
        "-n",
        "9",
        "-H",
        "x",
        "--hostfile",
        "y",
        "--",
        "-x",
        "Z",
    )
    assert (job.np, job.hosts, job.env) == (2, (), ())


def test_a_command_behind_two_dashes() -> None:
    assert job_of("-n 2 -- --odd-program -n 3").command == ("--odd-program", "-n", "3")


def test_arguments_pass_byte_for_byte() -> None:
    words = ["-n", "1", "echo", "a b", "'\"", "$HOME;ls", "line\nbreak", "", "*", "é"]
    assert job_of(words).command == tuple(words[2:])


@pytest.mark.parametrize("words", ["-n 3 x", "-np 3 x", "--np 3 x", "--np=3 x", "-n3 x"])
def test_every_spelling_of_n(words: str) -> None:
    assert job_of(words).np == 3


def test_defaults() -> None:
    assert job_of("true") == Job(command=("true",), workdir="/work dir")


def test_every_rank_sees_all_gpus_unless_it_is_to_see_its_own() -> None:
    assert job_of("true").all_gpus and job_of("--all-gpus true").all_gpus
    assert not job_of("--own-gpu true").all_gpus
    (fault,) = job_of("--own-gpu --all-gpus true").faults
    assert (fault.where, fault.what) == ("--own-gpu", "contradicts --all-gpus")


def test_every_option_arrives() -> None:
    words = (
        "-n 4 -H h1:2,h2:2 --ssh-port 33 --ssh-identity /k --ssh-config /c --accept-new-host-keys "
        "--network-interface eth0 --map-by node --oversubscribe --share-gpus --own-gpu --bind none "
        "--threads 3 --mpi mpich -x A=1 --output out --quiet --no-prefix --timeout 90 --grace 0.5 "
        "--lost-after 7 "
        "--start-timeout 5.5 --workdir sub --python /py --mpirun-arg=-v --mpirun-arg x "
        "--master-port 4000 --as-horovod --no-settings prog"
    )
    assert job_of(words) == Job(
        command=("prog",),
        np=4,
        hosts=(Host(name="h1", slots=2), Host(name="h2", slots=2)),
        mpi="mpich",
        ssh=Ssh(port=33, identity="/k", config="/c", accept_new=True),
        placement=Placement.NODE,
        oversubscribe=True,
        share_gpus=True,
        all_gpus=False,
        bind="none",
        threads=3,
        network_interface="eth0",
        master_port=4000,
        env=(("A", "1"),),
        as_horovod=True,
        transport_settings=False,
        output_dir="out",
        quiet=True,
        prefix_output=False,
        timeout=90.0,
        start_timeout=5.5,
        grace=0.5,
        lost_after=7.0,
        workdir="/work dir/sub",
        python="/py",
        extra_mpirun_args=("-v", "x"),
    )


def test_an_absolute_working_directory_stays() -> None:
    assert job_of("--workdir /abs true").workdir == "/abs"


def test_hosts_from_a_file_and_repeated_options() -> None:
    assert job_of("--hostfile hosts.txt x").hosts == (Host(name="h1", slots=2), Host(name="h2", slots=4))
    assert job_of("-H h1:2 -H h2,h1 x").hosts == (Host(name="h1", slots=3), Host(name="h2", slots=1))


def test_the_lab() -> None:
    for words in ("--lab x", "--on lab x", "--lab --on lab x", "--lab-name big x", "--lab --lab-name big x"):
        job = job_of(words)
        assert job.hosts == (Host(name="l1", slots=2), Host(name="l2", slots=2))
        assert job.ssh.config == "/lab/ssh_config"
        assert wheres(job) == []


def test_no_lab_is_said_by_the_lab() -> None:
    def no_lab(name: str | None) -> FakeLab:
        raise LabError(Fault(where="--lab", what="there is no lab"))

    with pytest.raises(LabError):
        choose_hosts(HostOptions(lab=True), Ssh(), environ={}, read=read, find_lab=no_lab)


def test_torchruns_words() -> None:
    job = job_of("--hostfile hosts.txt --nnodes 1 --nproc_per_node=3 --master_port 1234 x")
    assert (job.hosts, job.np, job.master_port) == ((Host(name="h1", slots=3),), 3, 1234)
    assert job_of("--nproc-per-node 2 x").np == 2
    assert wheres(job_of("--nproc-per-node 2 -n 2 x")) == []
    assert wheres(job_of("--nproc-per-node 2 -n 3 x")) == ["-n and --nproc-per-node"]


@pytest.mark.parametrize(
    ("size", "rank"),
    [
        ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("PMI_SIZE", "PMI_RANK"),
    ],
)
def test_one_of_several_copies_does_not_start_a_whole_job(size: str, rank: str) -> None:
    environ = {size: "4", rank: "1"}
    (fault,) = choose_hosts(HostOptions(), Ssh(), environ=environ, read=read, find_lab=find_lab).faults
    assert fault.where == f"{size}=4" and "this is task 1 of 4" in fault.what and "srun -N1 -n1" in fault.hint
    for given in (environ | {size: "1"}, {size: "4"}, {rank: "1"}, environ | {size: "x"}):
        assert choose_hosts(HostOptions(), Ssh(), environ=given, read=read, find_lab=find_lab).faults == ()
    alone = HostOptions(no_allocation=True)
    assert choose_hosts(alone, Ssh(), environ=environ, read=read, find_lab=find_lab).faults == ()


SLURM = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}


def test_an_allocation_is_used_and_shown() -> None:
    chosen = choose_hosts(HostOptions(), Ssh(), environ=SLURM, read=read, find_lab=find_lab)
    assert chosen.hosts == (Host(name="n1", slots=2), Host(name="n2", slots=2))
    assert chosen.allocation is not None
    text = allocation_text(chosen.allocation)
    assert text.startswith("Slurm allocation with 4 slots: n1:2, n2:2 (from SLURM_JOB_NODELIST")
    assert "--no-allocation" in text


@pytest.mark.parametrize(
    "words", ["--no-allocation x", "--on local x", "-H h1 x", "--hostfile hosts.txt x", "--lab x"]
)
def test_an_allocation_is_left_alone_when_told_or_hosts_are_named(words: str) -> None:
    assert all(not host.name.startswith("n") for host in job_of(words, SLURM).hosts)
    assert wheres(job_of(words, SLURM)) == []


def test_an_allocation_that_cannot_be_read_is_a_fault() -> None:
    assert wheres(job_of("x", {"SLURM_JOB_NODELIST": "n[1"})) == ["SLURM_JOB_NODELIST"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("-H h1 --hostfile hosts.txt x", "-H and --hostfile"),
        ("-H h1 --lab x", "-H and --lab"),
        ("--on local -H h1 x", "--on local and -H"),
        ("--on ssh --lab x", "--on ssh and --lab"),
        ("--on moon x", "--on"),
        ("--on ssh x", "--on"),
        ("--lab --ssh-config f x", "--lab and --ssh-config"),
        ("--hostfile nowhere x", "--hostfile"),
        ("--hostfile binary x", "--hostfile"),
        ("--env-file nowhere x", "--env-file"),
        ("-n two x", "-n"),
        ("-n 1.5 x", "-n"),
        ("-n 0 x", "-n"),
        ("--ssh-port ssh x", "--ssh-port"),
        ("--ssh-port 0 x", "--ssh-port"),
        ("--master-port 99999 x", "--master-port"),
        ("--threads many x", "--threads"),
        ("--timeout soon x", "--timeout"),
        ("--start-timeout 0 x", "--start-timeout"),
        ("--grace -1 x", "--grace"),
        ("--grace long x", "--grace"),
        ("--grace inf x", "--grace"),
        ("--lost-after 0 x", "--lost-after"),
        ("--lost-after nan x", "--lost-after"),
        ("--map-by socket x", "--map-by"),
        ("--bind core x", "--bind"),
        ("-x NOT_SET x", "-x NOT_SET"),
        ("-x RANK=1 x", "-x RANK"),
        ("--env-file bad.env x", "bad.env:2"),
        ("--nnodes 2 x", "--nnodes"),
        ("--nproc-per-node gpu x", "--nproc-per-node"),
        ("-n 2", "COMMAND"),
    ],
)
def test_each_fault_names_its_option(words: str, where: str) -> None:
    assert wheres(job_of(words)) == [where]


def test_all_faults_come_at_once() -> None:
    job = job_of(
        "--hostfile bad.txt -n zero --ssh-port x --map-by y -x 1 --env-file bad.env --timeout t --bind b"
    )
    assert wheres(job) == [
        "-n",
        "--ssh-port",
        "--map-by",
        "--timeout",
        "--bind",
        "bad.txt:1",
        "bad.txt:3",
        "bad.env:2",
        "-x 1",
        "COMMAND",
    ]


def test_variables_the_later_wins() -> None:
    job = job_of("--env-file a.env -x B=word -x C x", {"C": "caller"})
    assert job.env == (("A", "file"), ("B", "word"), ("C", "caller"))


def test_an_unknown_option_is_refused_before_the_command() -> None:
    with pytest.raises(click.UsageError, match="--oversubscibe"):
        parse("--oversubscibe python x.py")


def test_help_explains_every_option() -> None:
    with click.Context(command, info_name="ringleader run") as ctx:
        text = full_help(ctx)
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help
            shown = param.spellings if isinstance(param, Option) else param.opts
            assert all(word in text for word in shown)


def test_options_hold_nothing_that_a_job_does_not_use() -> None:
    named = {param.name for param in command.params if param.expose_value}
    assert named == names_of(RunOptions)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--timeline t.json x", "/work dir/t.json"),
        ("--timeline /tmp/t.{rank}.json x", "/tmp/t.{rank}.json"),
        ("--timeline dynamic x", "DYNAMIC"),
        ("-x RINGLEADER_TIMELINE=u --timeline t.json x", "/work dir/t.json"),
    ],
)
def test_a_timeline_is_a_variable_of_the_ranks(words: str, expected: str) -> None:
    assert dict(job_of(words).env)["RINGLEADER_TIMELINE"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,3", {0, 3}),
        ("0-2, 5", {0, 1, 2, 5}),
        ("7", {7}),
        ("", None),
        ("a", None),
        ("3-1", None),
        ("1,", None),
    ],
)
def test_ranks_to_show(text: str, expected: set[int] | None) -> None:
    if expected is not None:
        assert read_ranks(text) == expected
        return
    with pytest.raises(WrongValueError, match="names no ranks"):
        read_ranks(text)


def test_a_rank_to_show_must_be_there() -> None:
    with pytest.raises(RequestError) as caught:
        build_job(parse(["-n", "4", "--show-ranks", "0-4", "true"]), environ={})
    assert [str(fault) for fault in caught.value.faults] == [
        "--show-ranks: there is no rank 4\n    → the last one is 3"
    ]
    assert build_job(parse(["-n", "4", "--show-ranks", "3", "true"]), environ={}).np == 4


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("h1:2,h2:1",), ""),
        (("[fe80::1]:2",), ""),
        (("fe80::1",), "-H fe80::1: 1 slot, as in Open MPI"),
        (("h1:2, h2",), "-H h2: 1 slot, as in Open MPI"),
        (
            ("h1,h2:2",),
            "-H h1: 1 slot, as in Open MPI; a bare name in a hostfile has one for each GPU or core",
        ),
        (("a,b", "c,d,e"), "-H a, b, c, d and 1 more: 1 slot each, as in Open MPI"),
    ],
)
def test_bare_names_of_hosts_have_one_slot_and_that_is_said(hosts: tuple[str, ...], text: str) -> None:
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
