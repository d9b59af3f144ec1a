"""TensorFlow, Keras of both generations, JAX and MXNet on ranks: operations, training, faults without hangs.

MXNet has its own environment, which `make mxnet` builds.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.conftest import MXNET, Train, with_mxnet

from ringleader.lab.saved_state import Lab

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]

KERAS2 = {"TF_USE_LEGACY_KERAS": "1"}
TENSORFLOW, TORCH, JAX = ({"KERAS_BACKEND": name} for name in ("tensorflow", "torch", "jax"))
PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "2"}
MARKS: dict[str, Any] = {
    "": (),
    "smoke": pytest.mark.smoke,
    "long": pytest.mark.long,
    "exhaustive": (pytest.mark.long, pytest.mark.exhaustive),
}


def rows(*table: tuple[Any, ...]) -> Any:
    """Return a test's parameters from rows: a program's words, the ranks, when it runs, the environment."""
    found = []
    for words, ranks, when, *environ in table:
        shown = " ".join(
            [words.replace(".py", ""), f"{ranks}", *(name for one in environ for name in one.values())]
        )
        found.append(pytest.param(words.split(), ranks, dict(*environ), marks=MARKS[when], id=shown))
    return pytest.mark.parametrize(("words", "ranks", "environ"), found)


@rows(
    ("contract.py tensorflow_eager", 2, "long"),
    ("contract.py tensorflow_eager", 3, "long"),
    ("contract.py tensorflow_function", 2, "long"),
    ("contract.py tensorflow_session", 2, "long"),
    ("contract.py jax", 2, "smoke"),
    ("contract.py jax", 4, "long"),
    ("contract.py jax_jit", 3, "long"),
    ("contract.py keras", 2, "long", KERAS2),
    ("contract.py keras", 2, "long", JAX),
    ("tensorflow_behavior.py", 2, "long", PATIENCE),
    ("tensorflow_behavior.py", 3, "long", PATIENCE),
    ("tensorflow_tape.py", 3, "long"),
    ("tensorflow_tape.py", 2, "exhaustive"),
    ("tensorflow_training.py function", 1, "long"),
    ("tensorflow_training.py dense", 2, "long"),
    ("tensorflow_training.py eager", 3, "long"),
    ("tensorflow_batch_norm.py", 2, "long", {"TF_USE_LEGACY_KERAS": "0"}),
    ("tensorflow_batch_norm.py", 3, "long", KERAS2),
    ("tensorflow_batch_norm.py", 1, "exhaustive", {"TF_USE_LEGACY_KERAS": "0"}),
    ("tensorflow_sessions.py", 2, "long"),
    ("tensorflow_sessions.py", 3, "exhaustive"),
    ("session_after_failure.py", 1, "smoke"),
    ("tensorflow_session_training.py v1", 2, "long"),
    ("tensorflow_session_training.py v2 all", 2, "long"),
    ("tensorflow_session_training.py v1 all", 4, "exhaustive"),
    *((f"tensorflow_session_faults.py {how}", 2, "long") for how in ("differs", "interrupted", "forked")),
    ("tensorflow_session_faults.py twice", 1, "long"),
    *((f"elastic_tensorflow.py {how}", 2, "long") for how in ("eager", "session")),
    ("elastic_keras.py tf.keras", 1, "long", KERAS2),
    ("elastic_keras.py tf.keras", 2, "long"),
    *(("elastic_keras.py keras", 2, "long", backend) for backend in (TORCH, JAX)),
    ("keras_training.py 40", 2, "smoke", KERAS2),
    ("keras_training.py 60", 4, "long", KERAS2),
    ("keras_training.py 60", 3, "long", TENSORFLOW),
    ("keras_training.py 60", 2, "long", TORCH),
    *(("keras_training.py 40", ranks, "long", JAX) for ranks in (1, 2)),
    *((f"keras_faults.py {case}", 2, "long", JAX) for case in ("steps", "processor")),
    ("keras_faults.py steps", 2, "long", TENSORFLOW),
    ("keras_faults.py metrics", 2, "long", TORCH),
    *((f"keras_faults.py {case}", 2, "long", KERAS2) for case in ("variables", "exit")),
    ("keras_faults.py arguments", 2, "exhaustive", TENSORFLOW),
    *((f"keras_faults.py {case}", 2, "exhaustive", TORCH) for case in ("steps", "exit")),
    ("keras_faults.py variables", 2, "exhaustive", JAX),
    ("jax_distributed.py", 2, ""),
    ("jax_operations.py", 2, "long", PATIENCE),
    *(("jax_operations.py", ranks, "exhaustive", PATIENCE) for ranks in (1, 3)),
    ("jax_training.py 60", 4, "long"),
)
def test_programs(train: Train, words: list[str], ranks: int, environ: dict[str, str]) -> None:
    train(*words, ranks=ranks, timeout=300, **environ).passed(ranks)


@with_mxnet
@rows(
    *(("contract.py mxnet_ndarray", ranks, "long") for ranks in (1, 2)),
    ("contract.py mxnet_np", 3, "long"),
    *(("mxnet_training.py gluon", ranks, "long") for ranks in (1, 4)),
    ("mxnet_training.py module", 3, "long"),
    *((f"mxnet_training.py {mode}", 2, "long") for mode in ("groups", "predivide", "half", "half_groups")),
    *(("mxnet_faults.py", ranks, "long") for ranks in (1, 3)),
    ("mxnet_steps.py join", 2, "long"),
)
def test_programs_of_mxnet(train: Train, words: list[str], ranks: int, environ: dict[str, str]) -> None:
    train(*words, ranks=ranks, python=MXNET, **environ).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "done", "words"),
    [
        ("jax_uneven_steps.py", 0, "HorovodInternalError"),
        ("tensorflow_uneven_steps.py", 1, "HorovodInternalError"),
        pytest.param("mxnet_steps.py end", 0, "ended", marks=with_mxnet),
        pytest.param("mxnet_steps.py metric", 0, "Mismatched", marks=with_mxnet),
    ],
)
def test_ranks_with_fewer_steps_are_an_error_and_not_a_hang(
    train: Train, program: str, done: int, words: str
) -> None:
    python = {"python": MXNET} if program.startswith("mxnet") else {}
    job = train(*program.split(), ranks=2, timeout=100, **python)
    assert job.code not in (0, 124) and words in job.err, job.out + job.err
    assert job.out.count("rank done") >= done


@pytest.mark.long
@pytest.mark.parametrize("mode", ["dies", "leaves"])
def test_tensorflow_sessions_whose_rank_ends(train: Train, mode: str) -> None:
    done = train("tensorflow_session_faults.py", mode, ranks=2)
    assert done.out.count("rank done") == 2, done.out[-3000:] + done.err[-3000:]
    assert done.code != 124


@pytest.mark.long
@pytest.mark.parametrize("environ", [KERAS2, TENSORFLOW, TORCH], ids=["keras2", "tensorflow", "torch"])
def test_weights_of_keras_that_differ_are_reported(train: Train, environ: dict[str, str]) -> None:
    done = train("keras_consistency.py", "3", ranks=2, **environ)
    done.passed(2)
    [line] = [line for line in done.err.splitlines() if "differ between ranks" in line]
    assert "after step 8: rank 1 differs from rank 0 in " in line
    assert "hvd.broadcast_variables(" in line
    train("keras_consistency.py", "0", ranks=2, **environ).passed(2)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_ranks_that_roam_take_the_threads_that_the_launcher_sets(train: Train, framework: str) -> None:
    pytest.importorskip(framework)
    train("thread_counts.py", framework, ranks=1, options=("--bind", "none", "--threads", "5")).passed(1)


@pytest.mark.long
def test_collectives_of_jax_itself_with_other_mpis_and_side_by_side(train: Train) -> None:
    for mpi in ("openmpi4", "mpich"):
        train("jax_distributed.py", ranks=3, options=("--mpi", mpi)).passed(3)
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(train, "jax_distributed.py", ranks=2) for _ in range(3)]
    for job in jobs:
        job.result().passed(2)


@pytest.mark.long
@pytest.mark.lab
@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (("jax_distributed.py",), {}),
        *((("contract.py", bridge), {}) for bridge in ("tensorflow_eager", "jax")),
        pytest.param(("contract.py", "mxnet_ndarray"), {}, marks=with_mxnet),
        *(
            pytest.param(words, environ, marks=pytest.mark.exhaustive)
            for words, environ in (
                (("contract.py", "tensorflow_session"), {}),
                (("jax_training.py",), {}),
                (("keras_training.py", "200"), JAX),
                (("keras_training.py", "200"), KERAS2),
                (("tensorflow_training.py", "function"), {}),
            )
        ),
        pytest.param(("mxnet_training.py", "gluon"), {}, marks=(pytest.mark.exhaustive, with_mxnet)),
    ],
    ids=lambda one: " ".join(one if isinstance(one, tuple) else one.values()),
)
def test_between_hosts(train: Train, lab: Lab, words: tuple[str, ...], environ: dict[str, str]) -> None:
    python = {"python": MXNET} if "mxnet" in words[-1] + words[0] else {}
    options = ("--lab", "--lab-name", lab.name, *(f"-x{name}" for name in environ))
    train(*words, ranks=4, timeout=300, options=options, **python, **environ).passed(4)


@pytest.mark.long
@with_mxnet
def test_the_example_of_mxnet_learns_digits_and_names_what_is_wrong(train: Train, tmp_path: Path) -> None:
    example = "../../../examples/mxnet_mnist.py"
    ended = train(example, "--check-equal", ranks=2, python=MXNET, timeout=300)
    assert ended.code == 0, ended.out + ended.err
    lines = ended.out.splitlines()
    accuracy = next(line for line in lines if line.startswith("[0] test accuracy: "))
    assert float(accuracy.split()[3].rstrip("%")) > 95
    assert len({line.split(": ")[1] for line in lines if "parameters of rank" in line}) == 1, lines
    ended = train(example, "--data-dir", str(tmp_path), ranks=2, python=MXNET)
    assert ended.code == 1 and "no t10k-images-idx3-ubyte" in ended.err, ended.err
