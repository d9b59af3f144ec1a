"""``ringleader bench train`` without ranks: what follows from times, what is refused, what is printed."""

import json
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.bench.training.data_folder import DataError, find_data
from ringleader.bench.training.measured_profile import profile_text
from ringleader.bench.training.step_split import (
    RankTimes,
    came_last,
    layer_order,
    mean_split,
    slowest_step,
    split_of,
    total_rate,
)
from ringleader.bench.training.training_job import TrainingAnswers, faults_of_training, rank_faults
from ringleader.bench.training.training_plan import TrainingPlan, chosen_arms, faults_of
from ringleader.cli.bench.train import as_text, lab_threads, sentences, tf_cnn_lines
from ringleader.cli.main import ringleader
from ringleader.errors import RequestError
from ringleader.measurements.training import ARMS, Arm, LayerTime, StepSplit, TrainingRun
from ringleader.metrics import in_round
from ringleader.plan.job import Host, Job
from ringleader.predict.measured_job import from_document
from ringleader.scaling import Context

PARTS = ("input", "forward", "backward", "exposed", "optimizer")
TIME = st.floats(0, 1)


def rank_times(*steps: tuple[float, ...], rest: float = 0.0, told: tuple[float, ...] = ()) -> RankTimes:
    parts = dict(zip(PARTS, zip(*steps, strict=True), strict=True))
    return RankTimes(elapsed=sum(map(sum, steps)) + rest, told=told, **parts)


def run_of(**arms: Any) -> TrainingRun:
    """A run on two ranks whose arms have these rates."""
    split = StepSplit(
        input=0.001, forward=0.02, backward=0.04, exchange=0.005, waiting=0.003, optimizer=0.002, other=0.001
    )
    found = [
        Arm(name=name.replace("_", " "), rates=rates, step_seconds=(0.07,) * len(rates), split=split,
            splits=(split,) * len(rates))
        for name, rates in arms.items()
    ]  # fmt: skip
    layers = (
        LayerTime(name='a "b"\\ü', parameters=10, bytes=40, backward_seconds=0.01),
        LayerTime(name="fc", parameters=1, bytes=4, backward_seconds=0.03),
    )
    return TrainingRun(
        name="t", context=Context(command=("x",)), model="mlp", parameters=11, gradient_bytes=44, batch=7,
        unit="samples", precision="float32", optimizer="sgd", data="synthetic", ranks=2, per_host=2,
        arms=tuple(arm for arm in found if arm.name != "alone"), layers=layers,
        alone=next((arm for arm in found if arm.name == "alone"), None),
    )  # fmt: skip


@given(
    ranks=st.integers(1, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.tuples(TIME, TIME, TIME, TIME, TIME), min_size=2, max_size=2), min_size=n, max_size=n
        )
    ),
    rest=TIME,
    told=st.none() | st.floats(-1, 2),
)
def test_the_parts_add_up_to_the_step_and_none_is_below_zero(ranks, rest, told):
    times = [
        rank_times(*steps, rest=rest + 0.01, told=() if told is None else (told, told)) for steps in ranks
    ]
    split = split_of(times)
    mean = sum(one.elapsed / one.steps for one in times) / len(times)
    assert split.total == pytest.approx(mean)
    assert min(asdict(split).values()) >= 0
    assert split.total <= slowest_step(times) + 1e-9
    assert mean_split([split, split]).total == pytest.approx(split.total)


def test_who_comes_last_waits_for_nobody():
    early = rank_times((0, 1.0, 1.0, 0.5, 0), (0, 1.0, 1.0, 0.1, 0))
    late = rank_times((0, 1.0, 1.4, 0.1, 0), (0, 1.0, 0.9, 0.2, 0))
    split = split_of([early, late])
    assert split.exchange == pytest.approx(0.1) and split.waiting == pytest.approx((0.4 + 0 + 0 + 0.1) / 4)
    told = split_of([replace(early, told=(0.4, 0.0)), replace(late, told=(0.0, 0.3))])
    assert told.waiting == pytest.approx((0.4 + 0.2) / 4)  # never more than the whole
    assert total_rate([early, late], 8) == pytest.approx(8 * 2 / 4.6 + 8 * 2 / 4.6)


