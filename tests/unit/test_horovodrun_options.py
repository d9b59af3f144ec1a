"""Command lines of ``horovodrun``: how they are read, and what they become."""

import importlib.util
import re
import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tests import transcripts

from ringleader.errors import RequestError
from ringleader.plan.job import Host, Job
from ringleader.runner import _HorovodArgs, command_line, launch
from ringleader.runner.command_line import parse
from ringleader.runner.job_request import JobRequest, forwarded, job_request, same_command
from ringleader.runner.option_table import OPTIONS, options_of

GUIDE = Path(__file__).parents[2] / "docs/guides/from-horovod.md"
SPELLINGS = """
-np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces --network-interface
--output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
--cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune
--autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
--autotune-gaussian-process-noise --min-np --min-num-proc --max-np --max-num-proc --slots-per-host
--elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename --timeline-mark-cycles
--no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp
--binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp
--log-without-timestamp -prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp
--no-log-hide-timestamp -H --hosts -hostfile --hostfile --host-discovery-script --gloo --mpi --jsrun
"""
"""Horovod's, besides those of the help and the version."""
WITH_YAML = pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="needs PyYAML")


HOSTS = "a slots=8\nb slots=4\n"


def asked(line: str, **environ: str) -> JobRequest:
    """What a command line becomes; a file of hosts can be read, and no other."""

    def read(path: str) -> str:
        if path != "hosts":
            raise FileNotFoundError(2, "No such file or directory")
        return HOSTS

    return job_request(options_of(parse(shlex.split(line))), environ=environ, read=read, current_dir="/work")


def test_the_same_command_notes_and_faults() -> None:
    def call(*words: str) -> tuple[int, str, str]:
        found = asked(shlex.join(words))
        out = [] if found.job.faults else [same_command(found), *found.notes]
        texts = ("".join(f"{one}\n" for one in many) for many in (out, found.job.faults))
        return 2 * bool(found.job.faults), *texts

    transcripts.check("horovodrun/commands.txt", call)


def test_every_spelling_is_known_and_in_the_guide() -> None:
    ours = {name for option in OPTIONS.values() for name in (*option.names, *option.off)}
    assert ours == {*SPELLINGS.split(), "--accept-new-host-keys", "--consistency-check"}
    text = GUIDE.read_text(encoding="utf-8")
    missing = [option.names for option in OPTIONS.values() if not any(f"`{n}" in text for n in option.names)]
    assert missing == []
    assert command_line.HOROVOD_TIMELINE == "HOROVOD_TIMELINE"
    assert not hasattr(command_line, "HOROVOD_NONSENSE")


def test_an_ordinary_command_line() -> None:
    job = asked("-np 4 -hostfile hosts -p 2222 -i key python train.py -np 3 --verbose -- x").job
    assert job.command == ("python", "train.py", "-np", "3", "--verbose", "--", "x")
    assert (job.np, job.hosts, job.faults) == (4, (Host(name="a", slots=8), Host(name="b", slots=4)), ())
    assert job.as_horovod and job.all_gpus and job.share_gpus and not job.oversubscribe
    assert (job.ssh.port, job.ssh.identity, job.ssh.accept_new) == (2222, "key", False)
    # Without hosts this machine takes as many ranks as asked for.
    job = asked("-np 64 -- python train.py", SLURM_JOB_NODELIST="n[1-4]").job
    assert (job.command, job.np, job.hosts) == (("python", "train.py"), 64, ())
    assert job.oversubscribe and job.env == ()
    for line, start_timeout in (("", Job.start_timeout), ("--start-timeout 0", Job.start_timeout)):
        assert asked(f"-np 2 {line} python").job.start_timeout == start_timeout
    assert asked("-np 2 --max-np 2 python").job.elastic is None


def test_unknown_hosts_are_refused_unless_asked_for() -> None:
    variable = "RINGLEADER_OPT_RUN_ACCEPT_NEW_HOST_KEYS"
    for option, value, accepts in (
        ("", None, False),
        ("--accept-new-host-keys", None, True),
        ("", "1", True),
        ("", "0", False),
    ):
        found = asked(f"-np 1 -H h:1 {option} python", **({} if value is None else {variable: value}))
        assert (found.job.ssh.accept_new, found.job.faults) == (accepts, ())
        assert ("--accept-new-host-keys" in same_command(found)) is accepts
    (fault,) = asked("-np 1 -H h:1 python train.py", **{variable: "perhaps"}).job.faults
    assert fault.where == variable and "'perhaps'" in fault.what


