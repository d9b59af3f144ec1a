"""``horovod.run`` in Horovod's words."""

import pickle
import warnings

import pytest

import ringleader.runner
from ringleader import api
from ringleader.errors import RankError, RefusedError, RequestError
from ringleader.horovod_run import (
    ELASTIC_TIMEOUT,
    IGNORED,
    NAMES,
    accepts_horovod,
    elastic_failure_text,
    elastic_options,
    translate,
)
from ringleader.plan.elastic_options import RESET_LIMIT, ElasticOptions
from ringleader.plan.job import Ssh
from ringleader.runner.settings import RESET_LIMIT_EXCEEDED_MESSAGE


def recorded(*args, **keywords):
    """Return what the native function is called with."""

    @accepts_horovod
    def run(function, args=(), kwargs=None, *, np=None, **rest):
        return (function, args, kwargs), {"np": np, **rest}

    return run(*args, **keywords)


def test_native_words_go_through_as_they_are():
    assert recorded(print, (1,), np=3) == ((print, (1,), None), {"np": 3})
    assert recorded(print, np=3, start_timeout=None)[1] == {"np": 3}
    assert recorded(print, use_mpi=True)[1]["np"] == 1


def test_words_where_an_elastic_job_fails():
    limit = elastic_failure_text(f"rank 1 failed; 2 resets are allowed {RESET_LIMIT}", 2)
    assert limit.endswith(RESET_LIMIT_EXCEEDED_MESSAGE.format(2))
    text = "one or more processes exited with non-zero status: rank 1 failed"
    assert elastic_failure_text("rank 1 failed", 2).endswith(text)
    error = pickle.loads(pickle.dumps(api.RemoteTraceback("Traceback …", 3, 7)))
    assert (str(error), error.rank, error.exit_code) == ("\nTraceback …", 3, 7)


def test_what_is_honored(tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=2\nb slots=1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words, got = recorded(
            func=print,
            num_proc=3,
            hostfile=str(hostfile),
            start_timeout=9,
            ssh_port=22022,
            ssh_identity_file="key",
            output_filename="out",
            network_interfaces=["eth0", "eth1"],
            executable="/usr/bin/python3",
            use_mpi=True,
            use_gloo=False,
            mpi_args="-x 'A=b c'",
            min_num_proc=3,
            max_np=None,
        )
    assert words[1:] == ((), None)
    assert [(host.name, host.slots) for host in got.pop("hosts")] == [("a", 2), ("b", 1)]
    assert got == {
        "np": 3,
        "start_timeout": 9,
        "as_horovod": True,
        "all_gpus": True,
        "share_gpus": True,
        "mpirun_args": ("-x", "A=b c"),
        "ssh": Ssh(port=22022, identity="key"),
        "output_dir": "out",
        "network_interface": "eth0,eth1",
        "python": "/usr/bin/python3",
        "elastic": ElasticOptions(min_np=3, exclude_hosts=True),
    }


def test_unknown_hosts_are_refused_unless_the_variable_accepts_them():
    for text, accepts in (("", False), ("1", True), ("false", False)):
        native = translate({"num_proc": 2}, {"RINGLEADER_OPT_RUN_ACCEPT_NEW_HOST_KEYS": text})
        assert native["ssh"].accept_new is accepts


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_changes_nothing_is_told(name):
    with pytest.warns(UserWarning, match=f"^{name} changes nothing here: "):
        _words, got = recorded(print, np=2, **{name: 1})
    assert got["np"] == 2 and got["oversubscribe"] is True and name not in got


def test_start_timeout_is_the_keyword_or_else_the_variable():
    for given, variable, seconds in ((9, "7", 9), (None, "7", 7.0), (None, "", None), (9, "", 9)):
        got = translate({"use_mpi": True, "start_timeout": given}, {"HOROVOD_START_TIMEOUT": variable})
        assert got.get("start_timeout") == seconds


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"use_mpi": True}, "^mpirun failed with exit code 7$"),
        ({"use_gloo": True}, "^Horovod detected that one or more processes exited with non-zero status"),
    ],
)
@pytest.mark.filterwarnings("ignore:use_gloo:UserWarning")
@pytest.mark.parametrize("raised", [False, True])
def test_a_failed_rank_is_a_runtime_error(raised, keywords, text):
    def run(function, args=(), kwargs=None, **native):
        if raised:
            raise KeyError("lost") from api.RemoteTraceback("Traceback …", 3, 7)
        raise RankError("rank 3 was lost", exit_code=7, rank=3)

    with pytest.raises(RuntimeError, match=text) as caught:
        accepts_horovod(run)(print, **keywords)
    assert isinstance(caught.value.__cause__, KeyError if raised else RankError)
    assert "use_mpi" in keywords or "Process name: 3\nExit code: 7\n" in str(caught.value)


