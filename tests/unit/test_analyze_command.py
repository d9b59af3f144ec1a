"""``ringleader analyze`` as a user calls it: what it prints, and what it says of files that are no traces."""

import gzip
import json
from pathlib import Path

import pytest
from tests.unit.conftest import Call
from tests.unit.test_trace_split import on_cpus, trace

from ringleader.cli.run.profile import Profile


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rank 0 as text, rank 1 compressed, as ``tensorboard_trace_handler`` writes with ``use_gzip``."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "traces"
    directory.mkdir()
    first, second = on_cpus()
    (directory / "h1_17.1.pt.trace.json").write_text(json.dumps(first))
    (directory / "h2_19.1.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(second).encode()))
    return directory


TABLE = """\
2 ranks, 2 steps (20 to 21), work of the CPU

a step      time    compute    exposed    waiting    input     idle    overlapped
--------  ------  ---------  ---------  ---------  -------  -------  ------------
rank 0    100 ms    40.0 ms    16.0 ms    30.0 ms  10.0 ms  4.00 ms       10.0 ms
rank 1    100 ms    40.0 ms    6.00 ms        0 s  50.0 ms  4.00 ms       10.0 ms
sum       400 ms        40%        11%        15%      30%       4%           10%

collective, all ranks      count    time    exposed    waiting    overlapped
-----------------------  -------  ------  ---------  ---------  ------------
all_reduce                     4  144 ms    44.0 ms    60.0 ms       40.0 ms

• rank 1 was the last to enter 2 of 2 collectives; the others waited 30.0 ms per step for it
• it spends 40.0 ms more waiting for its data loader than the median of the others
"""


def test_a_directory_is_shown_as_a_table_and_as_json(call: Call, traces: Path) -> None:
    assert call("analyze", "traces") == (0, TABLE, "")
    files = sorted(traces.iterdir())
    assert call("analyze", *map(str, files)) == (0, TABLE, "")
    code, out, err = call("analyze", "traces", "--json", "--json-file", "split.json")
    found = json.loads(out)
    assert (code, err, json.loads(Path("split.json").read_text())) == (0, "", found)
    assert found["straggler"] == {"rank": 1, "part": "input"}
    assert found["sum"]["waiting"] == pytest.approx(0.06)
    assert [rank["file"] for rank in found["ranks"]] == [file.name for file in files]


def test_files_that_are_no_traces_are_named_and_the_others_shown(
    call: Call, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringleader.cli.analyze.LARGEST", 500_000)
    whole = (traces / "h2_19.1.pt.trace.json.gz").read_bytes()
    broken: dict[str, tuple[bytes, str]] = {
        "cut.json.gz": (whole[:-40], "is cut short or damaged"),
        "flipped.json.gz": (whole[:60] + b"\0\0\0\0" + whole[64:], "is cut short or damaged"),
        "bomb.json.gz": (gzip.compress(b'{"traceEvents": [' + b" " * 600_000 + b"]}"), "is larger than"),
        "empty.json": (b"", "is not JSON, or cut short"),
        "nothing.json": (b'{"traceEvents": []}', "has no operation and no kernel: nothing was recorded"),
        "run.json": (b'{"kind": "scaling"}', "is not a trace of PyTorch's profiler"),
        "deep.json": (b"[" * 200_000, "nested too deep"),
    }
    for name, (data, _) in broken.items():
        (traces / name).write_bytes(data)
    code, out, err = call("analyze", "traces")
    assert (code, out) == (0, TABLE)
    for name, (_, what) in broken.items():
        assert any(f"{name}: " in line and what in line for line in err.splitlines()), (name, err)
    for file in traces.glob("h?_*"):
        file.unlink()
    code, out, err = call("analyze", "traces")
    assert (code, out) == (2, "") and len(err.splitlines()) == len(broken)


def test_wrong_requests(call: Call, traces: Path) -> None:
    Path("hollow").mkdir()
    Path("one.json").write_text(json.dumps(trace("compute:0-1")))
    for words, said in (
        ("nowhere", "nowhere: there is no such file or directory"),
        ("hollow --json-file no/such", "hollow: holds no trace (.json or .json.gz)"),
        ("one.json --json-file one.json", "one.json is read by this command"),
    ):
        code, out, err = call("analyze", *words.split())
        assert (code, out) == (2, "") and said in err


def test_one_rank_without_collectives_has_a_table_alone_and_what_is_unknown_is_a_dash(
    call: Call, traces: Path
) -> None:
    alone = trace("step3:0-10 load:0-4 compute:4-9", world=1)
    Path("one.json").write_text(json.dumps(alone))
    code, out, _ = call("analyze", "one.json")
    assert code == 0 and out.startswith("1 rank, 1 step, work of the CPU\n\na step")
    assert "collective" not in out
    Path("one.json").write_text(json.dumps(trace("compute:0-1 gloo:1-9", 1, world=4)))
    _, out, _ = call("analyze", "one.json")
    assert "–" in out and "! 3 of 4 ranks have no trace (0, 2, 3)" in out


def test_a_straggler_that_waited_itself_has_no_part(call: Call, traces: Path) -> None:
    texts = ("step1:0-100 compute:0-20 gloo:20-100", "step1:0-100 compute:0-20 other:20-80 gloo:80-100")
    for rank, text in enumerate(texts):
        Path(f"{rank}.json").write_text(json.dumps(trace(text, rank)))
    _, out, _ = call("analyze", "0.json", "1.json", "--json-file", "split.json")
    assert json.loads(Path("split.json").read_text())["straggler"] == {"rank": 1, "part": None}
    assert "it waited itself" in out and "longer than" not in out


@pytest.mark.parametrize("error", [None, MemoryError, KeyboardInterrupt])
def test_a_job_whose_traces_are_not_read_ends_with_their_directory(
    traces: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
) -> None:
    def fail(_: object) -> None:
        raise (error or AssertionError)

    monkeypatch.setattr("ringleader.cli.analyze.split", fail)
    monkeypatch.setattr("ringleader.cli.run.profile.LARGEST", 1 << 30 if error else 100)
    told = list[str]()
    profile = Profile("2:3", str(traces), told.append)
    assert profile.finish() == {"wanted": "2:3", "directory": str(traces)}
    (line,) = told
    assert line.startswith("--profile 2:3: traces are in ") and line.endswith(f"ringleader analyze {traces}")