def test_the_rank_that_others_wait_for_is_named_where_it_is_one():
    early, late = rank_times(*[(0, 1.0, 1.0, 0.5, 0)] * 30), rank_times(*[(0, 1.0, 1.4, 0.1, 0)] * 30)
    assert came_last([[early, late]] * 2) == (0, 60)
    assert came_last([[rank_times((0, 1, 1, 0, 0))] * 2]) == () == came_last([[late]]) == came_last([])
    run = run_of(ringleader=(90.0, 91.0))
    arm = replace(run.arms[0], came_last=(2, 58))
    assert "wait for rank 1, which came last in 97% of the steps (4.2%" in as_text(replace(run, arms=(arm,)))
    for counts in ((20, 40), (0, 19), ()):
        assert "wait for rank" not in as_text(replace(run, arms=(replace(arm, came_last=counts),)))


def test_layers_take_the_time_since_the_gradient_before_theirs():
    step = [("head.weight", 0.1), ("head.bias", 0.15), ("body.1.weight", 0.4), ("scale", 0.45)]
    late = [(name, 2 * at) for name, at in step]
    assert [name for name, _ in layer_order([step])] == ["scale", "body.1", "head"]
    assert dict(layer_order([step, late])) == pytest.approx({"scale": 0.075, "body.1": 0.375, "head": 0.225})
    assert layer_order([]) == []


def test_predict_reads_the_profile():
    run = run_of(ringleader=(150.0, 154.0), uncoupled=(180.0,), alone=(100.0,))
    text = profile_text(run)
    job = from_document(tomllib.loads(text), "profile.toml")
    assert job.profile.step_seconds == pytest.approx(run.arm("alone").split.total)
    assert [segment.size for segment in job.profile.segments] == [40, 4] and job.per_host == 2
    assert [(point.ranks, point.rate) for point in job.points[1:]] == [(2, 152.0)]
    assert job.sharing == pytest.approx(0.9)
    assert 'name = "a \\"b\\"\\\\ü"' in text
    bare = from_document(tomllib.loads(profile_text(replace(run, layers=()))), "p")
    assert sum(segment.size for segment in bare.profile.segments) == 44
    assert profile_text(run_of(ringleader=(1.0,))) is None, "no rank was measured alone"
    one = replace(run_of(uncoupled=(9.0,), ringleader=(8.0,)), ranks=1)
    assert "[[points]]" not in profile_text(one) and "[parts]" in profile_text(one)


PLAN = TrainingPlan(model="mnist", batch=4, image_size=28, num_classes=10, repeats=2, steps=1)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"model": "lenet", "precision": "int8"}, ["--model", "--precision"]),
        ({"batch": 0, "steps": 0, "repeats": 0}, ["--batch", "--steps", "--repeats"]),
        ({"arms": ("ringleader", "ddp", "ringleader")}, ["--arms", "--arms"]),
        ({"image_size": 32, "seq_len": 9}, ["--seq-len", "--image-size"]),
        ({"model": "resnet18", "image_size": 31, "num_classes": 1}, ["--image-size", "--num-classes"]),
        (
            {"model": "gpt", "image_size": 0, "num_classes": 0, "seq_len": 1, "data": "x"},
            ["--seq-len", "--data"],
        ),
        ({"precision": "float16", "device": "cpu"}, ["--precision"]),
    ],
)  # fmt: skip
def test_all_that_is_wrong_with_a_plan(change, where):
    assert [fault.where for fault in faults_of(replace(PLAN, **change))] == where


def test_arms_that_cannot_run_are_left_out_with_a_word_or_refused_by_name():
    missing = {"ddp-nccl": "no GPU", "ringleader-sharded": "no shard="}
    arms, faults = chosen_arms(PLAN, 2, missing)
    assert [name for name, why in arms.items() if not why] == [
        "ringleader", "ddp-gloo", "uncoupled", "in step", "alone",
    ]  # fmt: skip
    assert arms["ddp-nccl"] == "no GPU" and not faults
    arms, faults = chosen_arms(PLAN, 1, missing)
    assert [name for name, why in arms.items() if not why] == ["ringleader", "ddp-gloo", "uncoupled"]
    arms, faults = chosen_arms(replace(PLAN, arms=("ddp-nccl", "uncoupled")), 2, missing)
    assert [fault.what for fault in faults] == ["ddp-nccl: no GPU"]
    assert in_round(("a", "b", "c"), 1) == ("c", "b", "a") and in_round(ARMS, 2) == ARMS


