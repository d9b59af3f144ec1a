"""A fake of Slurm's sbatch, squeue, scontrol, scancel, sinfo and sacct for fast tests.

It follows what Slurm 22.05.8 (Debian 12) prints; `test_contract.py` puts both to the same tests. It has one
user, partitions ``main`` and ``small``, nodes n1 and n2; jobs run on this machine, at most one on a node.

It has no accounting; `test_accounting.py` has the real one. Never compared with a real Slurm, because it
needs several users: permission denied. Left out: job arrays, dependencies, reservations, expected starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOME = Path(os.environ["FAKE_SLURM"])
NODES = tuple(os.environ.get("FAKE_SLURM_NODES", "n1,n2").split(","))
PARTITIONS = {"main": (2, 60), "small": (1, 5)}
"""Name → nodes, minutes."""
UNUSABLE = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
TICK, LONGEST, BEGAN = 0.02, 120.0, time.time()
KILL_SECONDS = 2.0


@contextlib.contextmanager
def state() -> Iterator[dict[str, Any]]:
    """Jobs and nodes, read and written by one program at a time."""
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = HOME / "state.json"
        found = json.loads(path.read_text()) if path.exists() else {"jobs": {}, "drained": {}}
        yield found
        path.write_text(json.dumps(found))


def fail(*lines: str, code: int = 1) -> int:
    print(*lines, sep="\n", file=sys.stderr)
    return code


def down(program: str, action: str) -> int:
    """Say that a daemon does not answer, if so."""
    path = HOME / "down"
    if not path.exists():
        return 0
    if path.read_text() == "controller":
        return fail(f"{action}: Unable to contact slurm controller (connect failure)")
    what = 'Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)'
    return fail(
        f"{program}: error: If munged is up, restart with --num-threads=10",
        f"{program}: error: Munge encode failed: {what}",
        f"{action}: Protocol authentication error",
    )


def listed(nodes: list[str]) -> str:
    return "n[1-2]" if nodes == ["n1", "n2"] else ",".join(nodes)


def minutes(text: str) -> float:
    parts = [float(part) for part in text.split(":")]
    return parts[0] * 60 + parts[1] + parts[2] / 60 if len(parts) == 3 else parts[0] + sum(parts[1:]) / 60


def sbatch(words: list[str]) -> int:
    script = sys.stdin.read()
    lines = []
    for line in script.splitlines():
        if not line.startswith("#") and line.strip():
            break
        if line.startswith("#SBATCH "):
            lines.append(line.removeprefix("#SBATCH "))
    options: dict[str, str] = {}
    variables = {"partition": os.environ.get("SBATCH_PARTITION", "")}
    for word in (*(shlex.split(line)[0] for line in lines), *words):
        name, _, value = word.removeprefix("--").partition("=")
        options[name] = value
    options = {name: value for name, value in variables.items() if value} | options
    partition = options.get("partition", "main")
    if code := down("sbatch", "sbatch: error: Batch job submission failed"):
        return code
    if partition not in PARTITIONS:
        return fail(
            f"sbatch: error: invalid partition specified: {partition}",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        )
    most, limit = PARTITIONS[partition]
    nodes = int(options.get("nodes", "1").partition("-")[0])
    asked = minutes(options["time"]) if "time" in options else 10.0
    reason = "PartitionTimeLimit" if asked > limit else "PartitionNodeLimit" if nodes > most else "None"
    reason = "PartitionConfig" if nodes > len(NODES) else reason
    with state() as found:
        number = str(len(found["jobs"]) + 1)
        found["jobs"][number] = {
            "id": number,
            "name": options.get("job-name", "sbatch"),
            "state": "PENDING",
            "reason": reason,
            "partition": partition,
            "nodes": nodes,
            "on": [],
            "limit": asked,
            "began": 0.0,
            "code": 0,
            "restarts": 0,
            "cancelled": False,
            "requeued": False,
            "log": str(Path.cwd() / f"slurm-{number}.out"),
            "signal": options.get("signal", ""),
            "comment": options.get("comment", ""),
            "script": script,
        }
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([sys.executable, __file__, "run", number], start_new_session=True, **streams)
    print(number)
    return 0


def run(number: str) -> None:
    """Be the daemons of one job: wait for nodes, run the script, keep the time, and do so again if asked."""
    while HOME.exists() and time.time() < BEGAN + LONGEST:
        with state() as found:
            job = found["jobs"][number]
            busy = {node for other in found["jobs"].values() for node in other["on"]}
            free = [node for node in NODES if node not in busy | found["drained"].keys()]
            if job["cancelled"]:
                job["state"] = "CANCELLED"
                return
            if job["reason"].startswith("Partition"):
                pass
            elif len(free) >= job["nodes"]:
                job |= {
                    "state": "RUNNING",
                    "reason": "None",
                    "on": free[: job["nodes"]],
                    "began": time.time(),
                }
            elif len(NODES) - len(found["drained"]) < job["nodes"]:
                job["reason"] = UNUSABLE
            else:
                job["reason"] = "Resources"
        if job["state"] == "RUNNING" and not _once(job):
            return
        time.sleep(TICK)


def _once(job: dict[str, Any]) -> bool:
    """Run the script of a job; return whether it is requeued."""
    names = listed(job["on"])
    environ = os.environ | {"SLURM_JOB_ID": job["id"], "SLURM_JOB_NODELIST": names}
    environ |= {"SLURM_TASKS_PER_NODE": f"1(x{len(job['on'])})", "SLURM_RESTART_COUNT": str(job["restarts"])}
    with Path(job["log"]).open("ab") as log:
        process = subprocess.Popen(
            ["bash", "-c", job["script"]],
            env=environ,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    notice = re.fullmatch(r"B:USR1@(\d+)", job["signal"])
    # slurmctld looks at times now and then: never just when a job begins.
    due = job["limit"] * 60 - int(notice[1]) if notice else float("inf")
    notice_at = job["began"] + max(1.0, due)
    end_at = job["began"] + job["limit"] * 60
    state_then, killed_at = "", float("inf")
    while process.poll() is None:
        now = time.time()
        with state() as found:
            job = found["jobs"][job["id"]]
        if now >= notice_at:
            notice_at = float("inf")
            process.send_signal(signal.SIGUSR1)
        if not state_then and (job["cancelled"] or job["requeued"] or now >= end_at):
            state_then = "CANCELLED" if job["cancelled"] else "REQUEUED" if job["requeued"] else "TIMEOUT"
            process.terminate()  # with proctrack/cgroup, others than the script get SIGKILL only
            killed_at = now + KILL_SECONDS
        if now >= killed_at:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(TICK)
    code = process.returncode
    with state() as found:
        job = found["jobs"][job["id"]]
        if job["requeued"] and not job["cancelled"]:
            job |= {"state": "PENDING", "requeued": False, "restarts": job["restarts"] + 1, "on": []}
            return True
        ended = (
            state_then if state_then in ("CANCELLED", "TIMEOUT") else "COMPLETED" if code == 0 else "FAILED"
        )
        job |= {"state": ended, "on": [], "code": -code if code < 0 else code << 8, "ended": time.time()}
        if state_then == "CANCELLED":
            job["code"] = 0
    return False


def squeue(words: list[str]) -> int:
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    if code := down("squeue", "slurm_load_jobs error"):
        return code
    with state() as found:
        jobs = list(found["jobs"].values())
    if "jobs" in options:
        jobs = [job for job in jobs if job["id"] in options["jobs"].split(",")]
        if not jobs:
            return fail("slurm_load_jobs error: Invalid job id specified")
    for job in jobs:
        names = (
            ",".join(job["on"]) if len(job["on"]) < 2 else ",".join(NODES) if "n1" not in NODES else "n[1-2]"
        )
        seconds = int(time.time() - job["began"]) if job["on"] else 0
        values = {
            "JobArrayID": job["id"],
            "State": job["state"],
            "Reason": job["reason"],
            "NodeList": names,
            "NumNodes": str(job["nodes"]),
            "exit_code": str(job["code"]),
            "RestartCnt": str(job["restarts"]),
            "TimeUsed": f"{seconds // 60}:{seconds % 60:02}",
            "TimeLimit": f"{int(job['limit'])}:00",
            "StartTime": "N/A",
            "Partition": job["partition"],
            "UserName": "root",
            "Name": job["name"],
            "STDOUT": job["log"],
        }
        fields = [field.partition(":")[::2] for field in options["Format"].split(",")]
        print("".join(values[name] + end for name, end in fields))
    return 0


def scancel(words: list[str]) -> int:
    if code := down("scancel", f"scancel: error: Kill job error on job id {words[0]}"):
        return code
    with state() as found:
        for number in words:
            if number in found["jobs"]:  # about others, scancel says nothing
                found["jobs"][number]["cancelled"] = True
    return 0


def scontrol(words: list[str]) -> int:
    with state() as found:
        if words[0] == "requeue":
            found["jobs"][words[1]]["requeued"] = True
        elif words[0] == "update":
            options = dict(word.partition("=")[::2] for word in words[1:])
            if options["State"] == "DRAIN":
                found["drained"][options["NodeName"]] = options["Reason"]
            else:
                found["drained"].pop(options["NodeName"], None)
        elif words[0] == "show":
            job = found["jobs"][words[-1]]
            print(f"JobId={job['id']} JobState={job['state']} Comment={job['comment']}")
    return 0


def sinfo(words: list[str]) -> int:
    form = next(word.partition("=")[2] for word in words if word.startswith("--format="))
    if "--list-reasons" in words:
        with state() as found:
            for node, reason in found["drained"].items():
                print(form.replace("%n", node).replace("%E", reason))
    else:
        print("\n".join(PARTITIONS))
    return 0


def sacct(words: list[str]) -> int:
    return fail("Slurm accounting storage is disabled")


PROGRAMS = {one.__name__: one for one in (sbatch, squeue, scancel, scontrol, sinfo, sacct)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2])
    else:
        sys.exit(PROGRAMS[sys.argv[1]](sys.argv[2:]))
