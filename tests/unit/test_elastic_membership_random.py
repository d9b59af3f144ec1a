"""The decider of elastic jobs under whatever may happen, whenever: what must always hold, holds."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.elastic_simulation import Phase, Simulation

from ringleader.launch.elastic.membership_state import Limits

HOSTS = ("h1", "h2", "h3", "h4")
NUMBER = st.integers(0, 50)
STEPS = st.one_of(
    st.tuples(st.just("answer"), NUMBER),
    st.tuples(st.just("answer"), NUMBER),
    st.tuples(st.just("answer"), NUMBER),
    st.tuples(st.just("commit"), NUMBER),
    st.tuples(st.just("half"), NUMBER),
    st.tuples(st.just("rank"), NUMBER),
    st.tuples(st.just("exception"), NUMBER),
    st.tuples(st.just("return"), st.just(0)),
    st.tuples(st.just("host"), NUMBER),
    st.tuples(st.just("world"), NUMBER),
    st.tuples(st.just("notice"), NUMBER),
    st.tuples(st.just("time"), NUMBER),
    st.tuples(st.just("offer"), NUMBER),
    st.tuples(st.just("refuse"), NUMBER),
)
LIMITS = st.builds(
    Limits,
    min_np=st.integers(1, 3),
    max_np=st.one_of(st.none(), st.integers(3, 8)),
    min_hosts=st.integers(1, 2),
    max_hosts=st.one_of(st.none(), st.integers(2, 3)),
    rank_restarts=st.integers(0, 3),
    exclude_hosts=st.booleans(),
    cooldown=st.sampled_from([None, (1.0, 2.0)]),
    hang_seconds=st.one_of(st.none(), st.just(20.0)),
    reset_limit=st.one_of(st.none(), st.just(4)),
)


def do(job, what, number, commit):
    """Let one thing happen."""
    if what == "answer":
        job.answer(number)
    elif what == "commit":
        job.commit(commit)
    elif what == "half":
        job.commit_on([host for index, host in enumerate(HOSTS) if number >> index & 1], commit)
    elif what in ("rank", "exception") and job.ranks:
        code = None if what == "rank" else 1
        job.kill_rank(sorted(job.ranks)[number % len(job.ranks)], code=code, words=f"E{number}: x")
    elif what == "return" and number == 0 and len(job.told) > 1 and job.ranks:
        job.give_back(sorted(job.ranks)[-1])
    elif what == "host":
        job.lose_host(HOSTS[number % 4])
    elif what == "world" and job.worlds:
        job.lose_world(sorted(job.worlds)[number % len(job.worlds)])
    elif what == "notice":
        job.tell("notice", host=HOSTS[number % 4], why="notice")
    elif what == "time":
        job.now += number / 10
        job.tell("tick")
    elif what == "offer":
        job.offer(
            **{host: 1 + (number + index) % 2 for index, host in enumerate(HOSTS) if number >> index & 1}
        )
    elif what == "refuse":
        job.tell("host_refused", host=HOSTS[number % 4], why="other code")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(LIMITS, st.lists(STEPS, max_size=60), st.sampled_from([{}, {"h1": "m", "h3": "m"}]))
def test_whatever_happens_the_job_trains_again_or_ends(limits, steps, machines):
    job = Simulation(limits=limits, machines=machines)
    job.offer(h1=2, h2=2)
    for index, (what, number) in enumerate(steps):
        if job.finished:
            break
        commit = max((one for held in job.commits.values() for one in held), default=0) + 1 + index
        do(job, what, number, commit)
    if not job.finished:
        # From now on nothing fails any more, and enough hosts are there.
        job.excluded.clear()
        job.offer()
        job.settle(seconds=60)
        job.offer(**{f"n{index}": 2 for index in range(4)})
        phase = job.settle(seconds=10_000)
        assert job.finished or phase is Phase.RUNNING, "\n".join(job.log[-60:])
    if not job.finished and not job.state.returned:
        size = len(job.state.order)
        assert size >= limits.min_np, job.log[-20:]
        assert {rank.generation for rank in job.ranks.values()} == {max(job.told)}, "\n".join(job.log[-60:])
    if not job.finished:
        job.tell("stop_requested", exit_code=130, whose="ringleader", reason="stopped")
        job.settle()
    assert job.finished and job.state.over, "\n".join(job.log[-60:])


ENDS = st.one_of(
    st.tuples(st.sampled_from(["answer", "notice", "time", "offer", "refuse", "world"]), NUMBER),
    st.tuples(st.just("finish"), NUMBER),
    st.tuples(st.just("finish"), NUMBER),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), st.lists(ENDS, max_size=60), st.sampled_from([{"h1": 2}, {"h1": 2, "h2": 1}]))
def test_ranks_past_their_last_commit_end_the_job_with_0_whatever_hosts_do(min_np, steps, hosts):
    """Hosts leave, are offered or refused, worlds end: nobody takes a rank's place, each returns once."""
    job = Simulation(limits=Limits(min_np=min(min_np, sum(hosts.values()))))
    job.offer(**hosts)
    assert job.settle() is Phase.RUNNING
    ranks = list(job.ranks)
    for number in ranks:
        job.ranks[number].past = True
    for what, number in [*steps, *(("finish", number) for number in ranks * 3)]:
        if job.finished:
            break
        if what == "finish":
            job.finish_step(ranks[number % len(ranks)])
        else:
            do(job, what, number, 1)
    job.settle(commits=False, seconds=job.state.limits.stop_seconds + 1)  # ranks of a next world are ending
    assert job.finished and job.state.result.exit_code == 0, "\n".join(job.log[-60:])
    assert job.state.last_generation == 1 and not job.returning