def answered(*, ranks: int = 2) -> TrainingAnswers:
    answers = TrainingAnswers(name="t", context=Context(command=()), plan=PLAN)
    answers.take(0, "size", {"ranks": ranks, "per_host": ranks})
    answers.take(0, "arms", {"ringleader": "", "ddp-nccl": "no GPU", "alone": ""})
    return answers


def test_a_repetition_counts_when_all_ranks_have_timed_it():
    answers = answered()
    one = asdict(replace(rank_times((0.1, 0.2, 0.3, 0.1, 0.3)), losses=(2.0,)))
    told = [("alone", 1, 0), ("ringleader", 1, 0), ("ringleader", 1, 1), ("ringleader", 2, 1)]
    complete = [
        answers.take(rank, "times", json.loads(json.dumps({"arm": arm, "repetition": number, "times": one})))
        for arm, number, rank in told
    ]
    assert complete == [True, False, True, False]
    run = answers.run()
    assert run.arm("ringleader").rates == (pytest.approx(8.0),) and run.arm("alone").rates == (4.0,)
    assert run.arm("ddp-nccl").note == "no GPU" and run.per_host == 2
    assert answers.rank_zero("ringleader") == ([], [2.0])
    answers.take(1, "round", {"arm": "ringleader", "repetition": 2})
    answers.take(0, "round", {"arm": "alone", "repetition": 0})
    assert answers.whereabouts() == "rank 0 in alone, warming up; rank 1 in ringleader, repetition 2 of 2"


def test_ranks_whose_weights_differ_are_named():
    for digests, said in (
        ("aaaa", []),
        ("aaba", ["ringleader: rank 2 has other weights at the end than the other ranks"]),
        ("ab", ["ringleader: the weights at the end differ: rank 0; rank 1"]),
    ):
        answers = answered(ranks=len(digests))
        for rank, digest in enumerate(digests):
            answers.take(rank, "digests", {"ringleader": digest})
        assert faults_of_training(answers) == said


def test_what_is_wrong_with_losses_and_ranks_is_told():
    answers = answered()
    bad = asdict(replace(rank_times((0, 0, 1, 0, 0)), losses=(float("nan"),)))
    answers.take(1, "times", {"arm": "ringleader", "repetition": 1, "times": bad})
    (said,) = faults_of_training(answers)
    assert said == "ringleader, repetition 1: the loss of rank 1 is not a finite number"
    found = rank_faults({0: ["--data: /x is no"], 1: ["--data: /x is no", "--a: b"]})
    assert [one.what for one in found] == ["/x is no (2 ranks, the first 0)", "b (rank 1)"]
    # 640 images in 4.75 s; rates 128 nine times and 256 once: deviation 38.4, over √10
    lines = tf_cnn_lines([0.5, 0.25] + [0.5] * 8, [7.9] * 10, batch=64, ranks=2)
    assert lines[2] == "1\timages/sec: 128.0 +/- 0.0 (jitter = 0.0)\t7.900"
    assert lines[3] == "10\timages/sec: 134.7 +/- 12.1 (jitter = 0.0)\t7.900"
    assert lines[4:] == ["-" * 64, "total images/sec: 269.47", "-" * 64]


