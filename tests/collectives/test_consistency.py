"""Parameters that are compared over the ranks while a script trains: what is reported, and what is not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import programs

pytestmark = [pytest.mark.mpi, pytest.mark.torch]

TOLD = "ringleader: warning: the parameters of "
TWO_HOSTS = {"RINGLEADER_RANKS_PER_HOST": "1"}


def told(done: Any, ranks: int, trained: int = 0) -> str:
    """Return the one warning of a job that has trained to its end, on all ranks or so many."""
    assert done.code == 0, done.err + done.out
    ended = done.out.count("rank done"), done.out.count("over\n")
    assert ended == (ranks, trained or ranks), done.out + done.err
    [line] = [line for line in done.err.splitlines() if TOLD in line]
    assert "hvd.broadcast_parameters(" in line
    return str(line)


@pytest.mark.parametrize(
    ("ranks", "fault", "who", "environ"),
    [
        (2, 1, "rank 1 differs from rank 0 in", {}),
        (2, 0, "rank 1 differs from rank 0 in", TWO_HOSTS),
        pytest.param(3, 0, "rank 0 differs from ranks 1, 2 in", {}, marks=pytest.mark.long),
        pytest.param(4, 2, "rank 2 differs from ranks 0, 1, 3 in", TWO_HOSTS, marks=pytest.mark.long),
    ],
)
def test_one_bit(jobs: Any, ranks: int, fault: int, who: str, environ: dict[str, str]) -> None:
    line = told(jobs("consistency.py", "plain", str(fault), ranks=ranks, **environ), ranks)
    assert f"SGD differ between ranks after step 4: {who} 3.weight (norm " in line


WAYS = ("shard", "fp16", "powersgd", "groups", "adasum", "accumulate", "no_sync", "channels_last")


@pytest.mark.parametrize("case", WAYS)
def test_one_bit_of_any_optimizer(jobs: Any, case: str) -> None:
    line = told(jobs("consistency.py", case, "1", ranks=2), 2)
    assert "after step 4: rank 1 differs from rank 0 in 3.weight (norm " in line
    assert ("AdamW" if case == "shard" else "SGD") in line


@pytest.mark.long
def test_one_bit_in_a_process_set(jobs: Any) -> None:
    line = told(jobs("consistency.py", "set", "2", ranks=4), 4, trained=3)
    assert "rank 2 differs from ranks 1, 3 in 3.weight" in line


@programs(
    *((f"consistency.py {case}", "2", "2x1") for case in (*WAYS, "plain", "frozen", "thawed", "scaler")),
    *((f"consistency.py {case}", "2", "2x1") for case in ("skip", "join", "late", "nan")),
    ("consistency.py set", "", "4"),
)
def test_nothing_is_said_of_equal_parameters(
    jobs: Any, program: str, layout: Any, environ: dict[str, str]
) -> None:
    done = jobs(*program.split(), ranks=layout.size, **layout.environ)
    done.passed(layout.size)
    assert "over\n" not in done.out


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


@pytest.mark.long
def test_the_option_and_the_outcome_of_a_job(jobs: Any, tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    words = [sys.executable, "-m", "ringleader", "run", "-n", "2", "--json-file", str(outcome)]
    program = [sys.executable, str(jobs.programs / "consistency.py"), "plain", "1"]
    done = jobs.run([*words, *program])
    [found] = json.loads(outcome.read_text())["consistency"]
    assert done.code == 0 and TOLD in done.err and found.pop("text") in done.err, done.err
    assert " on rank 1, " in found["norms"] and found.pop("norms").endswith(" on rank 0")
    assert found == {
        "optimizer": "SGD", "step": 4, "ranks": [1], "usual": [0], "parameters": ["3.weight"]
    }  # fmt: skip
    done = jobs.run([*words, "--consistency-check", "error", *program])
    ended = json.loads(outcome.read_text())
    assert done.code == ended["exit_code"] == 1
    assert [one["step"] for one in ended["consistency"]] == [4]
    assert "the parameters of SGD differ between ranks" in done.err
    done = jobs.run([*words, "--consistency-check", "off", *program])
    assert done.code == 0 and json.loads(outcome.read_text())["consistency"] == [] and TOLD not in done.err
