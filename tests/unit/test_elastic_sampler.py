"""ElasticSampler: whatever happens between two commits, an epoch visits every index once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ringleader.torch.elastic.sampler import ElasticSampler


class OneOf(ElasticSampler):
    """The sampler of one of several ranks."""

    def __init__(self, length, *, place, shuffle):
        self.place = place
        super().__init__(range(length), shuffle=shuffle, seed=3)

    def ranks(self):
        return self.place


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("batches"), st.integers(1, 6)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("failure"), st.integers(1, 5)),
        st.tuples(st.just("hosts"), st.integers(1, 5)),
    ),
    max_size=25,
)


@given(
    length=st.integers(1, 60),
    batch=st.integers(1, 4),
    size=st.integers(1, 5),
    shuffle=st.booleans(),
    events=EVENTS,
)
def test_every_index_is_visited_once_whatever_happens(length, batch, size, shuffle, events):
    def ranks_of(number, state):
        made = [OneOf(length, place=(number, rank), shuffle=shuffle) for rank in range(number)]
        for one in made:
            one.load_state_dict(state)
        return made

    start = {"epoch": 2, "processed_num": 0}
    samplers, committed = ranks_of(size, start), start
    since = []  # what each step visited since the last commit
    visited = Counter()
    streams = [iter(one) for one in samplers]

    def step():
        taken = [[index for _at, index in zip(range(batch), stream, strict=False)] for stream in streams]
        if not any(taken):
            return False
        before = samplers[0].processed_num
        for one in samplers:
            one.record_batch(0, batch)
        fresh = length - before
        order = [index for place in range(batch) for each in taken for index in each[place : place + 1]]
        since.append(order[:fresh])  # beyond are those that come twice, so that ranks have as many
        return True

    for kind, number in [*events, ("batches", 1000)]:
        if kind == "batches":
            for _ in range(number):
                if not step():
                    break
        elif kind == "commit":
            committed = samplers[0].state_dict()
            visited.update(index for one in since for index in one)
            since.clear()
        elif kind == "failure":  # back to the commit, with other ranks
            samplers = ranks_of(number, committed)
            since.clear()
            streams = [iter(one) for one in samplers]
        else:  # other hosts: on from where training is
            samplers = ranks_of(number, samplers[0].state_dict())
            streams = [iter(one) for one in samplers]
    visited.update(index for one in since for index in one)
    assert visited == Counter(range(length))


def test_what_is_left_is_divided_so_that_all_ranks_have_as_many():
    def left(length, size):
        return [list(OneOf(length, place=(size, rank), shuffle=False)) for rank in range(size)]

    assert left(10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert left(2, 5) == [[0], [1], [0], [1], [0]], "more ranks than indices"
    sampler = OneOf(5, place=(2, 1), shuffle=True)
    sampler.load_state_dict({"epoch": 0, "processed_num": 6})
    assert list(sampler) == [], "an epoch that is done"
    sampler.set_epoch(1)
    assert len(sampler) == len(list(sampler)) == 3
