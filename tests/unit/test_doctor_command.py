"""``ringleader doctor``: this host, stored facts of others, and what goes wrong with options and files."""

import dataclasses
import json
import os
import re
import sys
from itertools import permutations
from pathlib import Path

import pytest
from tests import fabric_hosts
from tests.commands import finished

from ringleader.bench.rank_speed import RankSpeed
from ringleader.cli.doctor import command
from ringleader.cli.doctor.judged_hosts import judgement_document, judgement_text
from ringleader.cli.doctor.stored_facts import facts_text
from ringleader.cli.options.host_options import HostOptions
from ringleader.dataclass_json import from_document
from ringleader.doctor.active_tests import ActiveResults
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import judge
from ringleader.fabric.facts import Clock, HostFacts, MpiFacts, Software
from ringleader.measurements.point_to_point import Silence, Transfer

PLACE = {"mpirun": "/env/bin/mpirun", "library": "/env/lib/libmpi.so.40"}
OPENMPI = MpiFacts(family="Open MPI", version="5.0.11", embedded=True, built_with={"ucx": True}, **PLACE)
GOLDEN = Path(__file__).parent.parent / "golden" / "doctor"
SOFTWARE = Software(
    python="3.12.3",
    executable="/env/bin/python",
    ringleader="1.0",
    packages={"mpi4py": "4.1.1", "numpy": "2.2.0", "torch": "2.8.0"},
    mpis=(OPENMPI,),
    ssh="/usr/bin/ssh",
)


def facts(name, **changes):
    found = fabric_hosts.facts(name)
    return dataclasses.replace(found, software=SOFTWARE, **changes)


@pytest.fixture
def stored(tmp_path):

    def write(*found):
        path = tmp_path / f"facts-{len(list(tmp_path.iterdir()))}.json"
        path.write_text(facts_text({str(number): one for number, one in enumerate(found)}))
        return str(path)

    return write


@pytest.mark.parametrize("name", ["hgx_ndr", "broken_ports"])
def test_what_is_said_of_a_stored_host(call, stored, name):
    code, out, err = call("doctor", "--facts-from", stored(facts(name)))
    out = re.sub(r"\d+ (passed|not applicable)", r"N \1", out)  # how many checks there are
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
        golden.write_text(out)
    assert out == golden.read_text() and err == ""
    assert code == (3 if "FAIL" in out else 0)


def test_two_stored_hosts_are_compared(call, stored):
    one = facts("laptop", hostname="h1")
    sysctls = dict(one.sysctls) | {"net.core.rmem_max": "1"}
    two = dataclasses.replace(one, hostname="h2", sysctls=sysctls, kernel="1.2.3-old")
    code, out, _ = call("doctor", "--facts-from", stored(one, two), "--json")
    told = json.loads(out)
    assert [host["host"] for host in told["hosts"]] == ["h1", "h2"]
    kernel = next(check for check in told["checks"] if check["id"] == "hosts.kernel")
    assert "1.2.3-old" in kernel["seen"] and kernel["hosts"] == ["h1", "h2"]
    assert code == (0 if told["ok"] else 3)
    _, out, _ = call("doctor", "--facts-from", stored(one), "--facts-from", stored(one), "--json")
    assert [host["host"] for host in json.loads(out)["hosts"]] == ["h1", "h1 (2)"]
    two = dataclasses.replace(two, system="\x1b[31mred")
    _, text, _ = call("doctor", "--facts-from", stored(one), "--facts-from", stored(two))
    assert "\x1b" not in text and "?[31mred" in text, "names of others do not steer the terminal"
    assert "Between hosts" in text and "hosts.kernel" in text


def test_this_host_as_json_and_as_facts(call, tmp_path):
    code, out, _ = call("doctor", "--json", "--json-file", str(tmp_path / "file"))
    told = json.loads(out)
    assert told == json.loads((tmp_path / "file").read_text())
    assert told["ok"] == (code == 0) and told["host"]
    ids = {check["id"] for check in told["checks"]}
    assert {"mpi.found", "python.version", "limit.shm", "host.memory"} <= ids
    assert {"id", "verdict", "group", "subject", "seen", "expected", "remedy"} == set(told["checks"][0])
    code, out, _ = call("doctor", "--facts", "--json-file", str(tmp_path / "file"))
    assert json.loads(out).keys() == json.loads((tmp_path / "file").read_text()).keys()
    found = from_document(HostFacts, json.loads(out))
    assert code == 0 and found.hostname == told["host"] and found.software.mpis


