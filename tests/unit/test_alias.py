"""``horovod.x.y`` is the module ``ringleader.x.y``: every way in, and what scripts do with such a module.

What changes the import system runs in its own interpreter; a package ``horovod`` that tests find on
their path stands for a real Horovod.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import finished

from ringleader.adapters.util import (
    env,
    extension_available,
    is_iterable,
    is_version_greater_equal_than,
    num_rank_is_power_2,
    split_list,
)
from ringleader.alias import AliasFinder, directory
from ringleader.alias.__main__ import main, search_path
from ringleader.runner.shell_commands import in_thread

pytestmark = pytest.mark.process

INSTALL = "import ringleader.alias; ringleader.alias.install()\n"
INJECT = Path(directory()).parents[1] / "agents" / "python_startup"


def python(*words: str, cwd: Path, path: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter in a directory, with ``path`` as its PYTHONPATH."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RINGLEADER_")}
    return finished(
        [sys.executable, *words], cwd=cwd, env=environ | {"PYTHONPATH": path} | variables, timeout=90
    )


def check(code: str, cwd: Path) -> str:
    """Run code with the alias installed; return what it printed."""
    done = python("-c", INSTALL + code, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A directory with another package called horovod."""
    package = tmp_path / "site" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("who = 'the real one'\n")
    (package / "torch.py").write_text("who = 'the real one'\n")
    return package.parent


# the finder, with its own names


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[AliasFinder]:
    """A package ``newname`` with modules that count how often they are loaded; ``oldname`` stands for it."""
    deep = tmp_path / "newname" / "sub"
    deep.mkdir(parents=True)
    (tmp_path / "newname" / "__init__.py").write_text("loads = []\n")
    (deep / "__init__.py").write_text("import newname; newname.loads.append('sub')\nfrom . import leaf\n")
    (deep / "leaf.py").write_text("import newname; newname.loads.append('leaf')\nclass Kept: pass\n")
    (tmp_path / "newname" / "broken.py").write_text("import nowhere_to_be_found\n")
    finder = AliasFinder({"oldname": "newname"})
    sys.path.insert(0, str(tmp_path))
    sys.meta_path.insert(0, finder)
    yield finder
    sys.meta_path.remove(finder)
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("oldname", "newname")]:
        del sys.modules[name]


def test_one_module_under_two_names_is_loaded_once(packages: AliasFinder) -> None:
    leaf = importlib.import_module("oldname.sub.leaf")
    import newname  # type: ignore[import-not-found]
    import newname.sub.leaf  # type: ignore[import-not-found]

    assert leaf is newname.sub.leaf is sys.modules["oldname.sub"].leaf
    assert sys.modules["oldname"] is newname
    assert newname.loads == ["sub", "leaf"]


def test_the_module_keeps_its_own_description(packages: AliasFinder) -> None:
    leaf = importlib.import_module("oldname.sub.leaf")
    assert leaf.__name__ == "newname.sub.leaf"
    assert leaf.__spec__ is not None and leaf.__spec__.name == "newname.sub.leaf"
    before = leaf.Kept
    assert importlib.reload(leaf) is leaf
    assert leaf.Kept is not before
    assert importlib.import_module("oldname.sub.leaf") is leaf


def test_other_names_are_none_of_its_business(packages: AliasFinder) -> None:
    assert packages.find_spec("oldnames") is None
    assert packages.find_spec("newname.oldname") is None


def test_what_is_missing_is_named(packages: AliasFinder) -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"'oldname\.sub\.gone'.*does not offer 'sub\.gone'"
    ) as caught:
        importlib.import_module("oldname.sub.gone")
    assert caught.value.name == "oldname.sub.gone"
    # What a module of the package itself lacks is told as it is.
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        importlib.import_module("oldname.broken")


def test_a_package_that_is_not_installed_is_named() -> None:
    finder = AliasFinder({"oldname": "newname_that_is_nowhere"})
    with pytest.raises(ModuleNotFoundError, match=r"newname_that_is_nowhere.*not installed"):
        finder.find_spec("oldname")


# what scripts do


