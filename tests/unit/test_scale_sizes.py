"""Sizes of a scaling run: their hosts, what their words become, and batches that they cannot share."""

from collections.abc import Iterable

from tests import transcripts

from ringleader.bench.scale.sizes import (
    batch_faults,
    command_of,
    default_grid,
    faults_of_hosts,
    host_words,
    hosts_for,
    parse_baseline,
    parse_grid,
    placeholders,
    with_baseline,
)
from ringleader.errors import Fault, RequestError, refuse
from ringleader.plan.job import Host


def hosts(text: str) -> tuple[Host, ...]:
    pairs = [one.partition(":") for one in text.split(",") if text != "-"]
    return tuple(Host(name=name, slots=int(slots) if slots else None) for name, _, slots in pairs)


def placed(size: str, among: str, *more: str) -> Iterable[object]:
    found = hosts_for(parse_grid(size)[0], hosts(among), oversubscribe="oversubscribe" in more)
    return ["too few"] if found is None else host_words(found) or ["this machine"]


def fitting(grid: str, among: str, cores: str, *more: str) -> Iterable[object]:
    is_crowded = "oversubscribe" in more
    sizes = parse_grid(grid)
    return fine(faults_of_hosts(sizes, hosts(among), cores=int(cores), oversubscribe=is_crowded))


def shared(word: str, batch: str, *more: str) -> Iterable[object]:
    global_batch = None if batch == "-" else int(batch)
    grid = parse_grid("1x1,1x2,2x4")
    return fine(batch_faults((word,), grid, strong="strong" in more, global_batch=global_batch))


def fine(faults: Iterable[Fault]) -> Iterable[object]:
    refuse(faults)
    return ["no fault"]


TOLD = {
    "grid": lambda text, base="1x1": with_baseline(parse_grid(text), parse_baseline(base)),
    "default": lambda among, cores: default_grid(hosts(among), int(cores)),
    "words": lambda size, batch, *words: command_of(
        words, parse_grid(size)[0], None if batch == "-" else int(batch)
    ),
    "hosts": placed,
    "fit": fitting,
    "batch": shared,
}


def test_sizes() -> None:
    def call(what: str, *words: str) -> tuple[int, str, str]:
        try:
            return 0, " ".join(map(str, TOLD[what](*words))) + "\n", ""
        except RequestError as error:
            return 2, "", f"{error}\n"

    transcripts.check("scale/sizes.txt", call)
    assert placeholders(("a{batch}", "{{ranks}}")) == {"batch"}
