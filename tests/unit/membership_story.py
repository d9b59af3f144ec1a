"""The language of stories (``tests.stories``) about the members of an elastic job.

A story may begin with ``job``, hosts (``h1=2``) and limits: the job trains. ``new`` stands for one of which
no host is known yet. After the happenings of a line everything answers and time passes until nothing changes,
unless the last happening is ``look``.
"""

from collections.abc import Callable
from typing import Any

from tests.stories import check, fields, happenings_and_facts
from tests.unit.elastic_simulation import Phase, Simulation, phase_of

from ringleader.launch.elastic.membership_state import Limits
from ringleader.launch.elastic_history import line_of


def play(lines: list[str]) -> None:
    """Let happen what the lines say, and look."""
    first, *words = lines[0].split()
    is_told = first in ("job", "new")
    story = Story(words if is_told else [], trains=first != "new")
    for line in lines[is_told:]:
        story.play(line)


class Story:
    """A simulation in which a story is told."""

    def __init__(self, words: list[str], *, trains: bool) -> None:
        given = fields(words)
        hosts = {name: given.pop(name) for name in list(given) if name[0] == "h" and name[1:].isdigit()}
        self.job = Simulation(limits=Limits(**given))
        if trains:
            self.job.offer(**(hosts or {"h1": 2, "h2": 2}))
            assert self.job.settle() is Phase.RUNNING, self.job.log

    def play(self, line: str) -> None:
        """One line."""
        happenings, facts = happenings_and_facts(line)
        for verb, rest in happenings:
            self.happen(verb, rest)
        if happenings[-1][0] != "look":
            self.job.settle(commits=happenings[-1][0] != "without-commits")
        check(line, facts, self.see)

    def happen(self, verb: str, rest: str) -> None:
        """One thing happens."""
        job, words = self.job, rest.split()
        numbers = [int(word) for word in words if word.isdigit()]
        happenings: dict[str, Callable[[], object]] = {
            "look": lambda: None,
            "settle": lambda: None,
            "without-commits": lambda: None,
            "offer": lambda: job.offer(**fields(words)),
            "kill": lambda: job.kill_rank(numbers[0]),
            "fails": lambda: job.kill_rank(numbers[0], code=1, words=" ".join(words[1:])),
            "youngest-dies": lambda: job.kill_rank(max(job.ranks)),
            "youngest-fails": lambda: job.kill_rank(max(job.ranks), code=1, words=rest),
            "ends": lambda: job.tell("rank_ended", incarnation=numbers[0], **fields(words[1:])),
            "commit": lambda: job.commit(numbers[0]),
            "commit-on": lambda: job.commit_on([words[0]], int(words[1])),
            "lose": lambda: job.lose_host(rest),
            "lose-world": lambda: job.lose_world(numbers[0] if numbers else max(job.worlds)),
            "notice": lambda: job.tell("notice", host=rest, why="SIGTERM"),
            "refuse": lambda: job.tell("host_refused", host=rest, why="another torch"),
            "unheard": job.pending.clear,
            "answer": lambda: job.answer(0),
            "answers": self.answers,
            "after": lambda: (setattr(job, "now", job.now + float(rest)), job.tell("tick")),
            "past": self.past,
            "returns": lambda: [job.give_back(number) for number in numbers],
            "steps": lambda: [job.finish_step(number) for number in numbers],
            "detached": lambda: [self.detach(number) for number in numbers],
            "waiting": lambda: job.tell("rank_waiting", incarnation=numbers[0], after=1),
            "stop": lambda: job.tell("stop_requested", exit_code=143, whose="ringleader", reason="SIGTERM"),
        }
        happenings[verb]()

    def answers(self) -> None:
        """All that is on its way arrives; no time passes."""
        while self.job.pending:
            self.job.answer(0)

    def past(self) -> None:
        """All ranks have made their last commit."""
        for rank in self.job.ranks.values():
            rank.past = True

    def detach(self, number: int) -> None:
        """A rank has left its generation."""
        self.job.ranks[number].generation = 0
        self.job.tell("rank_detached", incarnation=number, generation=1)

    def see(self, name: str) -> Any:
        """What a fact's name stands for."""
        job, state = self.job, self.job.state
        last = job.told[max(job.told)] if job.told else None
        lines = [text for event in job.events if (text := line_of(event))]
        seen: dict[str, Callable[[], object]] = {
            "phase": lambda: phase_of(state),
            "ranks": lambda: " ".join(str(member.incarnation) for member in last.members),
            "members": lambda: len(last.members),
            "world": lambda: last.world,
            "worlds": lambda: " ".join(map(str, sorted(job.worlds))),
            "planned": lambda: bool(state.next_world),
            "restore": lambda: last.restore,
            "hosts": lambda: " ".join(last.hosts),
            "there": lambda: " ".join(sorted(job.hosts)),
            "processes": lambda: " ".join(map(str, sorted(job.ranks))),
            "excluded": lambda: " ".join(job.excluded),
            "why": lambda: job.events[-1].why,
            "trouble": lambda: state.trouble.why,
            "kinds": lambda: " ".join(event.kind for event in job.events),
            "sizes": lambda: " ".join(str(one.size) for one in job.events if one.kind == "generation"),
            "lines": lambda: "\n".join(lines),
            "log": lambda: "\n".join(job.log),
            "finished": lambda: job.finished,
            "code": lambda: state.result and state.result.exit_code,
            "whose": lambda: state.result.whose,
            "reason": lambda: state.result.reason,
            "generations": lambda: len(job.told),
            "commits": lambda: " ".join(map(str, state.hosts["h1"].commits)),
        }
        return seen[name]()