def test_paths_that_scripts_import(tmp_path: Path) -> None:
    code = """
import sys, pickle, unittest.mock
import horovod, horovod.torch as hvd
import ringleader, ringleader.torch
from horovod.torch.mpi_ops import synchronize
from horovod.torch.functions import broadcast_object
from horovod.torch.compression import Compression
from horovod.torch.optimizer import DistributedOptimizer
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import _cache, env, gloo_built, mpi_built
from horovod.runner.util.threads import in_thread
assert horovod is ringleader and hvd is ringleader.torch
assert DistributedOptimizer is ringleader.torch.DistributedOptimizer
assert HorovodInternalError is hvd.HorovodInternalError
assert mpi_built() and not gloo_built()
with unittest.mock.patch("horovod.torch.mpi_ops.synchronize", 7):
    assert ringleader.torch.mpi_ops.synchronize == 7
assert ringleader.torch.mpi_ops.synchronize is synchronize
old = b"chorovod.common.exceptions\\nHorovodInternalError\\n."
assert pickle.loads(old) is HorovodInternalError
assert pickle.loads(pickle.dumps(Compression.fp16)) is Compression.fp16
try:
    import horovod.spark
except ImportError as error:
    print(error)
"""
    said = check(code, tmp_path)
    assert "'horovod.spark'" in said and "does not offer 'spark' yet" in said


def test_what_frameworks_share_has_the_name_that_scripts_import(tmp_path: Path) -> None:
    code = """
import pickle
from ringleader.common.exceptions import HorovodInternalError
import ringleader.common.util, ringleader.adapters.util, ringleader.adapters.exceptions
import horovod.common, horovod.common.process_sets as sets
assert HorovodInternalError is ringleader.adapters.exceptions.HorovodInternalError
assert ringleader.common is ringleader.adapters is horovod.common
assert ringleader.common.util is ringleader.adapters.util
assert sets is ringleader.adapters.process_sets
assert pickle.loads(pickle.dumps(HorovodInternalError)) is HorovodInternalError
try:
    import ringleader.common.nothing
except ImportError as error:
    print(error)
"""
    assert "ringleader.common.nothing" in check(code, tmp_path)


def test_nothing_is_loaded_before_a_script_asks(tmp_path: Path) -> None:
    shown = check(
        "import sys; print([name for name in sys.modules if 'horovod' in name or 'torch' in name])", tmp_path
    )
    assert shown.strip() == "[]"


def test_installing_again_changes_nothing(tmp_path: Path) -> None:
    code = "import sys; n = len(sys.meta_path); ringleader.alias.install(); print(len(sys.meta_path) - n)"
    assert check(code, tmp_path).strip() == "0"
    # Also when the alias is in use.
    assert check("import horovod; ringleader.alias.install()", tmp_path) == ""


# who wins


def test_an_installed_horovod_stays_unless_the_alias_is_asked_for(real: Path) -> None:
    ask = "import horovod; print(getattr(horovod, 'who', horovod.__name__))"
    assert python("-c", ask, cwd=real.parent, path=str(real)).stdout.strip() == "the real one"
    assert python("-c", INSTALL + ask, cwd=real.parent, path=str(real)).stdout.strip() == "ringleader"
    both = f"{directory()}:{real}"
    assert python("-c", ask, cwd=real.parent, path=both).stdout.strip() == "ringleader"


def test_too_late_is_said(real: Path) -> None:
    done = python("-c", "import horovod\n" + INSTALL, cwd=real.parent, path=str(real))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: horovod is loaded already, from ")


# through PYTHONPATH


def test_the_directory_for_other_launchers(tmp_path: Path) -> None:
    code = "import horovod as h, horovod.common.util as u; print(u.__name__, h.__file__)"
    done = python("-c", code, cwd=tmp_path, path=directory())
    assert done.returncode == 0, done.stderr
    name, file = done.stdout.strip().split(" ", 1)
    assert name == "ringleader.adapters.util" and file.endswith("ringleader/__init__.py")


def test_python_dash_m(tmp_path: Path) -> None:
    done = python("-m", "horovod", "--version", cwd=tmp_path, path=directory())
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "ringleader")
    done = python("-m", "horovod.spark", cwd=tmp_path, path=directory())
    assert done.returncode == 1 and "does not offer 'spark' yet" in done.stderr


# through the ranks' sitecustomize


def test_ranks_have_it_only_when_it_was_asked_for(real: Path) -> None:
    ask = "import horovod; print(getattr(horovod, 'who', horovod.__name__))"
    path = f"{INJECT}:{real}"
    for value, expected in (("", "the real one"), ("0", "the real one"), ("1", "ringleader")):
        done = python("-c", ask, cwd=real.parent, path=path, RINGLEADER_AS_HOROVOD=value)
        assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_ranks_load_nothing_for_it(tmp_path: Path) -> None:
    show = (
        "import sys; print(sorted(name for name in sys.modules if 'ringleader' in name or 'horovod' in name))"
    )
    plain = python("-c", show, cwd=tmp_path, path=str(INJECT))
    asked = python("-c", show, cwd=tmp_path, path=str(INJECT), RINGLEADER_AS_HOROVOD="1")
    assert plain.stdout == asked.stdout != ""


