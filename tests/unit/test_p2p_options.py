"""``ringleader bench p2p``: what its words become, and its text."""

import json
from dataclasses import replace

import pytest
from tests.option_words import options_from

from ringleader.bench.program_commands import PROGRAMS, command, osu_command, runs_of
from ringleader.cli.bench.p2p import PairOptions, make_request
from ringleader.cli.bench.pair_text import as_text, verdicts
from ringleader.cli.options.option_checks import Faults
from ringleader.measurements.point_to_point import Place, PointToPointRun, Silence, Transfer
from ringleader.plan.job import Host, Job, Placement
from ringleader.scaling import Context, HostContext


def asked(hosts=(), np=None, placement=Placement.SLOT, **words):
    job = Job(command=("python",), hosts=hosts, np=np, placement=placement)
    options = options_from(PairOptions, **words)
    faults = Faults(found=list(options.shared.job.faults))
    return make_request(options, job, "x", faults), [fault.where for fault in faults.found]


TWO = (Host(name="h1", slots=2), Host(name="h2", slots=2))
BARE = (Host(name="h1"), Host(name="h2"))


def test_which_ranks_measure():
    for hosts, np, words, ranks, places in (
        ((), None, {}, (0, 1), ("localhost", "localhost")),
        (BARE, None, {}, (0, 1), ("h1", "h2")),
        (BARE, None, {"per_host": "2"}, (0, 1, 2, 3), ("h1", "h1", "h2", "h2")),
        (TWO, 3, {}, (0, 1, 2), ("h1", "h1", "h2")),
        (TWO, None, {"ranks": "0,3"}, (0, 3), ("h1", "h2")),
        (BARE, 4, {"ranks": "1-2"}, (1, 2), ()),
    ):
        request, faults = asked(hosts, np, **words)
        assert (request.ranks, request.hosts, faults) == (ranks, places, [])


def test_what_cannot_be_is_told():
    for hosts, np, words, faults in (
        ((), None, {"per_host": "1"}, ["-n"]),
        ((), 2, {"per_host": "2"}, ["-n and --per-host"]),
        ((), None, {"ranks": "0,2"}, ["--ranks"]),
        (BARE, None, {"ranks": "0,1"}, ["--ranks"]),
        (
            (),
            None,
            {"window": "0", "seconds": "nan", "memory": "tape"},
            ["--window", "--seconds", "--memory"],
        ),
        ((), None, {"minbytes": "x", "maxbytes": "2T", "stepfactor": "1"}, ["-b", "-e", "-f"]),
        ((), None, {"program": "iperf"}, ["--program"]),
        (BARE, 2, {"program": "osu_bw"}, ["--program"]),
        ((), None, {"program": "ucx_perftest", "memory": "cuda"}, ["--memory"]),
        ((), None, {"rdma_port": "mlx5_0"}, ["--rdma-port"]),
    ):
        assert asked(hosts, np, **words)[1] == faults


@pytest.mark.parametrize("words", [(), ("-e", "1K", "--json-file", "/nonexistent/x")])
def test_a_dry_run_prints_rounds_sizes_and_the_job_and_writes_nothing(words, call, tmp_path):
    code, out, _ = call("bench", "p2p", "--dry-run", "--oversubscribe", "-o", tmp_path / "runs", *words)
    assert code == 0 and not (tmp_path / "runs").exists()
    assert "round 1\tlocalhost#0 - localhost#1" in out and "sizes\t1 2 4" in out
    assert "mpirun" in out and "ringleader.bench.pair_program" in out


def test_rates_are_measured_in_both_directions_and_latency_once():
    for program, sizes, runs in (
        ("ib_write_bw", (2, 4, 8), [("ib_write_bw", 3, False), ("ib_write_bw", 3, True)]),
        ("ucx_perftest tag_lat", (8, 64), [("tag_lat", 1, False), ("tag_lat", 1, False)]),
        ("ucx_perftest", (8,), [("tag_lat", 1, False), ("tag_bw", 1, False), ("tag_bw", 1, True)]),
    ):
        found = runs_of(program, sizes)
        assert [(run.test, len(run.sizes), run.backwards) for run in found] == runs


def test_commands_of_servers_and_clients():
    (one, *_) = runs_of("ib_write_bw", (65536,))
    assert command("ib_write_bw", one, 4711, None) == (
        *("ib_write_bw", "-p", "4711", "-F", "-n", "1000", "-s", "65536", "--report_gbits"),
    )
    sweep = runs_of("ib_write_bw", (2, 4), both_ways=True)[2]
    assert command("ib_write_bw", sweep, 1, None, "h2")[-4:] == ("-a", "--report_gbits", "-b", "h2")
    (latency,) = runs_of("ucx_perftest tag_lat", (1 << 30,))
    client = command("/opt/ucx_perftest", latency, 9, None, "h2")
    assert client == (
        *("/opt/ucx_perftest", "h2", "-p", "9", "-t", "tag_lat", "-s", "1073741824", "-n", "10", "-w", "1"),
    )
    assert command("ucx_perftest", latency, 9, None) == ("ucx_perftest", "-p", "9")
    assert osu_command("osu_latency", (1, 8), 64) == ("osu_latency", "-m", "1:8")
    assert osu_command("/x/osu_bw", (1, 8), 32, cuda=True)[-5:] == ("32", "-d", "cuda", "D", "D")
    assert {"ib_read_lat", "ucx_perftest", "osu_bibw"} <= {*PROGRAMS}