def test_other_errors_stay_what_they_are():
    def run(function, args=(), kwargs=None, **native):
        raise function

    for error in (RefusedError("no host"), KeyError("of our own")):
        with pytest.raises(type(error)):
            accepts_horovod(run)(error, use_mpi=True)
    with pytest.raises(ValueError, match="no slots"):
        accepts_horovod(run)(RequestError("no slots"), use_mpi=True)


def test_by_position_as_in_horovod():
    got = recorded(print, (), None, 4, 2, 6, 3, 9, (1, 2))[1]
    assert got["np"] == 4
    assert got["elastic"] == ElasticOptions(
        min_np=2, max_np=6, slots=3, reset_limit=9, cooldown=(1.0, 2.0), exclude_hosts=True
    )


def test_a_job_that_does_not_change():
    for keywords in ({}, {"max_np": 2}, {"max_num_proc": 2}):
        assert "elastic" not in translate({"np": 2, **keywords}, {})


def test_a_script_that_finds_the_hosts():
    native = translate({"np": 2, "host_discovery_script": "find.sh"}, {"HOROVOD_ELASTIC_TIMEOUT": "7"})
    assert native["elastic"] == ElasticOptions(
        min_np=2, discovery_script="find.sh", exclude_hosts=True, timeout=7.0
    )
    assert "oversubscribe" not in native
    with pytest.warns(UserWarning, match="reset_limit: nothing changes here"):
        assert "elastic" not in translate({"np": 2, "reset_limit": 3}, {})
    with pytest.raises(RequestError, match="'soon' is not a number"):
        translate({"np": 2, "min_np": 1}, {"HOROVOD_ELASTIC_TIMEOUT": "soon"})
    given = elastic_options(
        {"num_proc": 2, "min_num_proc": 1, "elastic_timeout": 9}, {ELASTIC_TIMEOUT: "soon"}
    )
    assert given is not None and given.timeout == 9


def test_what_is_refused():
    for error, keywords in (
        (ValueError, {"use_gloo": True, "use_mpi": True}),
        (ValueError, {"hosts": "a:1", "hostfile": "x"}),
        (ValueError, {"np": 2, "num_proc": 3}),
        (ValueError, {"ssh": Ssh(), "ssh_port": 22}),
        (RequestError, {"hostfile": "/nowhere/hosts"}),
        (ValueError, {"host_discovery_script": "find.sh", "hosts": "a:1"}),
        (RequestError, {"min_num_proc": 1, "cooldown_range": (3, 2)}),
        (ValueError, {"mpi_args": "'open"}),
    ):
        with pytest.raises(error):
            translate(keywords, {})


def test_all_keywords_of_horovod_are_known():
    horovods = {
        *("func", "args", "kwargs", "num_proc", "min_num_proc", "max_num_proc", "slots", "reset_limit"),
        *("cooldown_range", "hosts", "hostfile", "host_discovery_script", "start_timeout", "ssh_port"),
        *("ssh_identity_file", "disable_cache", "output_filename", "verbose", "use_gloo", "use_mpi"),
        *("mpi_args", "network_interface", "network_interfaces", "executable", "np", "min_np", "max_np"),
    }
    native = {"args", "kwargs", "hosts"}
    assert horovods == NAMES | native
    with pytest.raises(TypeError, match="nonsense"):
        api.run(print, nonsense=1)
    assert ringleader.runner.run is ringleader.runner.run
    assert not hasattr(ringleader.runner, "nonsense")


def test_every_fault_of_a_hostfile_is_told(tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=none\nb:0\n")
    with pytest.raises(RequestError) as caught:
        translate({"hostfile": str(hostfile)}, {})
    assert [fault.where for fault in caught.value.faults] == [f"{hostfile}:1", f"{hostfile}:2"]
