"""Guides whose commands are executed, and whose sentences and numbers are those of stored runs and tables."""

import json
import os
import re
import shlex
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import pytest
from tests.commands import finished
from tests.docs.pages import ROOT, blocks, ringleader, text_of
from tests.unit.fabric.transport_evidence import between, host

from ringleader.bench import run_file
from ringleader.bench.nccl_tests import text_table
from ringleader.cli.bench import pair_text, train
from ringleader.errors import RefusedError
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import lines
from ringleader.images import builders
from ringleader.images.attestation import PROVENANCE, statement
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.report.text import runs_text
from ringleader.scaling import Run

# --- images -----------------------------------------------------------------------------------------------

GUIDE = "docs/guides/images.md"
ELSEWHERE = (
    "ringleader image lock",  # asks pip's index
    "ringleader image build train.toml --tag",  # pulls and builds
    "ringleader run --on kubernetes",
    "buildah ",
    "docker ",
)
"""What needs a registry, an index or a cluster. The real build is `make test-images`."""
REFUSED = ("ringleader image solve torch=2.15 gpu=p100",)


def test_the_guide_works_as_it_stands(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    recipes = [body for _, body in blocks(GUIDE, "toml")]
    assert recipes[0].startswith('name = "train"')
    ran, printed = [], ""
    made = statement("example.org/team/train:1", "sha256:" + "cd" * 32, PROVENANCE, {})
    (tmp_path / "provenance.json").write_text(json.dumps(made))
    (tmp_path / "sbom.json").write_text('{"bomFormat": "CycloneDX"}')
    for language, body in blocks(GUIDE):
        body = body if language == "toml" else body.replace("sha256:…", f"sha256:{'ab' * 32}")
        if language == "toml" and body == recipes[0]:
            (tmp_path / "train.toml").write_text(body)
        elif language == "":
            shown = [line.strip() for line in body.splitlines() if line.strip() != "…"]
            assert all(line in printed for line in shown), printed
        elif language == "console":
            for line in body.splitlines():
                command = line.removeprefix("$ ")
                if command.startswith(ELSEWHERE) or (" build " in command and not _builder()):
                    continue
                printed = _executed(command, tmp_path, environ)
                ran.append(command)
    assert len(ran) >= 18
    assert (tmp_path / "context/Dockerfile").read_text().startswith("# Made by `ringleader image render`")


def _executed(command: str, place: Path, environ: dict[str, str]) -> str:
    words, _, target = command.partition(" > ")
    done = finished(shlex.split(words), cwd=place, env=environ, timeout=60)
    assert done.returncode == (2 if command in REFUSED else 0), f"{command}\n{done.stderr}"
    if target:
        (place / target).write_text(done.stdout)
    return done.stdout + done.stderr


def _builder() -> bool:
    """Tell whether a builder answers: also a dry run names the one that would be used."""
    try:
        builders.find(environ=os.environ)
    except RefusedError:
        return False
    return True


# --- tf_cnn_benchmarks ------------------------------------------------------------------------------------

TF_GUIDE = "docs/guides/tf-cnn-benchmarks.md"
RINGLEADER = [sys.executable, "-m", "ringleader"]


def test_the_manifest_of_2019_is_converted(tmp_path: Path) -> None:
    manifest = tmp_path / "tensorflow-benchmarks.yaml"
    manifest.write_text(blocks(TF_GUIDE, "yaml")[0][1])
    done = finished([*RINGLEADER, "render", "mpijob", "--convert", str(manifest)], timeout=60, check=True)
    assert "apiVersion: kubeflow.org/v2beta1" in done.stdout
    assert "tf_cnn_benchmarks.py" in done.stdout


@pytest.mark.long
def test_the_script_trains(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    script = tmp_path / "train.py"
    script.write_text(blocks(TF_GUIDE, "python")[0][1] + 'print("trained", flush=True)\n')
    done = finished(
        [*RINGLEADER, "run", "--as-horovod", "--oversubscribe", "-n", "2", "--", sys.executable, str(script)],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("trained") == 2


# --- how close to linear ----------------------------------------------------------------------------------

STORED = ROOT / "tests/golden/guide"
PAGES = ("how-close-to-linear.md", "how-close-to-linear.zh-CN.md")
ARMS = ("uncoupled", "in step", "ringleader")


def printed(run: object) -> str:
    """Return what the command that measured a run printed at its end."""
    if isinstance(run, PointToPointRun):
        return pair_text.as_text(run)
    if isinstance(run, CollectiveRun):
        return text_table.as_text(run) + text_table.comparison(run)
    if isinstance(run, TrainingRun):
        return train.as_text(run)
    assert isinstance(run, Run)
    return runs_text([run])


def shown() -> list[tuple[list[str], str]]:
    """Return (words, output) of each command whose output the guide shows."""
    found, last = [], []
    for language, body in blocks(f"docs/guides/{PAGES[0]}"):
        if language == "console":
            last = shlex.split(body.splitlines()[-1][2:])[1:]
        elif not language and last:
            found.append((last, body))
            last = []
    return found


def test_outputs_shown_are_those_of_the_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED, "runs")
    names = []
    for words, output in shown():
        if words[0] in ("report", "predict"):
            code, text = ringleader(words, capsys)
            assert code == 0
        elif "--name" in words:
            text = printed(run_file.read_any(STORED / words[words.index("--name") + 1]))
        else:  # doctor: what it finds depends on the machine
            continue
        at = 0
        for part in output.split("…\n"):
            assert f"\n{part}" in f"\n{text[at:]}", (
                f"ringleader {' '.join(words)} does not print, here,\n{part}"
            )
            at = text.index(part, at) + len(part)
        names.append(words[0])
    assert names == ["bench", "bench", "bench", "scale", "predict", "report"]


@pytest.mark.parametrize("page", PAGES)
def test_numbers_in_the_text_are_those_of_the_runs(page: str) -> None:
    text = text_of(f"docs/guides/{page}")
    training, collective = (run_file.read_any(STORED / name) for name in ("train", "allreduce"))
    assert isinstance(training, TrainingRun) and isinstance(collective, CollectiveRun)
    arms = {arm.name: arm.rates for arm in (*training.arms, training.alone) if arm is not None}
    levels = [tuple(2 * rate for rate in arms["alone"]), *(arms[name] for name in ARMS)]
    for (before, after), name in zip(pairwise(levels), ARMS, strict=True):
        left = geometric_mean(y / x for x, y in zip(before, after, strict=True))
        assert re.search(rf"`{name}` \| {100 * (1 - left):.0f} ?% \|", text), name
    assert f"{training.gradient_bytes / 1e6:.1f} MB" in text
    at_one_mib = {
        series.implementation: result.in_place.seconds * 1e3
        for series in collective.series
        for result in series.results
        if result.size == 1 << 20 and result.in_place
    }
    assert f"{at_one_mib['ringleader']:.1f} ms" in text and f"{at_one_mib['gloo']:.1f}" in text


# --- is my job on RDMA ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["is-my-job-on-rdma.md", "is-my-job-on-rdma.zh-CN.md"])
def test_lines_are_written_as_we_print_them(page: str) -> None:
    text = text_of(f"docs/guides/{page}")
    printed = [
        *lines(judged_transport([host({"eth0": 258}, name="h1", mpi=between(256)), host(name="h2")])),
        *lines(judged_transport([host({"ib": 0, "eth0": 900}, mpi=between(256, 512)), host(name="h2")])),
        *lines(judged_transport([host({"ib0": 260, "ib": 262}, mpi=between(256)), host(name="h2")])),
    ]
    assert f"ringleader: {printed[0]}\n" in text
    for part in ("of which the engine's", "others used it as well", "although there is mlx5_0 port 1"):
        assert part in text and any(part in line for line in printed), part
    sockets = "TCP over InfiniBand (IPoIB)"
    assert sockets in text and any(sockets in line for line in printed)
