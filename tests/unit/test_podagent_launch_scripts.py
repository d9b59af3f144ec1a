"""The scripts in the user's container, run by real shells: agents in ssh's place, the check of a launch."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.commands import finished
from tests.time_limits import patience

from ringleader.errors import RefusedError
from ringleader.kubernetes.pod.__main__ import ACCOUNT, install, install_kubectl

pytestmark = pytest.mark.process

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
HOSTS = [f"train-worker-{index}.train.team.svc" for index in range(3)]
RECORD = """#!/bin/sh
# Stands in for ssh, kubectl and mpirun: writes its words, each ended by a zero, to a file of its name.
printf '%s\\0' "$@" >"$RECORDS/${0##*/}"
"""
MPIRUN = """#!/bin/sh
# Stands in for mpirun: turns to the hosts in $TURN_TO through the agent, then does what it is told.
for host in $TURN_TO; do
    "$TOOLS/ssh" -x "$host" true
done
case $DO in
cat) cat ;;
wait) exec "$PYTHON" -c "$WAIT" ;;
hang) exec sleep 60 ;;
path) command -v mpirun ;;
jax) printf %s "$OMPI_MCA_orte_hnp_uri" ;;
*) exit "$DO" ;;
esac
"""


WAIT = """
import os, pathlib, signal
def end(number, frame):
    print("got", os.environ["SIGNAL"], flush=True)
    os._exit(9)
signal.signal(getattr(signal, "SIG" + os.environ["SIGNAL"]), end)
pathlib.Path(os.environ["RECORDS"], "waits").touch()
while True:
    signal.pause()