def test_an_interpreter_without_ringleader_is_named(real: Path) -> None:
    """Not even an installed Horovod is taken then: the job asked for another engine."""
    done = python(
        "-S", "-c", f"import sys; sys.path[:] = [{str(INJECT)!r}, {str(real)!r}, *sys.path]\n"
        "import sitecustomize, horovod.torch", cwd=real.parent, RINGLEADER_AS_HOROVOD="1",
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "--as-horovod" in last and sys.executable in last


# python -m ringleader.alias


@pytest.mark.parametrize("words", [[], ["-m"], ["--odd", "a.py"]])
def test_words_that_ask_for_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_search_path_has_the_directory_once_in_front() -> None:
    assert search_path("/o", "") == "/o"
    assert search_path("/o", "/a:/o::/b") == "/o:/a:/b"


SCRIPT = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import horovod.common.util as util
import neighbor

def name(_):
    return util.__name__

if __name__ == "__main__":
    print(name(0), sys.argv, neighbor.here)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(name, [0])))
    sys.exit(5)
"""


def test_a_script_runs_as_if_python_had_been_given_it(tmp_path: Path) -> None:
    scripts = tmp_path / "my scripts"
    scripts.mkdir()
    (scripts / "train.py").write_text(SCRIPT)
    (scripts / "neighbor.py").write_text("here = 'beside'\n")
    done = python("-m", "ringleader.alias", "my scripts/train.py", "-m", "a b", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout.splitlines() == [
        "ringleader.adapters.util ['my scripts/train.py', '-m', 'a b'] beside",
        "['ringleader.adapters.util']",
    ]


def test_a_module_runs_too(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import horovod, sys\nprint(horovod.__name__, __name__, sys.argv[1:])\n")
    done = python("-m", "ringleader.alias", "-m", "job", "-x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ringleader __main__ ['-x']\n")


def test_wrong_words(tmp_path: Path) -> None:
    done = python("-m", "ringleader.alias", "gone.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "ringleader: there is no script gone.py\n")
    done = python("-m", "ringleader.alias", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")
    done = python("-m", "ringleader.alias", "--path", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{directory()}\n")


# modules that exist for their paths


def test_environment_within_a_block() -> None:
    os.environ.pop("RINGLEADER_TEST_A", None)
    os.environ["RINGLEADER_TEST_B"] = "before"
    try:
        with env(RINGLEADER_TEST_A="1", RINGLEADER_TEST_B="2", RINGLEADER_TEST_C=None):
            assert os.environ["RINGLEADER_TEST_A"] == "1" and os.environ["RINGLEADER_TEST_B"] == "2"
            assert "RINGLEADER_TEST_C" not in os.environ
        assert "RINGLEADER_TEST_A" not in os.environ and os.environ["RINGLEADER_TEST_B"] == "before"
    finally:
        del os.environ["RINGLEADER_TEST_B"]


@pytest.mark.parametrize(
    ("version", "target", "later"),
    [
        ("2.13.0", "2.9.1", True),
        ("2.9.0", "2.9.0", True),
        ("2.9.0+cpu", "2.9.0", True),
        ("2.9", "2.9.1", False),
        ("2.9.0rc1", "2.9.0", False),
        ("2.9.0.dev1", "2.9.0", False),
        ("1.10.2", "2.0.0", False),
    ],
)
def test_versions(version: str, target: str, later: bool) -> None:
    assert is_version_greater_equal_than(version, target) is later


def test_versions_that_are_none() -> None:
    for version, target in (("2.0.0", "2.0"), (2, "2.0.0"), ("new", "2.0.0")):
        with pytest.raises(ValueError):
            is_version_greater_equal_than(version, target)  # type: ignore[arg-type]


def test_small_questions() -> None:
    assert [num_rank_is_power_2(n) for n in (0, 1, 2, 3, 4, 6, 8)] == [
        False,
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    assert split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert split_list([1], 3) == [[1], [], []]
    assert is_iterable("x") and not is_iterable(1)
    assert extension_available("torch") and not extension_available("mxnet")


def test_a_function_in_the_background() -> None:
    found: list[int] = []
    in_thread(found.append, (3,)).join(20)
    in_thread(lambda: 1 // 0, silent=True).join(20)
    assert found == [3]
    with pytest.raises(ValueError, match="tuple"):
        in_thread(found.append, [3])  # type: ignore[arg-type]
