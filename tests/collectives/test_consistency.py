"""Parameters that are compared over the ranks while a script trains: what is reported, and what is not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

TOLD = "ringleader: warning: the parameters of "
TWO_HOSTS = {"RINGLEADER_RANKS_PER_HOST": "1"}


def told(done: Any, ranks: int) -> str:
    """Return the one warning of a job that has trained to its end."""
    assert done.code == 0, done.err + done.out
    assert done.out.count("rank done") == done.out.count("over\n") == ranks, done.out + done.err
    [line] = [line for line in done.err.splitlines() if TOLD in line]
    assert "hvd.broadcast_parameters(" in line
    return str(line)


@pytest.mark.parametrize(
    ("ranks", "fault", "who"),
    [
        (2, 1, "rank 1 differs from rank 0 in"),
        (2, 0, "rank 1 differs from rank 0 in"),
        pytest.param(3, 0, "rank 0 differs from ranks 1, 2 in", marks=pytest.mark.long),
        pytest.param(4, 2, "rank 2 differs from ranks 0, 1, 3 in", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("environ", [{}, TWO_HOSTS], ids=["one host", "a host each"])
def test_one_bit(jobs: Any, ranks: int, fault: int, who: str, environ: dict[str, str]) -> None:
    line = told(jobs("consistency.py", "plain", str(fault), ranks=ranks, **environ), ranks)
    assert f"SGD differ between ranks after step 4: {who} 3.weight (norm " in line


@pytest.mark.parametrize(
    "case", ["shard", "fp16", "powersgd", "groups", "adasum", "accumulate", "no_sync", "channels_last"]
)
def test_one_bit_of_any_optimizer(jobs: Any, case: str) -> None:
    line = told(jobs("consistency.py", case, "1", ranks=2), 2)
    assert "after step 4: rank 1 differs from rank 0 in 3.weight (norm " in line
    assert ("AdamW" if case == "shard" else "SGD") in line


@pytest.mark.long
def test_one_bit_in_a_process_set(jobs: Any) -> None:
    done = jobs("consistency.py", "set", "2", ranks=4)
    assert done.code == 0, done.err + done.out
    assert done.out.count("over\n") == 3 and done.out.count("rank done") == 4, done.out
    [line] = [line for line in done.err.splitlines() if TOLD in line]
    assert "rank 2 differs from ranks 1, 3 in 3.weight" in line


CASES = (
    *("plain", "shard", "fp16", "powersgd", "groups", "adasum", "accumulate", "no_sync", "channels_last"),
    *("frozen", "thawed", "scaler", "skip", "join", "late", "nan"),
    pytest.param("set", marks=pytest.mark.long),
)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="one host"),
        pytest.param(TWO_HOSTS, id="a host each", marks=pytest.mark.long),
    ],
)
def test_nothing_is_said_of_equal_parameters(jobs: Any, case: str, environ: dict[str, str]) -> None:
    done = jobs("consistency.py", case, ranks=2 + 2 * (case == "set"), **environ)
    done.passed(2 + 2 * (case == "set"))
    assert "over\n" not in done.out


@pytest.mark.parametrize(
    "fault", ["kept", *(pytest.param(one, marks=pytest.mark.long) for one in ("membership", "schedulers"))]
)
def test_a_fault_of_ours_that_trains_different_models(jobs: Any, fault: str) -> None:
    line = told(jobs.fresh("consistency_faults.py", fault, ranks=2), 2)
    assert "SGD differ between ranks after step " in line and "rank 1 differs from rank 0 in weight" in line


def test_none_of_these_faults(jobs: Any) -> None:
    done = jobs("consistency_faults.py", "none", ranks=2)
    done.passed(2)
    assert done.out.count("equal\n") == 6 and TOLD not in done.err


@pytest.mark.long
def test_over_proxies(proxy_jobs: Any) -> None:
    proxy_jobs("consistency.py", "plain", ranks=2).passed(2)
    assert "after step 4: rank 1 differs" in told(proxy_jobs("consistency.py", "plain", "1", ranks=2), 2)


def test_off(jobs: Any) -> None:
    done = jobs("consistency.py", "plain", "1", ranks=2, RINGLEADER_CONSISTENCY_CHECK="off")
    done.passed(2)
    assert done.out.count("off\n") == 2


@pytest.mark.long
def test_an_error_on_all_ranks(jobs: Any) -> None:
    done = jobs.fresh("consistency.py", "plain", "1", ranks=2, RINGLEADER_CONSISTENCY_CHECK="error")
    assert done.code == 1, done.out + done.err
    assert done.err.count("RuntimeError: the parameters of SGD differ between ranks after step 4") == 2
    assert "rank done" not in done.out


def ringleader(jobs: Any, tmp_path: Path, *options: str, case: str = "plain") -> tuple[Any, Any]:
    """Run the program with a fault by ``ringleader run``; return the end and the outcome's JSON."""
    outcome = tmp_path / "outcome.json"
    program = str(jobs.programs / "consistency.py")
    words = [sys.executable, "-m", "ringleader", "run", "-n", "2", "--json-file", str(outcome), *options]
    done = jobs.run([*words, sys.executable, program, case, "1"])
    return done, json.loads(outcome.read_text())


@pytest.mark.long
def test_the_outcome_of_a_job_has_it(jobs: Any, tmp_path: Path) -> None:
    done, outcome = ringleader(jobs, tmp_path)
    assert done.code == 0, done.err
    [found] = outcome["consistency"]
    assert TOLD in done.err and found.pop("text") in done.err
    assert " on rank 1, " in found["norms"] and found.pop("norms").endswith(" on rank 0")
    assert found == {
        "optimizer": "SGD", "step": 4, "ranks": [1], "usual": [0], "parameters": ["3.weight"]
    }  # fmt: skip


@pytest.mark.long
def test_the_option(jobs: Any, tmp_path: Path) -> None:
    done, outcome = ringleader(jobs, tmp_path, "--consistency-check", "error")
    assert done.code == outcome["exit_code"] == 1
    assert [one["step"] for one in outcome["consistency"]] == [4]
    assert "the parameters of SGD differ between ranks" in done.err
    done, outcome = ringleader(jobs, tmp_path, "--consistency-check", "off")
    assert done.code == 0 and outcome["consistency"] == [] and TOLD not in done.err