def test_a_file_of_another_program_is_read_and_kept(tmp_path, call):
    file = tmp_path / "osu.txt"
    file.write_text("# OSU MPI Bandwidth Test v7.5\n# Size      Bandwidth (MB/s)\n8   12.50\n")
    words = ["bench", "p2p", "--from-file", str(file), "-o", str(tmp_path / "runs")]
    for more, kept in ((["--dry-run"], 0), ([], 1), (["--name", "a"], 2)):
        code, out, err = call(*words, *more, "--json")
        run = json.loads(out)
        assert code == 0 and run["program"] == "osu_bw" and run["transfers"][0]["rate"] == 12.5e6
        assert len(list(tmp_path.glob("runs/*/run.json"))) == kept
        assert ("kept in" in err) == bool(kept)
    assert (tmp_path / "runs/a/run.json").exists()


@pytest.mark.parametrize(
    ("text", "word"), [("nothing", "no output of perftest"), ("# OSU MPI Latency Test v5\n", "no header")]
)
def test_a_file_that_cannot_be_read_is_named(text, word, tmp_path, call):
    file = tmp_path / "odd.txt"
    file.write_text(text)
    code, _, err = call("bench", "p2p", "--from-file", file)
    assert code == 2 and str(file) in err and word in err


def run_of(hosts, rates, *, latency=2e-6, spread=0.05, cores=64, sizes=(1, 1 << 20)):
    """``rates``: of each directed pair in bytes per second."""
    transfers = []
    for (source, target), rate in rates.items():
        bounds = {"rate": rate, "rate_low": rate * (1 - spread), "rate_high": rate * (1 + spread)}
        bounds |= {"source": source, "target": target, "latency": latency, "latency_low": latency}
        transfers += [Transfer(size=size, **bounds) for size in sizes]
    context = Context(command=(), hosts=tuple(HostContext(name=host, cores=cores) for host in {*hosts}))
    places = tuple(Place(rank=rank, host=host) for rank, host in enumerate(hosts))
    return PointToPointRun(name="x", context=context, places=places, transfers=tuple(transfers))


def all_of(count, rate=1e9):
    return {(a, b): rate for a in range(count) for b in range(count) if a != b}


def test_one_pair_has_tables_as_osu_prints_them():
    run = run_of(("h1", "h2"), {(0, 1): 12.5e9, (1, 0): 11e9})
    text = as_text(run)
    lines = [" ".join(line.split()[:4]) for line in text.splitlines()]
    assert "# Size Latency (us)" in lines and "1 2.00 2.00" in lines
    assert any(line.startswith("# Size Bandwidth (MB/s)") for line in lines)
    assert any(line.startswith("1048576 12500.00 11875.00") for line in lines)
    assert "Bidirectional" not in text and "!" not in text


def test_the_slow_place_is_named():
    rates = all_of(4) | {(a, 2): 0.2e9 for a in (0, 1, 3)}
    (said,) = verdicts(run_of(("h1", "h2", "h3", "h4"), rates))
    assert said.startswith("h3 receives 1.60 Gbit/s from h1, h2, h4")


def test_pairs_between_hosts_are_not_slow_because_those_within_are_fast():
    rates = all_of(4) | {(0, 1): 9e9, (1, 0): 9e9, (2, 3): 9e9, (3, 2): 9e9}
    run = run_of(("h1", "h1", "h2", "h2"), rates)
    assert not verdicts(run) and "*" not in as_text(run) and "h2#3" in as_text(run)


def test_who_is_not_judged():
    alike = as_text(run_of(("h1", "h2", "h3"), all_of(3)))
    assert "from \\ to" in alike and "# Bandwidth, 1 MiB" in alike and "!" not in alike
    rates = all_of(4) | {(a, 2): 0.2e9 for a in (0, 1, 3)}
    assert verdicts(run_of(("h1",) * 4, rates))
    assert not verdicts(run_of(("h1",) * 4, rates, cores=2)), "ranks share cores"
    rates = all_of(4) | {(a, 2): 0.6e9 for a in (0, 1, 3)}
    assert verdicts(run_of(("h1", "h2", "h3", "h4"), rates))
    assert not verdicts(run_of(("h1", "h2", "h3", "h4"), rates, spread=0.7)), "its best batch was as fast"


def test_silences_notes_and_failures_are_told():
    run = run_of(("h1", "h2"), {})
    run = replace(
        run,
        silences=(Silence(source=0, target=1, during="meeting", seconds=5.0),),
        notes=("a note",),
        failure="a failure",
    )
    text = as_text(run)
    assert "! h1 waited 5.0 s for h2 (meeting)\n! a note\n! a failure\n" in text
