"""``horovod.x.y`` is the module ``ringleader.x.y``: every way in, and what scripts do with such a module.

What changes the import system runs in its own interpreter; a package ``horovod`` on its path stands for a
real Horovod.
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


def test_one_module_under_two_names_is_loaded_once_and_keeps_its_description(packages: AliasFinder) -> None:
    leaf = importlib.import_module("oldname.sub.leaf")
    import newname.sub.leaf  # type: ignore[import-not-found]

    assert leaf is newname.sub.leaf is sys.modules["oldname.sub"].leaf
    assert sys.modules["oldname"] is newname and newname.loads == ["sub", "leaf"]
    assert leaf.__spec__ is not None and leaf.__spec__.name == leaf.__name__ == "newname.sub.leaf"
    before = leaf.Kept
    assert importlib.reload(leaf) is leaf and leaf.Kept is not before
    assert importlib.import_module("oldname.sub.leaf") is leaf


def test_what_is_missing_is_named_and_other_names_are_left_alone(packages: AliasFinder) -> None:
    assert packages.find_spec("oldnames") is None and packages.find_spec("newname.oldname") is None
    missing = r"'oldname\.sub\.gone'.*does not offer 'sub\.gone'"
    with pytest.raises(ModuleNotFoundError, match=missing) as caught:
        importlib.import_module("oldname.sub.gone")
    assert caught.value.name == "oldname.sub.gone"
    # What a module of the package itself lacks is told as it is.
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        importlib.import_module("oldname.broken")
    with pytest.raises(ModuleNotFoundError, match=r"newname_that_is_nowhere.*not installed"):
        AliasFinder({"oldname": "newname_that_is_nowhere"}).find_spec("oldname")


def test_paths_that_scripts_import(tmp_path: Path) -> None:
    code = """
import sys
print([name for name in sys.modules if 'horovod' in name or 'torch' in name])
import pickle, unittest.mock
import horovod, horovod.torch as hvd, horovod.common.process_sets as sets
import ringleader, ringleader.torch, ringleader.common.util, ringleader.adapters.util
from horovod.torch.mpi_ops import synchronize
from horovod.torch.functions import broadcast_object
from horovod.torch.compression import Compression
from horovod.torch.optimizer import DistributedOptimizer
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import _cache, env, gloo_built, mpi_built
from horovod.runner.util.threads import in_thread
assert horovod is ringleader and hvd is ringleader.torch
assert ringleader.common is ringleader.adapters is horovod.common
assert ringleader.common.util is ringleader.adapters.util and sets is ringleader.adapters.process_sets
assert DistributedOptimizer is ringleader.torch.DistributedOptimizer
assert HorovodInternalError is hvd.HorovodInternalError is ringleader.adapters.exceptions.HorovodInternalError
assert mpi_built() and not gloo_built()
with unittest.mock.patch("horovod.torch.mpi_ops.synchronize", 7):
    assert ringleader.torch.mpi_ops.synchronize == 7
assert ringleader.torch.mpi_ops.synchronize is synchronize
assert pickle.loads(b"chorovod.common.exceptions\\nHorovodInternalError\\n.") is HorovodInternalError
for one in (HorovodInternalError, Compression.fp16):
    assert pickle.loads(pickle.dumps(one)) is one