def test_wrong_requests(call):
    for words, told in (
        (["--image", "--facts-from", "x"], "--image and --facts-from"),
        (["--force"], "--write-expect"),
        (["--nodes", "pool=gpu"], "add --on kubernetes"),
        (["--on", "kubernetes", "--active"], "means nothing with --on kubernetes"),
        (["--start-timeout", "soon"], "--start-timeout: 'soon' is not a number of seconds"),
        (["--active", "--facts-from", "x"], "nothing is measured"),
        (["--write-expect", "/nonexistent/x"], "there is no directory"),
        (["--facts-from", "/nonexistent"], "cannot be read"),
        (["-H", "h1:x"], "h1:x"),
    ):
        code, out, err = call("doctor", *words)
        assert (code, out) == (2, "") and told in err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hostname": 3}', "[" * 100_000])
def test_files_without_facts(call, tmp_path, text):
    path = tmp_path / "facts.json"
    path.write_text(text)
    code, out, err = call("doctor", "--facts-from", str(path))
    assert (code, out) == (2, "") and str(path) in err and "Traceback" not in err


@pytest.mark.process
def test_no_framework_and_no_table_library_is_loaded():
    names = [
        "torch",
        "numpy",
        "tensorflow",
        "jax",
        "mpi4py",
        "tabulate",
        "asyncio",
        "ringleader.kubernetes.client",
    ]
    code = (
        "import sys; from ringleader.cli.main import main\n"
        "try: main(['doctor'])\nexcept SystemExit: pass\n"
        f"print([name for name in {names} if name in sys.modules], file=sys.stderr)"
    )
    done = finished([sys.executable, "-c", code], timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_profile_of_a_host_and_others_held_against_it(call, stored, tmp_path):
    profile, good = tmp_path / "profile.toml", facts("hgx_ndr")
    code, out, err = call("doctor", "--facts-from", stored(good), "--write-expect", str(profile))
    assert (code, out, err) == (0, "", "")
    code, out, err = call("doctor", "--facts-from", stored(good), "--write-expect", str(profile))
    assert (code, out) == (2, "") and "--replace" in err
    for word in ("--force", "--replace"):
        assert call("doctor", "--facts-from", stored(good), "--write-expect", str(profile), word)[0] == 0
    code, out, _ = call("doctor", "--facts-from", stored(good), "--expect", str(profile))
    assert code == 0, out
    poor = dataclasses.replace(good, rdma_devices=good.rdma_devices[:7])
    code, out, _ = call("doctor", "--facts-from", stored(poor), "--expect", str(profile))
    assert code == 3 and "Against the profile" in out and "expect.rdma-ports  7 (expected: 8 or more)" in out
    profile.write_text("[rdma]\nports = 'many'\n[x]\n")
    code, out, err = call("doctor", "--facts-from", stored(good), "--expect", str(profile))
    assert (code, out) == (2, "") and "rdma.ports" in err and "[x]" in err


def test_what_was_measured_is_shown_whatever_its_verdict():
    rates = tuple(
        Transfer(source=source, target=target, size=1 << 20, rate=1e8 if 0 in (source, target) else 1e9)
        for source, target in permutations(range(3), 2)
    )
    ranks = tuple(
        RankSpeed(rank=rank, host=f"h{rank + 1}", kernel_seconds=1e-3, kernel_runs=9) for rank in range(3)
    )
    silent = Silence(source=2, target=0, during="meeting", seconds=5.0)
    late = Transfer(source=1, target=2, size=8, latency=2e-6)
    measured = ActiveResults(
        hosts=("h1", "h2", "h3"), transfers=(*rates, late), silences=(silent,), ranks=ranks
    )
    by_host = {f"h{number}": facts("laptop") for number in (1, 2, 3)}
    judged = judge(by_host, measured=measured)
    text = judgement_text(judged, HostsReading(facts=by_host), verbose=False, width=100)
    assert "FAIL  active.host" in text and "[h1]" in text
    assert "active.compute  " in text and "from \\ to" in text
    active = judgement_document(judged)["active"]
    assert active["transfers"][0]["size"] == 1 << 20
    assert active["pair_rates"][0] == {"source": "h1", "target": "h2", "rate": 8e8}
    assert active["pair_latencies"] == [{"source": "h2", "target": "h3", "latency": 2e-6}]
    assert [(one["host"], one["partner"]) for one in active["silences"]] == [("h3", "h1")]
    assert not judged.ok


def test_counters_since_facts_that_were_read_before(call, stored):
    def at(seconds, errors, hostname="h1"):
        host = facts("saturated_counters", hostname=hostname, unreadable=())
        ports = tuple(
            dataclasses.replace(one, counters={**one.counters, "symbol_error": errors})
            for one in host.rdma_devices[1].ports
        )
        devices = (host.rdma_devices[0], dataclasses.replace(host.rdma_devices[1], ports=ports))
        return dataclasses.replace(host, rdma_devices=devices, clock=Clock(read_at=seconds))

    before, after = stored(at(1000.0, 1200)), stored(at(4600.0, 1203))
    _, out, _ = call("doctor", "--facts-from", after)
    assert "symbol_error 1203" in out and "since the counters were last cleared" in out
    _, out, _ = call("doctor", "--facts-from", after, "--since", before)
    assert "symbol_error 3 in 3600 s (expected: at most 0)" in out
    for earlier in (after, stored(at(1.0, 5, "h2"))):
        code, out, err = call("doctor", "--facts-from", after, "--since", earlier)
        assert (code, out) == (2, "") and "no facts of h1 that were read before" in err
    code, out, err = call("doctor", "--facts-from", after, "--since", "/nonexistent")
    assert (code, out) == (2, "") and "--since" in err and "cannot be read" in err


def test_in_an_allocation_its_nodes_are_checked_unless_others_are_named():
    for words, environ, on in (
        ({}, {}, "ssh"),
        ({"facts": True}, {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, None),
        ({"image": True}, {}, None),
        ({"hosts": HostOptions(on="local")}, {}, "local"),
        ({"hosts": HostOptions(hosts=("n7",))}, {}, None),
        ({}, {"SLURM_JOB_NODELIST": ""}, None),
    ):
        variables = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"} | environ
        found = command.in_allocation(command.DoctorOptions(**words), variables)
        assert found.hosts.on == on