def test_the_text_says_what_intervals_carry_and_no_more():
    barrier_only = {"ringleader": (90.0, 91.0, 90.5), "uncoupled": (100.0, 101.0, 100.5)}
    clear = run_of(**barrier_only, in_step=(96.0, 97.0, 96.5), alone=(60.0, 60.5, 60.2))
    text = as_text(clear)
    assert "90.0%" in text and "exchange" in text and "5.00 ms" in text and "± 0" in text
    costs = [line.split(" costs ")[1][:4] for line in sentences(clear) if " costs " in line]
    assert costs == ["4.0%", "6.2%"] and "83.4% of 2 times one rank alone" in sentences(clear)[-1]
    noisy = run_of(ringleader=(80.0, 120.0), uncoupled=(100.0, 100.0), in_step=(90.0, 115.0))
    assert all("nothing that stands out from chance" in line for line in sentences(noisy))
    unsure = run_of(ringleader=(1.0,), uncoupled=(60.0, 90.0, 120.0), alone=(60.0, 45.0, 50.0))
    assert "nothing stands out" in sentences(unsure)[-1]
    single = run_of(ringleader=(80.0,), uncoupled=(100.0,), in_step=(90.0,))
    assert all("one repetition" in line for line in sentences(single))
    lab = replace(single, context=Context(command=("x",), lab=True, threads=2), device="cpu")
    shared = "2 ranks, 2 on each host (all hosts share one machine), 2 threads each; computing on cpu"
    assert shared in as_text(lab)
    failed = replace(run_of(), failure="it broke", arms=(Arm(name="ddp-nccl", rates=(), note="no GPU"),))
    assert "Left out: ddp-nccl: no GPU." in as_text(failed) and "! it broke" in as_text(failed)


def test_hosts_of_a_lab_share_its_cores():
    hosts = (Host(name="h1", slots=2), Host(name="h2", slots=2))
    for more, environ, threads in (
        ({}, {}, 2),
        ({"np": 2}, {}, 4),
        ({"threads": 3}, {}, 3),
        ({}, {"OMP_NUM_THREADS": "4,2"}, None),
        ({"hosts": (Host(name="h1"),)}, {}, None),
    ):
        job = Job(**{"command": ("python",), "hosts": hosts} | more)
        assert lab_threads(job, 8, environ) == threads


def refused(*words: str) -> str:
    with pytest.raises(RequestError) as error:
        ringleader.main(args=["bench", "train", *words], standalone_mode=False)
    return str(error.value)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    wrong = (
        "-n 0 --model vgg --batch 0 --steps x --precision int8 --arms , --timeout 0 --format csv --name a/b"
    )
    said = refused(*wrong.split())
    for option in wrong.split()[::2]:
        assert option in said
    assert "a/b" in said
    assert "holds no CLASS/*.jpg" in refused("--model", "resnet18", "--data", str(tmp_path))
    assert "is not a directory" in refused("--model", "mnist", "--data", str(tmp_path / "no"))
    assert "counts images" in refused("--format", "tf_cnn", "--model", "gpt")


@pytest.mark.process
def test_a_dry_run_prints_the_turns_and_starts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["bench", "train", "--dry-run", "-n", "2", "--repeats", "2", "--arms", "ringleader,in-step"]
    words += ["--oversubscribe", "--on", "local"]
    ringleader.main(args=words, standalone_mode=False)
    shown = capsys.readouterr().out
    assert "1\tringleader, in step, 20 steps of each\n2\tin step, ringleader, 20 steps of each\n" in shown
    assert "rank_program" in shown and not list(tmp_path.iterdir())


def test_what_a_directory_holds(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    for name in ("cat/1.JPG", "cat/2.png", "ant/1.jpeg", "ant/notes.txt", ".hidden/1.jpg"):
        (pictures / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (pictures / "train" / name).touch()
    found = find_data(str(pictures), ("pictures",))
    assert found.classes == ("ant", "cat") and [label for _, label in found.files] == [0, 1, 1]
    with pytest.raises(DataError, match="holds pictures; the model takes mnist"):
        find_data(str(pictures), ("mnist",))
    digits = tmp_path / "digits"
    digits.mkdir()
    (digits / "t10k-images-idx3-ubyte.gz").touch()
    with pytest.raises(DataError, match="no t10k-labels-idx1-ubyte"):
        find_data(str(digits), ("mnist",))
    (digits / "t10k-labels-idx1-ubyte").touch()
    assert [Path(path).name for path, _ in find_data(str(digits), ("mnist",)).files] == [
        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte",
    ]  # fmt: skip
    packed = tmp_path / "mnist.npz"
    packed.touch()
    assert find_data(str(packed), ("mnist",)).files == ((str(packed), 0),)