"""


@dataclass(frozen=True)
class Launcher:
    """A launcher's container: what the init container left, an image's programs, and a hostfile."""

    root: Path
    shell: str

    @property
    def tools(self) -> Path:
        return self.root / "tools"

    @property
    def records(self) -> Path:
        return self.root / "records"

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "RECORDS": str(self.records),
            "TOOLS": str(self.tools),
            "DO": "0",
            "PYTHON": sys.executable,
            "WAIT": WAIT,
            **(more or {}),
        }

    def argv(self, script: str, words: Sequence[str]) -> list[str]:
        inner = ["busybox", "sh"] if self.shell == "busybox" else [self.shell]
        return [*inner, str(self.tools / script), *words]

    def run(
        self, script: str, *words: str, more: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return finished(self.argv(script, words), env=self.environ(more), input=stdin, timeout=60)

    def said(self, program: str) -> list[str]:
        """Return the words that a stand-in got."""
        return (self.records / program).read_bytes().decode().split("\0")[:-1]


def _shebang(shell: str) -> str:
    return f"{shutil.which(shell)} sh" if shell == "busybox" else str(shutil.which(shell))


def make(root: Path, shell: str, **words: str) -> Launcher:
    made = Launcher(root, shell)
    for folder in (made.tools, made.records, root / "bin"):
        folder.mkdir(parents=True)
    hostfile = root / "hostfile"
    hostfile.write_text("".join(f"{host} slots=2\n" for host in HOSTS))
    names = ("LAUNCHER", "KNOWN_HOSTS", "CONTAINER", "EXPECTED")
    usual = {"HOSTFILE": str(hostfile), "SLOTS": "2", "RANKS_BY_DEFAULT": "0", **dict.fromkeys(names, "")}
    install(made.tools, usual | {name.upper(): word for name, word in words.items()})
    for name, text in (("ssh", RECORD), ("mpirun", MPIRUN)):
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    for script in (made.tools / "ssh", made.tools / "kubexec.sh", *(made.tools / "check").glob("*/*")):
        # /bin/sh is another shell in every image.
        script.write_text(script.read_text().replace("#!/bin/sh", f"#!{_shebang(shell)}", 1))
    (made.tools / "kubectl").write_text(RECORD)
    (made.tools / "kubectl").chmod(0o755)
    return made


@pytest.fixture(params=SHELLS)
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> Launcher:
    return make(tmp_path / "pod", request.param, container="worker")


def test_ssh_gets_the_same_words(launcher: Launcher) -> None:
    words = ["-x", "-o", "ConnectionAttempts=10", HOSTS[0], "cd 'a b'; echo \"$HOME\"", "c d"]
    assert launcher.run("ssh", *words).returncode == 0
    assert launcher.said("ssh") == words


@pytest.mark.parametrize("shell", SHELLS)
def test_ssh_is_held_to_the_workers_key_where_it_can_be_read(shell: str, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    launcher = make(tmp_path / "pod", shell, known_hosts=str(known))
    launcher.run("ssh", HOSTS[0], "true")
    assert launcher.said("ssh") == [HOSTS[0], "true"]
    known.write_text("train-worker-* ssh-ed25519 AAAA\n")
    launcher.run("ssh", HOSTS[0], "true")
    strict = ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]
    assert launcher.said("ssh") == [*strict, HOSTS[0], "true"]


def test_exec_turns_to_the_pod_of_the_host(launcher: Launcher) -> None:
    launcher.run("kubexec.sh", "-x", "-l", "me", f"me@{HOSTS[1]}", "orted", "--daemonize", "-mca", "a b")
    assert launcher.said("kubectl") == [
        f"--kubeconfig={launcher.tools}/kubeconfig",
        "exec",
        "train-worker-1",
        "--container=worker",
        "--",
        "/bin/sh",
        "-c",
        "orted --daemonize -mca a b",
    ]


@pytest.mark.parametrize("words", [[], ["-x"], [HOSTS[0]], ["-x", "-o"]])
def test_exec_of_nothing_is_refused(launcher: Launcher, words: list[str]) -> None:
    done = launcher.run("kubexec.sh", *words)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_launcher_with_ranks_of_its_own_is_not_called_over_the_network(shell: str, tmp_path: Path) -> None:
    launcher = make(tmp_path / "pod", shell, launcher="train-launcher", container="worker")
    for script in ("ssh", "kubexec.sh"):
        done = launcher.run(script, "-x", "train-launcher.train.team.svc", "printf '<%s>'", "'a b' c")
        assert done.stdout == "<a b><c>"
    assert not list(launcher.records.iterdir())


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
HARD = st.lists(
    WORDS
    | st.sampled_from(["", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "\n", ";", "-x", "$(id)", "\t"]),
    min_size=1,
    max_size=6,
)


def as_ssh(words: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """What a command gives where ssh brought its words: joined with spaces, and read by a shell."""
    return subprocess.run(
        ["/bin/sh", "-c", " ".join(words)], env=dict(environ), capture_output=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def exec_launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    """One whose kubectl does what kubectl does: run the words after ``--`` as they are."""
    made = make(tmp_path_factory.mktemp("exec") / "pod", SHELLS[0], container="worker")
    (made.tools / "kubectl").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=HARD, is_quoted=st.booleans())
def test_exec_brings_words_as_ssh_does(exec_launcher: Launcher, words: list[str], is_quoted: bool) -> None:
    import shlex

    # Open MPI sends one word that is a whole line, Hydra quotes each of its words.
    sent = [shlex.join(["printf", "%s\\0", *words])]
    if is_quoted:
        sent = [shlex.quote(word) for word in ("printf", "%s\\0", *words)]
    done = subprocess.run(
        exec_launcher.argv("kubexec.sh", [HOSTS[0], *sent]),
        env=exec_launcher.environ(),
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == as_ssh(sent, exec_launcher.environ())
    assert done.stdout.decode().split("\0")[:-1] == words


ALL = " ".join(HOSTS)


@pytest.mark.parametrize(
    ("words", "turned_to", "code", "text"),
    [
        (["-n", "6"], ALL, 0, ""),
        ([], ALL, 0, ""),
        (["-n", "6"], "", 3, "reached 0 of the 3 hosts that its 6 ranks need (2 slots each)"),
        (["-np", "5"], HOSTS[0], 3, f"Not reached: {HOSTS[1]}, {HOSTS[2]}"),
        (["--np=4"], HOSTS[0], 3, "1 of the 2 hosts that its 4 ranks need"),
        ([], HOSTS[0], 3, "1 of the 3 hosts that its ranks need"),
        (["-n", "64"], "", 3, "0 of the 3 hosts"),
        # Fewer ranks than hosts, wherever they run.
        (["-n", "1"], HOSTS[2], 0, ""),
        (["-n", "4"], f"{HOSTS[2]} {HOSTS[0]}", 0, ""),
        # The program's own words.
        (["-n", "2", "python", "train.py", "-n", "6"], HOSTS[0], 0, ""),
        (["python", "train.py", "-n", "2"], HOSTS[0], 0, ""),
        # A launch that the user arranged himself.
        (["-n", "6", "--host", "localhost:6"], "", 0, ""),
        (["-n", "6", "--hostfile", "/my/hosts"], "", 0, ""),
        (["-n", "6", "--mca", "plm_rsh_agent", "/my/agent"], "", 0, ""),
        (["-n", "1", "a", ":", "-n", "5", "b"], "", 0, ""),
        (["-n", "6", "-ppn", "6"], "", 0, ""),
        (["--version"], "", 0, ""),
    ],
)
def test_a_launch_that_reaches_fewer_hosts_fails(
    launcher: Launcher, words: list[str], turned_to: str, code: int, text: str
) -> None:
    done = launcher.run("launch", "mpirun", *words, more={"TURN_TO": turned_to})
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert code or not done.stderr
    by_path = launcher.run("launch", str(launcher.root / "bin/mpirun"), *words, more={"TURN_TO": turned_to})
    assert (by_path.returncode, by_path.stderr) == (code, done.stderr)


def test_the_jobs_own_hostfile_named_again_is_no_choice(launcher: Launcher) -> None:
    words = ["-n", "6", "--hostfile", str(launcher.root / "hostfile")]
    assert launcher.run("launch", "mpirun", *words).returncode == 3


def test_an_mpirun_in_a_script_is_checked_too(launcher: Launcher) -> None:
    script = "mpirun -n 6; echo $?; mpirun -n 1"
    done = launcher.run("launch", "sh", "-c", script, more={"TURN_TO": HOSTS[0]})
    assert (done.stdout, done.returncode) == ("3\n", 0)
    assert done.stderr.count("ringleader:") == 1


@pytest.mark.parametrize("code", ["0", "1", "7", "137"])
def test_the_codes_of_a_launch_are_its_own(launcher: Launcher, code: str) -> None:
    more = {"TURN_TO": ALL, "DO": code}
    assert launcher.run("launch", "mpirun", "-n", "6", more=more).returncode == int(code)
    failed = launcher.run("launch", "mpirun", "-n", "6", more={"DO": code})
    assert failed.returncode == (int(code) or 3), "a failure says more than the check"


def test_input_and_path_are_the_images(launcher: Launcher) -> None:
    done = launcher.run("launch", "mpirun", "-n", "6", more={"TURN_TO": ALL, "DO": "cat"}, stdin="a\nb")
    assert done.stdout == "a\nb"
    done = launcher.run("launch", "mpirun", "-n", "6", more={"TURN_TO": ALL, "DO": "path"})
    assert done.stdout.strip() == str(launcher.root / "bin/mpirun")


def test_jax_is_told_where_the_first_rank_is(launcher: Launcher) -> None:
    def told(*words: str, **more: str) -> str:
        asked = {"TURN_TO": ALL, "DO": "jax"} | more
        return launcher.run("launch", "mpirun", *words, more=asked).stdout

    assert told("-n", "6") == f"0.0;tcp://{HOSTS[0]}:61440"
    assert told("-n", "6", OMPI_MCA_orte_hnp_uri="mine") == "mine"
    assert told("-n", "6", "--host", "h:6") == "", "nobody knows where the first rank is"


def test_names_that_the_image_has_not_stay_unknown(launcher: Launcher) -> None:
    empty = launcher.root / "bin"
    more = {"PATH": f"{empty}:{launcher.root / 'sh'}"}
    (launcher.root / "sh").mkdir()
    for name in ("sh", "cat"):
        (launcher.root / "sh" / name).symlink_to(shutil.which(name) or "")
    done = finished(
        [str(launcher.tools / "launch"), "sh", "-c", "command -v mpirun; command -v prterun mpiexec"],
        env=launcher.environ(more),
        timeout=60,
    )
    assert done.stdout == f"{launcher.tools}/check/mpirun/mpirun\n"


def test_the_check_can_be_turned_off(launcher: Launcher) -> None:
    more = {"RINGLEADER_CHECK_HOSTS": "off"}
    assert launcher.run("launch", "mpirun", "-n", "6", more=more).returncode == 0


def test_where_nothing_can_be_noted_nothing_is_checked(launcher: Launcher) -> None:
    shutil.rmtree(launcher.tools / "contacted")
    done = launcher.run("launch", "mpirun", "-n", "6")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_without_mpirun(launcher: Launcher) -> None:
    done = launcher.run("launch", "printf", "<%s>", "a b", "$x")
    assert (done.stdout, done.returncode) == ("<a b><$x>", 0)
    assert launcher.run("launch", "no-such-program").returncode == 127


def test_a_launch_that_turns_to_nobody_is_ended(launcher: Launcher) -> None:
    more = {"DO": "hang", "RINGLEADER_CHECK_SECONDS": "1"}
    done = launcher.run("launch", "mpirun", "-n", "6", more=more)
    assert done.returncode == 3
    assert "reached 0 of the 3 hosts" in done.stderr


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1"])
def test_signals_reach_mpirun(launcher: Launcher, name: str) -> None:
    argv = launcher.argv("launch", ["mpirun", "-n", "6"])
    environ = launcher.environ({"DO": "wait", "TURN_TO": ALL, "SIGNAL": name})
    number = getattr(signal, f"SIG{name}")

    def as_in_a_pod() -> None:
        signal.signal(number, signal.SIG_DFL)  # whoever started the tests may ignore it, as nohup does

    with subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_pod, start_new_session=True
    ) as process:
        try:
            until = time.monotonic() + patience(60)
            while not (launcher.records / "waits").exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert (out, process.returncode) == (f"got {name}\n", 9)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_variable_that_the_user_changed_is_a_choice(shell: str, tmp_path: Path) -> None:
    launcher = make(tmp_path / "pod", shell, expected="HOSTS_OF_MPI=/etc/mpi/hostfile")
    assert launcher.run("launch", "mpirun", "-n", "6").returncode == 3
    more = {"HOSTS_OF_MPI": "/etc/mpi/hostfile"}
    assert launcher.run("launch", "mpirun", "-n", "6", more=more).returncode == 3
    more = {"HOSTS_OF_MPI": "/my/hosts"}
    assert launcher.run("launch", "mpirun", "-n", "6", more=more).returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("words", "code"), [([], 0), (["-n", "3"], 3), (["-n", "2"], 0), (["-n", "9"], 3)])
def test_hydra_starts_one_rank_by_default_and_a_launcher_may_have_ranks(
    shell: str, words: list[str], code: int, tmp_path: Path
) -> None:
    launcher = make(tmp_path / "pod", shell, ranks_by_default="1", launcher="train-launcher")
    lines = [f"{host}:2\n" for host in ("train-launcher.train.team.svc", *HOSTS)]
    (launcher.root / "hostfile").write_text("".join(lines))
    assert launcher.run("launch", "mpirun", *words).returncode == code


def test_kubectl_comes_with_the_way_to_the_server(tmp_path: Path) -> None:
    install_kubectl(tmp_path, server="https://10.0.0.1:443", namespace="team", program="true")
    assert os.access(tmp_path / "kubectl", os.X_OK)
    config = json.loads((tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:443"
    assert config["contexts"][0]["context"]["namespace"] == "team"
    assert config["users"][0]["user"] == {"tokenFile": f"{ACCOUNT}/token"}, "no secret in it"
    with pytest.raises(RefusedError, match="no kubectl"):
        install_kubectl(tmp_path, server="", namespace="", program="no-such-kubectl")


def test_words_of_a_job_cannot_become_commands(tmp_path: Path) -> None:
    install(tmp_path, {"HOSTFILE": "/a b'; touch x; '", "CONTAINER": "$(touch x)"})
    script = '. ./job.sh; printf "%s|%s" "$HOSTFILE" "$CONTAINER"'
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "/a b'; touch x; '|$(touch x)"
    assert not (tmp_path / "x").exists()