def test_defaults_for_which_horovod_has_no_options() -> None:
    environ = {"RINGLEADER_OPT_RUN_MPI": "mpich", "RINGLEADER_OPT_RUN_SSH_CONFIG": "config"}
    found = asked("-np 1 -H a:1 python", **environ)
    assert (found.job.mpi, found.job.ssh.config, found.job.env) == ("mpich", "config", ())
    assert "--ssh-config config --mpi mpich" in same_command(found)


def test_start_timeout_from_the_environment() -> None:
    for value, seconds in (("7", 7.0), ("", 60.0)):
        environ = {"HOROVOD_START_TIMEOUT": value}
        assert asked("-np 1 python", **environ).job.start_timeout == seconds
        assert asked("-np 1 --start-timeout 5 python", **environ).job.start_timeout == 5.0


def test_tcp_says_so_to_nccl_and_each_mpi_but_the_user_counts_before() -> None:
    found = dict(asked("-np 2 --tcp python").variables)
    assert (found["NCCL_IB_DISABLE"], found["OMPI_MCA_pml"]) == ("1", "ob1")
    assert "OMPI_MCA_pml" not in dict(asked("-np 2 --tcp python", OMPI_MCA_pml="cm").variables)


def test_words_that_are_no_options_are_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    for line, text in (
        ("-np", "expected one argument"),
        ("-np two python", "invalid int value"),
        ("-np 2 --nonsense python", "unrecognized arguments"),
        ("-np 2 --gloo --mpi python", "not allowed with argument"),
        ("-np 2 -H a:1 --hostfile f python", "not allowed with argument"),
        ("-np 2 --log-level LOUD python", "invalid choice"),
        ("-np 2 --autotune --no-autotune python", "not allowed with argument"),
    ):
        with pytest.raises(SystemExit) as left:
            parse(line.split())
        told = capsys.readouterr().err
        assert left.value.code == 2 and text in told and len(told.splitlines()) == 2
    for line in ("--fusion-threshold-mb -1", "--autotune-gaussian-process-noise 1.5"):
        with pytest.raises(ValueError, match="out of range"):
            parse(["-np", "2", *line.split()])


def test_an_lsf_job_gives_its_hosts() -> None:
    lsf = {"LSB_MCPU_HOSTS": "n1 4 n2 4", "LSB_JOBID": "1"}
    found = asked("python train.py", **lsf)
    assert [host.name for host in found.job.hosts] == ["n1", "n2"] and found.job.faults == ()
    assert asked("-np 2 -H a:2 python train.py", **lsf).job.hosts == (Host(name="a", slots=2),)


def test_ranks_on_other_hosts_get_the_environment() -> None:
    environ = {
        "MINE": "1", "WANDB_API_KEY": "k", "OMPI_MCA_btl": "tcp", "PATH": "/bin",
        "HOME": "/h", "HOSTNAME": "here", "OLDPWD": "/", "BASH_FUNC_f%%": "()", "CUDA_VISIBLE_DEVICES": "1",
        "SSH_AUTH_SOCK": "s", "RANK": "3", "OMPI_COMM_WORLD_RANK": "1", "RINGLEADER_TOKEN": "t",
        "HOROVOD_RANK": "2", "SLURM_JOB_ID": "5", "_HOROVOD_SECRET_KEY": "x",
    }  # fmt: skip
    assert sorted(forwarded(environ)) == ["MINE", "OMPI_MCA_btl", "PATH", "WANDB_API_KEY"]
    job = asked("-np 1 -H a:1 --log-level INFO python", **environ).job
    assert dict(job.env)["MINE"] == "1" and dict(job.env)["HOROVOD_LOG_LEVEL"] == "INFO"


def test_what_stands_before_a_line() -> None:
    for words, label in (
        ((), rb"\[3\]<stderr>:"),
        (("--gloo",), rb"\[3\]<stderr>:"),
        (("--mpi",), rb"\[1,3\]<stderr>:"),
        (("-prefix-timestamp",), rb"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \d{4}\[3\]<stderr>:"),
    ):
        assert re.fullmatch(label, launch.label_of(options_of(parse(["-np", "4", *words])))(3, "stderr"))


