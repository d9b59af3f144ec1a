"""Our own modules run without the working directory on ``sys.path``: what lies there is not ours."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringleader
from ringleader.bench.measurement_job import rank_program_job
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job

SOURCES = Path(ringleader.__file__).parent
START = re.compile(r'"-m", (?:"ringleader|"pip"|PROGRAM|program|\*program)')


def test_every_start_of_a_module_has_the_option() -> None:
    without = [
        f"{path.relative_to(SOURCES)}: {line.strip()}"
        for path in SOURCES.rglob("*.py")
        if "images/blocks" not in str(path) and path.name != "image_assembly.py"  # a build's own directory
        for line in path.read_text().splitlines()
        if START.search(line) and not re.search(r'"-[IP]", "-m"', line)
    ]
    assert without == []


@pytest.mark.process
@pytest.mark.parametrize("module", ["ringleader.doctor.import_probe", "ringleader.doctor.facts_program"])
def test_a_file_of_a_standard_name_beside_us_is_not_run(module: str, tmp_path: Path) -> None:
    for name in ("json", "dataclasses", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('was-run').touch()")
    job = rank_program_job(Job(command=("x",), elastic=None), module, ElasticOptions(min_np=1), seconds=1.0)
    program = (sys.executable, *job.command[1:])
    subprocess.run(program, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert not (tmp_path / "was-run").exists()
