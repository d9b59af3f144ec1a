"""Options declared as fields: what is read, what is wrong with it, and the way back to words."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader import api
from ringleader.cli.run.command import RunOptions, command
from ringleader.cli.typed_command import Command, faults_of_words, options_of
from ringleader.errors import RequestError
from ringleader.option_fields import WrongValueError, faults_of_values, flag, group, many, option, words_of
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job, Placement, Ssh


@dataclass(frozen=True, kw_only=True)
class Inner:
    often: int = option("How often.", default=3, least=1, most=9, unit="times", of="bench")
    also: bool = flag("Also.", "--no-also", default=True, negated=True)


@dataclass(frozen=True, kw_only=True)
class Outer:
    word: str = option("A word.", "-w", "--word", default="one", choices=("one", "two"))
    seconds: float | None = option("How long.", above=0, unit="seconds")
    names: tuple[str, ...] = many("Names.", "--name")
    inner: Inner = group(Inner, after="word")
    part: Inner = group(Inner, of="bench")


def read(*words, kind=Outer):
    made = Command("it", options=kind, run=lambda options: None)
    with made.make_context("it", list(words)) as ctx:
        return options_of(kind, ctx.params), faults_of_words(ctx)


def test_values_have_the_types_of_their_fields():
    options, faults = read("-w", "two", "--seconds", "1.5", "--name", "a", "--name", "b", "--often", "4")
    assert options == Outer(
        word="two", seconds=1.5, names=("a", "b"), inner=Inner(often=4), part=Inner(often=4)
    )
    assert not faults and read("--no-also")[0].inner == Inner(also=False)
    assert read("--no-also")[0].part == Inner(), "it belongs to another family"


def test_all_wrong_words_are_reported_at_once():
    _, faults = read("-w", "three", "--seconds", "0", "--often", "many")
    assert [str(one) for one in faults] == [
        "--word: 'three' is unknown\n    → use one or two",
        "--seconds: 0 seconds\n    → use a number above 0",
        "--often: 'many' is not an integer",
    ]
    _, faults = read("--often", "10", "--seconds", "long")
    assert [fault.what for fault in faults] == ["10 times", "'long' is not a number of seconds"]


def labeled(word):
    if "=" not in word:
        raise WrongValueError("there is no value", word=word)
    return word


@dataclass(frozen=True, kw_only=True)
class Labels:
    labels: tuple[str, ...] = many("Labels.", "--label", read=labeled)
    directory: Job = group(Job)


def test_each_wrong_word_of_an_option_that_may_be_given_again_is_reported():
    options, faults = read("--label", "a", "--label", "b=c", "--label", "d", "--workdir", "", kind=Labels)
    assert options.labels == ("b=c",)
    assert [str(one) for one in faults] == [
        "--label a: there is no value",
        "--label d: there is no value",
        "--workdir: names no directory\n    → give its path",
    ]


JOBS = some.builds(
    Job,
    np=some.none() | some.integers(1, 99),
    placement=some.sampled_from(Placement),
    ssh=some.builds(Ssh, port=some.none() | some.integers(1, 65535), accept_new=some.booleans()),
    all_gpus=some.booleans(),
    timeout=some.none() | some.sampled_from([0.5, 90.0]),
    lost_after=some.sampled_from([10.0, 2.5]),
    extra_mpirun_args=some.lists(some.sampled_from(["-v", "a b"])).map(tuple),
    consistency_check=some.sampled_from([None, "warn", "off"]),
)


@given(JOBS)
def test_words_of_a_job_make_the_same_job(job):
    with command.make_context("run", [*words_of(job, Job()), "true"]) as ctx:
        found = options_of(RunOptions, ctx.params)
    assert found.job == Job(**{**vars(job), "command": ("true",)})


def test_an_elastic_job_has_what_was_given():
    with command.make_context("run", ["--min-np", "2", "--reset-limit", "0", "true"]) as ctx:
        assert options_of(RunOptions, ctx.params).elastic == {"min_np": 2, "reset_limit": 0}
    changed = ElasticOptions(cooldown=(1.0, 2.5), exclude_hosts=True)
    assert words_of(changed, ElasticOptions()) == [
        *("--blacklist-cooldown-range", "1", "2.5"),
        "--exclude-hosts",
    ]


def test_run_from_python_takes_every_field_of_a_job():
    known = set(inspect.signature(inspect.unwrap(api.run)).parameters)
    other = {"command", "extra_mpirun_args", "faults", "in_step", "max_restarts", "warm", "code"}
    other |= {"report", "sample_seconds", "profile", "profile_dir"}  # records are the command line's
    other |= {"left_out"}  # the gate's own
    other |= {"container", "container_engine", "container_mounts"}  # a function needs our Python there
    assert {part.name for part in fields(Job)} - known == other


def test_values_of_another_type_are_faults():
    for values, said in (
        ({"np": "4"}, "-n: '4' is not a number"),
        ({"lost_after": None}, "--lost-after: None is not a number"),
        ({"np": True}, "-n: True is not a number"),
        ({"bind": None}, "--bind: None is unknown"),
        ({"ssh": Ssh(port="22")}, "--ssh-port: '22' is not a number"),
    ):
        (fault,) = faults_of_values(Job(**values))
        assert str(fault).splitlines()[0] == said


def test_values_of_a_program_have_the_same_bounds():
    found = faults_of_values(Outer(word="x", seconds=-1.0, inner=Inner(often=10)))
    assert [fault.where for fault in found] == ["--word", "--seconds", "--often"]
    assert not faults_of_values(Job(np=numpy.int64(4), timeout=numpy.float32(1.5)))
    assert [one.where for one in faults_of_values(Job(np=numpy.int64(0)))] == ["-n"]
    with pytest.raises(ValueError, match="benhc"):
        option("How often.", of="hosts benhc")
    with pytest.raises(ValueError, match="benhc"):
        group(Inner, of="benhc")


def test_a_command_does_not_run_with_wrong_words():
    @Command.of("it", Outer)
    def it(options):
        """Do it."""

    assert it.name == "it" and it.help == "Do it." and it.run(Outer()) is None
    made = Command("it", options=Outer, run=lambda options: pytest.fail("it ran"))
    with pytest.raises(RequestError, match="--often: 0 times"):
        made.main(["--often", "0"], standalone_mode=False)
