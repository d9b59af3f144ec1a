"""Defaults of options: files and variables, which of them counts, and what is wrong with them."""

import json
import os

import click
import pytest
from tests.unit.test_help import leaves

from ringleader.cli import option_defaults
from ringleader.cli.main import ringleader
from ringleader.cli.options.host_options import overridden
from ringleader.render.rank_environment import is_forwarded


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A home and a project, with a directory below it that we are in."""
    for name in list(os.environ):
        if name.startswith(("RINGLEADER_OPT_", "SLURM_", "PBS_", "LSB_", "XDG_CONFIG")):
            monkeypatch.delenv(name)
    (tmp_path / "project/below").mkdir(parents=True)
    (tmp_path / "home/.config/ringleader").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project/below")
    return tmp_path


def project(place, text):
    file = place / "project/ringleader.toml"
    file.write_text(text)
    return file


def test_lists_and_flags(surroundings, call, monkeypatch):
    project(surroundings, '\ufeff[run]\nx = ["A=1", "B=two words"]\noversubscribe = true\nnp = 2\n')
    code, out, err = call("run", "--dry-run", "true")
    assert code == 0, err
    assert "A=1" in out and "B='two words'" in out and "RINGLEADER_OPT" not in out
    monkeypatch.setenv("RINGLEADER_OPT_RUN_X", "C=3 D=4")
    code, out, _ = call("run", "--dry-run", "true")
    assert "C=3" in out and "D=4" in out and "A=1" not in out
    assert not is_forwarded("RINGLEADER_OPT_RUN_NP") and is_forwarded("RINGLEADER_DEADLINE")


def users(place, text):
    file = place / "home/.config/ringleader/config.toml"
    file.write_text(text)
    return file


def ranks(call, *words):
    """The first line of a dry run."""
    code, out, err = call("run", "--oversubscribe", "--dry-run", *words, "true")
    assert code == 0, err
    return out.splitlines()[0]


def test_a_job_goes_where_its_command_line_says(surroundings, call):
    file = project(surroundings, '[run]\nhostfile = "no such file"\n')
    assert "1 rank on 1 host" in ranks(call, "-H", "localhost:1")
    assert "1 rank on 1 host" in ranks(call, "--on", "local")
    code, _, err = call("run", "true")
    assert code == 2 and "no such file" in err and "belongs to" not in err, "it is a file of our own"
    project(surroundings, "[run]\nnp = \n")
    mine = users(surroundings, "")
    mine.write_bytes(b"# \xff\n")
    code, _, err = call("doctor")
    assert code == 2 and f"ringleader: {mine}: is not a text file (UTF-8)" in err
    assert f"ringleader: {file}:2: " in err


def test_command_line_over_variable_over_project_over_user(surroundings, call, monkeypatch):
    users(surroundings, "[run]\nnp = 2\n")
    assert "2 ranks" in ranks(call)
    project(surroundings, "[run]\nnp = 3\n")
    assert "3 ranks" in ranks(call)
    monkeypatch.setenv("RINGLEADER_OPT_RUN_NP", "4")
    assert "4 ranks" in ranks(call)
    assert "5 ranks" in ranks(call, "-n", "5")


def test_the_nearest_project_file_counts_and_xdg_moves_the_users(surroundings, call, monkeypatch):
    project(surroundings, "[run]\nnp = 3\n")
    (surroundings / "project/below/ringleader.toml").write_text("[run]\nmap-by = 'node'\n")
    (surroundings / "xdg/ringleader").mkdir(parents=True)
    (surroundings / "xdg/ringleader/config.toml").write_text("[run]\nnp = 7\n")
    assert "1 rank " in ranks(call)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(surroundings / "xdg"))
    assert "7 ranks" in ranks(call)


def test_everything_wrong_is_told_at_once(surroundings, call, monkeypatch):
    file = project(
        surroundings,
        '[run]\nnpp = 3\noversubscribe = "yes"\nx = [1, true]\n[rum]\nnp = 1\n[doctor]\ntimeout = -1\n',
    )
    mine = users(surroundings, "np = 1\n")
    monkeypatch.setenv("RINGLEADER_OPT_RUN_NUMBER", "4")
    monkeypatch.setenv("RINGLEADER_OPT_FLY_NP", "4")
    code, out, err = call("run", "true")
    assert (code, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("ringleader: ")]
    assert told == [
        f"ringleader: {mine}: np: is not in a command's table",
        f"ringleader: {file} [rum]: there is no such command",
        "ringleader: RINGLEADER_OPT_FLY_NP: names no command",
        f"ringleader: {file} [run] npp: ringleader run has no option --npp",
        f"ringleader: {file} [run] oversubscribe: 'yes' is neither true nor false",
        f"ringleader: {file} [run] x: True is not a list of texts",
        "ringleader: RINGLEADER_OPT_RUN_NUMBER: ringleader run has no option --number",
    ]
    assert "did you mean np?" in err and "did you mean run?" in err
    code, _, err = call("doctor")
    assert code == 2 and "[doctor] timeout: -1" in err
    code, out, _ = call("run", "--help")
    assert code == 0 and "Usage: ringleader run" in out


def test_a_strangers_file_above_our_directory_is_passed_over(surroundings, monkeypatch):
    file = project(surroundings, "[run]\nnp = 3\n")
    assert option_defaults.project_file() == file
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
        assert option_defaults.project_file() is None
        os.chown(surroundings / "project/below", 12345, 12345)
        assert option_defaults.project_file() == file


def test_config_shows_what_is_in_force_and_from_where(surroundings, call, monkeypatch):
    code, out, err = call("config")
    assert (code, out) == (0, "") and "no file and no variable" in err
    file = project(surroundings, '[image.build]\nbuilder = "podman"\n[run]\nnp = 3\nx = ["A=b c"]\n')
    mine = users(surroundings, "[run]\nnp = 2\nmap-by = 'node'\n")
    monkeypatch.setenv("RINGLEADER_OPT_LAB_UP_HOSTS", "3")
    code, out, _ = call("config", "--json")
    assert code == 0
    assert [tuple(one.values()) for one in json.loads(out)] == [
        ("run", "map-by", "node", f"{mine} [run]"),
        ("run", "np", "3", f"{file} [run]"),
        ("run", "x", ["A=b c"], f"{file} [run]"),
        ("lab up", "hosts", "3", "RINGLEADER_OPT_LAB_UP_HOSTS"),
        ("image build", "builder", "podman", f"{file} [image.build]"),
    ]
    code, out, _ = call("config")
    assert code == 0 and "'A=b c'" in out and "RINGLEADER_OPT_LAB_UP_HOSTS" in out
    project(surroundings, '[image.bild]\nbuilder = "podman"\n[image.build]\nbuilder = "kaniko"\n')
    code, _, err = call("config")
    assert code == 2 and "did you mean build?" in err and "'kaniko' is unknown" in err


def test_who_says_where_makes_weaker_words_void():
    for strength, on, void in (
        ({"hosts": 9, "hostfile": 1}, None, {"hostfile"}),
        ({"hosts": 9, "on": 1}, "lab", {"on"}),
        ({"on": 9, "hostfile": 1}, "local", {"hostfile"}),
        ({"on": 9, "hostfile": 1}, "ssh", set()),
        ({"hosts": 9, "hostfile": 9}, None, set()),
    ):
        assert overridden(strength, {"on": on}) == void


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_owner_is_named_and_chooses_no_program(surroundings, call):
    file = project(surroundings, "[run]\nnp = 2\npython = '/x/python'\nx = ['A=1', 'LD_PRELOAD=/x.so']\n")
    for path in (file, surroundings / "project/below"):
        os.chown(path, 65534, 65534)
    code, _, err = call("run", "--dry-run", "true")
    assert code == 2 and f"{file} sets defaults and belongs to" in err and "uid 65534" in err
    assert err.count("chooses programs or libraries") == 2
    assert f"{file} [run] python" in err and f"{file} [run] x" in err and f"--config {file}" in err
    file.write_text("[run]\nnp = 2\nx = ['A=1']\n")
    code, out, err = call("run", "--oversubscribe", "--dry-run", "true")
    assert code == 0 and "2 ranks" in out and "uid 65534" in err, "a mounted project stays usable"
    file.write_text("[run]\nmpi = 'lam'\n")
    code, _, err = call("--config", str(file), "run", "--dry-run", "true")
    assert code == 2 and "--mpi: 'lam' is unknown" in err and "uid" not in err, "it is trusted, and read"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[run]\nworkdir = '''a'''\nname = 1\noutput = \"a\\u0000b\"\n", "has a NUL byte"),
        (f"[run]\nnp = {'[' * 3000}\n", "nested too deep"),
        ("\0", "Invalid statement"),
    ],
)
def test_files_that_python_cannot_take(text, what, surroundings, call):
    file = project(surroundings, text)
    code, _, err = call("run", "--dry-run", "true")
    assert code == 2 and what in err and str(file) in err


def test_an_option_of_two_values(surroundings, call, monkeypatch):
    for text in ('"10 600"', "[10, 600]", '["10", "600"]'):
        project(surroundings, f"[run]\nblacklist-cooldown-range = {text}\nmin-np = 1\n")
        ranks(call)
        code, out, err = call("config", "--json")
        assert code == 0 and '"600"' in out, err
    for words, said in (
        ("600 10", "600 10 is not a range of seconds"),
        ("10", "RINGLEADER_OPT_RUN_BLACKLIST_COOLDOWN_RANGE: '10' is not a list of 2 values"),
        ("10 x", "RINGLEADER_OPT_RUN_BLACKLIST_COOLDOWN_RANGE: 'x' is not a number of seconds"),
    ):
        monkeypatch.setenv("RINGLEADER_OPT_RUN_BLACKLIST_COOLDOWN_RANGE", words)
        code, _, err = call("run", "--dry-run", "true")
        assert code == 2 and said in err
        assert words == "600 10" or "--blacklist" not in err, "each fault is reported once"


def test_a_name_of_an_option_is_its_key():
    for words, command in leaves(ringleader, "ringleader"):
        keys = option_defaults.configurable(command)
        options = [one for one in command.params if isinstance(one, click.Option) and one.expose_value]
        rest = {one.opts[0] for one in options if not one.hidden and one.name not in keys}
        assert rest <= ({"--hostfile", "--ssh-config"} if words == "ringleader lab status" else set()), words


def test_faults_of_files_variables_and_words_are_reported_together(surroundings, call, monkeypatch):
    file = project(surroundings, '[run]\ngrace = "long"\n')
    monkeypatch.setenv("RINGLEADER_OPT_RUN_NP", "x")
    code, _, err = call("run", "--timeout", "y", "true")
    assert code == 2
    assert [line.partition(": ")[2] for line in err.splitlines() if line.startswith("ringleader: ")] == [
        f"{file} [run] grace: 'long' is not a number of seconds",
        "RINGLEADER_OPT_RUN_NP: 'x' is not an integer",
        "--timeout: 'y' is not a number of seconds",
    ]
    assert call("run", "--bogus", "true")[2].count("[run] grace") == 1