ringleader.alias.install()  # again, and in use
for name in ("horovod.spark", "ringleader.common.nothing"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
"""
    before, spark, nothing = check(code, tmp_path).splitlines()
    assert before == "[]", "nothing is loaded before a script asks"
    assert "'horovod.spark'" in spark and "does not offer 'spark' yet" in spark
    assert "ringleader.common.nothing" in nothing


ASK = "import horovod; print(getattr(horovod, 'who', horovod.__name__))"


def test_an_installed_horovod_stays_unless_the_alias_is_asked_for(real: Path) -> None:
    for code, path, who in (
        (ASK, str(real), "the real one"),
        (INSTALL + INSTALL + ASK, str(real), "ringleader"),
        (ASK, f"{directory()}:{real}", "ringleader"),
    ):
        assert python("-c", code, cwd=real.parent, path=path).stdout.strip() == who
    late = python("-c", "import horovod\n" + INSTALL, cwd=real.parent, path=str(real))
    assert late.returncode == 1
    assert late.stderr.splitlines()[-1].startswith("ImportError: horovod is loaded already, from ")


def test_the_directory_for_other_launchers(tmp_path: Path) -> None:
    for words, code, said in (
        (("-c", "import horovod.common.util as u; print(u.__name__)"), 0, "ringleader.adapters.util"),
        (("-m", "horovod", "--version"), 0, "ringleader,"),
        (("-m", "horovod.spark"), 1, "does not offer 'spark' yet"),
    ):
        done = python(*words, cwd=tmp_path, path=directory())
        assert done.returncode == code and said in done.stdout + done.stderr


def test_ranks_have_it_only_when_it_was_asked_for_and_load_nothing_for_it(real: Path) -> None:
    path = f"{INJECT}:{real}"
    show = "import sys; print([name for name in sys.modules if 'ringleader' in name or 'horovod' in name]); "
    loaded = set()
    for value, expected in (("", "the real one"), ("0", "the real one"), ("1", "ringleader")):
        done = python("-c", show + ASK, cwd=real.parent, path=path, RINGLEADER_AS_HOROVOD=value)
        before, who = done.stdout.splitlines()
        assert (who, done.stderr) == (expected, "")
        loaded.add(before)
    assert len(loaded) == 1


def test_an_interpreter_without_ringleader_is_named(real: Path) -> None:
    """Not even an installed Horovod is taken then: the job asked for another engine."""
    done = python(
        "-S", "-c", f"import sys; sys.path[:] = [{str(INJECT)!r}, {str(real)!r}, *sys.path]\n"
        "import sitecustomize, horovod.torch", cwd=real.parent, RINGLEADER_AS_HOROVOD="1",
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "--as-horovod" in last and sys.executable in last


SCRIPT = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import horovod.common.util as util
import neighbor

def name(_):
    return util.__name__

if __name__ == "__main__":
    print(name(0), __name__, sys.argv, neighbor.here)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(name, [0])))
    sys.exit(5)
"""


@pytest.mark.parametrize("words", [("my scripts/train.py",), ("-m", "train")])
def test_a_script_or_module_runs_as_python_would_run_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    scripts = tmp_path / "my scripts"
    scripts.mkdir()
    (scripts / "train.py").write_text(SCRIPT)
    (scripts / "neighbor.py").write_text("here = 'beside'\n")
    cwd = scripts if words[0] == "-m" else tmp_path
    done = python("-m", "ringleader.alias", *words, "-m", "a b", cwd=cwd)
    assert (done.returncode, done.stderr) == (5, "")
    script = str(scripts / "train.py") if words[0] == "-m" else words[0]
    assert done.stdout.splitlines() == [
        f"ringleader.adapters.util __main__ {[script, '-m', 'a b']} beside",
        "['ringleader.adapters.util']",
    ]


def test_wrong_words_and_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, said in (
        (["gone.py"], 2, "ringleader: there is no script gone.py\n"),
        ([], 2, "usage: "),
        (["-m"], 2, "usage: "),
        (["--odd", "a.py"], 2, "usage: "),
        (["--path"], 0, f"{directory()}\n"),
    ):
        assert main(words) == code
        printed = capsys.readouterr()
        assert (printed.err if code else printed.out).startswith(said)
    assert search_path("/o", "") == "/o" and search_path("/o", "/a:/o::/b") == "/o:/a:/b"


def test_environment_within_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLEADER_TEST_B", "before")
    monkeypatch.delenv("RINGLEADER_TEST_A", raising=False)
    with env(RINGLEADER_TEST_A="1", RINGLEADER_TEST_B="2", RINGLEADER_TEST_C=None):
        assert os.environ["RINGLEADER_TEST_A"] == "1" and os.environ["RINGLEADER_TEST_B"] == "2"
        assert "RINGLEADER_TEST_C" not in os.environ
    assert "RINGLEADER_TEST_A" not in os.environ and os.environ["RINGLEADER_TEST_B"] == "before"


def test_versions_and_other_small_questions() -> None:
    later = (("2.13.0", "2.9.1"), ("2.9.0", "2.9.0"), ("2.9.0+cpu", "2.9.0"))
    earlier = (("2.9", "2.9.1"), ("2.9.0rc1", "2.9.0"), ("2.9.0.dev1", "2.9.0"), ("1.10.2", "2.0.0"))
    assert all(is_version_greater_equal_than(*both) for both in later)
    assert not any(is_version_greater_equal_than(*both) for both in earlier)
    for version, target in (("2.0.0", "2.0"), (2, "2.0.0"), ("new", "2.0.0")):
        with pytest.raises(ValueError):
            is_version_greater_equal_than(version, target)  # type: ignore[arg-type]
    assert [n for n in range(9) if num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]] and split_list([1], 3) == [[1], [], []]
    assert is_iterable("x") and not is_iterable(1)
    assert extension_available("torch") and not extension_available("mxnet")


def test_a_function_in_the_background() -> None:
    found: list[int] = []
    in_thread(found.append, (3,)).join(20)
    in_thread(lambda: 1 // 0, silent=True).join(20)
    assert found == [3]
    with pytest.raises(ValueError, match="tuple"):
        in_thread(found.append, [3])  # type: ignore[arg-type]