FILE = """
controller: mpi
params: {fusion_threshold_mb: 32, cycle_time_ms: 10, hierarchical_allreduce: true}
autotune: {enabled: true, log_file: log.txt, gaussian_process_noise: 0.9}
timeline: {filename: t.json, mark_cycles: false}
stall_check: {enabled: false, warning_time_seconds: 120}
library_options: {num_nccl_streams: 2}
logging: {level: INFO, with_timestamp: false}
"""


@WITH_YAML
def test_a_file_counts_after_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(FILE)
    args = parse(
        ["-np", "2", "--fusion-threshold-mb", "64", "--config-file", str(path), "--timeline-mark-cycles"]
    )
    found = {name: value for name in OPTIONS if (value := getattr(args, name)) is not None}
    assert found == {
        "num_proc": 2, "config_file": str(path), "use_mpi": True, "fusion_threshold_mb": 64,
        "cycle_time_ms": 10, "hierarchical_allreduce": True, "autotune": True, "autotune_log_file": "log.txt",
        "autotune_gaussian_process_noise": 0.9, "timeline_filename": "t.json", "timeline_mark_cycles": True,
        "no_stall_check": True, "stall_check_warning_time_seconds": 120, "num_nccl_streams": 2,
        "log_level": "INFO", "log_with_timestamp": False,
    }  # fmt: skip
    assert args.unknown_keys == []


@WITH_YAML
def test_what_a_file_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"

    def refused(told: str) -> None:
        with pytest.raises(ValueError, match=re.escape(told)) as caught:
            parse(["-np", "2", "--config-file", str(path)])
        assert isinstance(caught.value, RequestError)

    refused("cannot be read")
    for text, told in (
        ("params: {fusion_threshold_mb: many}", "params.fusion_threshold_mb"),
        ("params: {fusion_threshold_mb: true}", "an integer"),
        ("params: {fusion_threshold_mb: -1}", "out of range"),
        ("params: [1]", "holds no keys"),
        ("[1]", "holds no sections"),
        ("controller: nccl", "use gloo or mpi"),
        ("logging: {level: LOUD}", "TRACE"),
        ("params: {a: b", "is not YAML"),
        ("a: 1\n---\nb: 1\n", "several documents"),
    ):
        path.write_text(text)
        refused(told)
    for text, unknown in (("# nothing", []), ("params: {nosuch: 1}\nother: 2", ["params.nosuch", "other"])):
        path.write_text(text)
        found = parse(["-np", "2", "--config-file", str(path)]).unknown_keys
        assert found == [f"{path}: {key}" for key in unknown]


def test_options_as_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    args = _HorovodArgs()
    assert {name for name in OPTIONS if getattr(args, name) is not None} == {"num_proc"}
    args.nics, args.command = {"eth0"}, ["true"]  # type: ignore[attr-defined]
    options = options_of(args)
    assert (options.num_proc, options.nics, options.command) == (1, frozenset({"eth0"}), ("true",))
    assert options_of(Namespace()).command == ()
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "3", "--mpi", "python", "x.py"])
    read: Any = launch.parse_args()
    assert (read.num_proc, read.use_mpi, read.command) == (3, True, ["python", "x.py"])
    assert (read.run_func, read.executable) == (None, None)


def test_check_build_prints_the_lists_that_scripts_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["horovodrun", "--check-build"])
    with pytest.raises(SystemExit) as left:
        launch.parse_args()
    out = capsys.readouterr().out
    assert left.value.code == 0 and re.match(r"Horovod v\d+\.", out)
    for what in ("Frameworks", "Controllers", "Tensor Operations"):
        assert f"Available {what}:" in out.splitlines()
    names = re.findall(r"^    \[[X ]\] (\w+)$", out, re.MULTILINE)
    assert {"TensorFlow", "PyTorch", "MXNet", "MPI", "Gloo", "NCCL", "DDL", "CCL"} <= set(names)
    assert "    [X] MPI\n" in out and "    [ ] Gloo\n" in out and "    [X] PyTorch\n" in out
