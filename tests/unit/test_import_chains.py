"""How imports of one package hang together: no cycle of modules, and no long chain of them.

`lint-imports` checks layers and packages; here each module counts, by the imports that run with it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ringleader
from ringleader.bench.measurement_job import rank_program_job
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job

SOURCES = Path(ringleader.__file__).parent
LONGEST = 10


def module_of(path):
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(("ringleader", *parts)).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCES.rglob("*.py")}


def statements(body):
    """Yield what runs when a module is imported: not its functions, nor what is for types alone."""
    for one in body:
        if isinstance(one, ast.If):
            is_typing = "TYPE_CHECKING" in ast.unparse(one.test)
            yield from statements([*([] if is_typing else one.body), *one.orelse])
        elif isinstance(one, ast.Try | ast.With):
            handlers = [each for handler in getattr(one, "handlers", ()) for each in handler.body]
            yield from statements([*one.body, *handlers, *getattr(one, "orelse", ())])
        else:
            yield one


def names(one):
    """What a statement imports, the most exact name of each first."""
    if isinstance(one, ast.Import):
        return [each.name for each in one.names]
    if isinstance(one, ast.ImportFrom) and one.module:
        found = [f"{one.module}.{each.name}" for each in one.names]
        return [name if name in MODULES else one.module for name in found]
    return []


@cache
def imported(module):
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    found = {name for one in statements(tree.body) for name in names(one)}
    return frozenset(found & MODULES.keys() - {module})


@cache
def chain(module, package):
    """The longest chain of imports that begins at a module and stays in its package."""
    inside = [one for one in imported(module) if one == package or one.startswith(f"{package}.")]
    return (module, *max((chain(one, package) for one in inside), key=len, default=()))


@pytest.mark.parametrize("package", sorted(path.parent.name for path in SOURCES.glob("*/__init__.py")))
def test_no_chain_of_imports_in_a_package_is_long(package):
    whole = f"ringleader.{package}"
    modules = [one for one in MODULES if one == whole or one.startswith(f"{whole}.")]
    longest = max((chain(one, whole) for one in modules), key=len, default=())
    assert len(longest) <= LONGEST, "\n".join(longest)


def test_no_module_imports_itself_over_others():
    done = set()

    def visit(module, above):
        assert module not in above, " > ".join((*above[above.index(module) :], module))
        for one in imported(module) if module not in done else ():
            visit(one, (*above, module))
        done.add(module)

    for module in MODULES:
        visit(module, ())


START = re.compile(r'"-m", (?:"ringleader|"pip"|PROGRAM|program|\*program)')


def test_every_start_of_a_module_has_the_option():
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
def test_a_file_of_a_standard_name_beside_us_is_not_run(module, tmp_path):
    for name in ("json", "dataclasses", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('was-run').touch()")
    job = rank_program_job(Job(command=("x",), elastic=None), module, ElasticOptions(min_np=1), seconds=1.0)
    program = (sys.executable, *job.command[1:])
    subprocess.run(program, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert not (tmp_path / "was-run").exists()
