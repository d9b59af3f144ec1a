"""What the ranks of an active test have answered, as values. Pure: what cannot be read is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.fabric.active.measurements import (
    ActiveResults,
    GpuCopy,
    PairLatency,
    PairRate,
    ProgramNote,
    RankSpeed,
    Silence,
)
from ringleader.fabric.facts import from_document


class Answers:
    """Gathers answers of several jobs. Ranks of a job count host by host."""

    def __init__(self) -> None:
        """Nothing was answered yet."""
        self._hosts: Sequence[str] = ()
        self._slots, self._pass = 1, 1
        self._rates: list[PairRate] = []
        self._latencies: list[PairLatency] = []
        self._silences: list[Silence] = []
        self._ranks: dict[int, RankSpeed] = {}
        self._notes: list[ProgramNote] = []
        self._about: dict[str, Mapping[str, Any]] = {}

    @property
    def heard(self) -> bool:
        """A rank has measured something."""
        return bool(self._rates or self._latencies or self._silences or self._ranks)

    def begin(self, hosts: Sequence[str], slots: int, number: int) -> None:
        """A job begins: ``slots`` ranks on each of these hosts; ``number``: which pass it is."""
        self._hosts, self._slots, self._pass = hosts, slots, number

    def take(self, rank: int, name: str, value: Any) -> None:
        """Take one answer; one that cannot be read is left out."""
        take = {
            "host": self._take_host,
            "rate": self._take_rate,
            "latency": self._take_latency,
            "silence": self._take_silence,
            "speed": self._take_speed,
            "program": self._take_program,
        }.get(name)
        if take is not None and isinstance(value, Mapping):
            try:
                take(rank, value)
            except (KeyError, ValueError, TypeError, IndexError):
                return

    def _host(self, rank: Any) -> str:
        return self._hosts[int(rank) // self._slots]

    def _take_host(self, rank: int, value: Mapping[str, Any]) -> None:
        self._about[self._host(rank)] = value

    def _take_rate(self, rank: int, value: Mapping[str, Any]) -> None:
        names = {"source": self._host(rank), "target": self._host(value["target"])}
        self._rates.append(from_document(PairRate, {**value, **names, "pass_number": self._pass}))

    def _take_latency(self, rank: int, value: Mapping[str, Any]) -> None:
        names = {"first": self._host(rank), "second": self._host(value["partner"])}
        self._latencies.append(from_document(PairLatency, {**value, **names}))

    def _take_silence(self, rank: int, value: Mapping[str, Any]) -> None:
        names = {"host": self._host(rank), "partner": self._host(value["partner"])}
        self._silences.append(from_document(Silence, {**value, **names}))

    def _take_speed(self, rank: int, value: Mapping[str, Any]) -> None:
        gpus = [from_document(GpuCopy, one) for one in value.get("gpus", ())]
        speed = from_document(RankSpeed, {**value, "gpus": (), "rank": rank, "host": self._host(rank)})
        self._ranks[rank] = RankSpeed(**{**vars(speed), "gpus": tuple(gpus)})

    def _take_program(self, rank: int, value: Mapping[str, Any]) -> None:
        """A client's number, or an error of either side."""
        mine, other = self._host(rank), self._host(value.get("server", value.get("client")))
        client, server = (mine, other) if "server" in value else (other, mine)
        if value.get("error"):
            note = ProgramNote(program=value["program"], reason=str(value["error"]), hosts=(client, server))
            self._notes.append(note)
        elif "rate" in value:
            limits = {"lowest": value["rate"], "highest": value["rate"], "pass_number": self._pass}
            self._rates.append(
                from_document(PairRate, {**value, **limits, "source": client, "target": server})
            )
        else:
            self._latencies.append(from_document(PairLatency, {**value, "first": client, "second": server}))

    def programs(self) -> dict[str, tuple[str, ...]]:
        """Return host → programs of others that it can run."""
        return {host: tuple(about.get("programs", ())) for host, about in self._about.items()}

    def program_reasons(self) -> dict[str, tuple[str, ...]]:
        """Return why programs of others cannot run → hosts of which this is said."""
        reasons: dict[str, tuple[str, ...]] = {}
        for host, about in self._about.items():
            if why := about.get("program_note"):
                reasons[str(why)] = (*reasons.get(str(why), ()), host)
        return reasons

    def results(
        self, hosts: tuple[str, ...], *, notes: tuple[ProgramNote, ...], passes: int, mpi: str, failure: str
    ) -> ActiveResults:
        """Return all that was answered so far."""
        machines = {about.get("machine") for about in self._about.values()}
        return ActiveResults(
            hosts=hosts,
            pair_rates=tuple(self._rates),
            latencies=tuple(self._latencies),
            silences=tuple(self._silences),
            ranks=tuple(self._ranks[rank] for rank in sorted(self._ranks)),
            notes=(*notes, *self._notes),
            passes=passes,
            mpi=mpi,
            one_machine=len(machines) == 1 and len(self._about) == len(hosts) > 1 and machines != {""},
            failure=failure,
        )
