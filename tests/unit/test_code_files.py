"""Which files ``--sync`` sends, what it refuses, and the store of copies on one machine."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from tests.system_programs import program

from ringleader.agents import code_store
from ringleader.errors import RefusedError, RequestError
from ringleader.launch import code_files
from ringleader.launch.code_files import (
    contents,
    frozen,
    listed,
    manifest_of,
)
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job, Sync

pytestmark = pytest.mark.process
TREE = ("train.py", "pack/a.py", "pack/a.bin", "pack/deep/b.py", "data/large", "pack/__pycache__/a.pyc")


@pytest.fixture
def project(tmp_path):
    made = tmp_path / "a project"
    for name in TREE:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    return made


def git(project, *words):
    program("git", "git")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", "-C", str(project), *words], check=True, capture_output=True, env=environ)


def test_without_ignores_everything_but_caches_is_sent(project):
    assert listed(str(project)) == sorted(TREE[:-1])
    (project / "sub").mkdir()
    git(project, "init", "-q")
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    assert listed(str(project)) == sorted(TREE[:-1]) and listed(f"{project}/sub") == [], "a submodule"


@pytest.mark.parametrize("repository", [True, False])
def test_gitignore_counts_in_a_repository_and_outside(project, repository):
    if repository:
        git(project, "init", "-q")
    (project / ".gitignore").write_text("/data/\n*.bin\n")
    (project / "pack/.gitignore").write_text("!a.bin\n/deep\n")
    wanted = [".gitignore", "pack/.gitignore", "pack/a.bin", "pack/a.py", "train.py"]
    assert listed(str(project)) == wanted
    assert listed(f"{project}/pack") == [name[5:] for name in wanted if name.startswith("pack/")]


def test_files_of_a_repository_in_the_repository_and_deleted_ones(project):
    git(project, "init", "-q")
    git(project / "pack", "init", "-q")
    (project / "pack/.gitignore").write_text("*.bin\n")
    (project / "forced.bin").write_text("")
    (project / ".gitignore").write_text("*.bin\ndata\n")
    (project / "gone.py").write_text("")
    git(project, "add", "-f", "forced.bin", "gone.py")
    (project / "gone.py").unlink()
    wanted = [".gitignore", "forced.bin", "pack/.gitignore", "pack/a.py", "pack/deep/b.py", "train.py"]
    assert [name for name, _, _ in contents(str(project), 1)["files"]] == wanted


def frozen_here(project, store, **sync):
    job = Job(command=("true",), workdir=str(project), sync=Sync(on=True, target=str(store), **sync))
    return frozen(job, {}, lambda text: None)


def test_all_that_is_wrong_is_named_at_once(project):
    (project / "elsewhere").symlink_to("../outside")
    (project / "absolute").symlink_to(project / "train.py")
    (project / "inside").symlink_to("./pack/../pack/deep")
    (project / "pack/up").symlink_to("../train.py")
    (project / "pack/out").symlink_to("../..")
    (project / "new\nline.py").write_text("")
    os.mkfifo(project / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(project / "socket"))  # a socket's path has a limit
        with pytest.raises(RequestError) as caught:
            contents(str(project), 1)
    said = {fault.where.rpartition("/")[2]: fault.what for fault in caught.value.faults}
    assert said == {
        "elsewhere'": "is a link to ../outside, which is not sent with it",
        "out'": "is a link to ../.., which is not sent with it",
        "absolute'": f"is a link to {project / 'train.py'}, which is not sent with it",
        "new\\nline.py'": "has a control character in its name",
        "fifo'": "is a FIFO, not a file",
        "socket'": "is a socket, not a file",
    }
    assert all(fault.hint and "\n" not in fault.where for fault in caught.value.faults)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read(project):
    (project / "train.py").chmod(0)
    with pytest.raises(RequestError, match="cannot be read"):
        contents(str(project), 1)


def test_too_much_names_the_largest_directories(project):
    with (project / "data/large").open("wb") as file:
        file.truncate(3 << 20)  # sparse
    with pytest.raises(RequestError) as caught:
        contents(str(project), 2)
    (fault,) = caught.value.faults
    assert "has 5 files of 3 MiB; at most 100,000 files and 2 MiB are sent" in fault.what
    assert "Largest: data/large 3 MiB; pack/" in fault.what
    assert fault.hint.endswith("--sync-limit 4")


def test_nothing_to_send_and_no_directory(project, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="has no file to send"):
        contents(str(tmp_path / "empty"), 1)
    for wrong in (Sync(source=str(tmp_path / "none")), Sync(source=str(tmp_path / "empty"))):
        job = Job(command=("true",), workdir=str(project), sync=wrong)
        with pytest.raises(RequestError) as caught:
            frozen(job, {}, print)
        assert caught.value.faults[0].where == "--sync-from"


def test_a_file_that_changes_while_it_is_read(project, tmp_path, monkeypatch):
    files = contents(str(project), 1)
    real = code_store.checksum

    def slow(path):
        digest = real(path)
        if path.name == "a.py":
            path.write_text("another length")
        return digest

    monkeypatch.setattr(code_store, "checksum", slow)  # stands for an editor that saves just then
    with pytest.raises(RequestError, match=r"a\.py': changed while it was read"):
        manifest_of(str(project), files)


def test_a_copy_is_made_once_and_the_ranks_run_in_it(project, tmp_path):
    store = tmp_path / "store"
    (project / "train.py").chmod(0o755)
    sync = Sync(source=str(project), target=str(store))
    elastic = ElasticOptions(min_np=1, hostfile="hosts")
    job = Job(command=("true",), workdir=f"{project}/pack", sync=sync, elastic=elastic)
    first = frozen(job, {}, print)
    assert first.code is not None
    assert first.workdir == f"{first.code.tree}/pack" and Path(first.workdir, "a.py").is_file()
    assert os.access(f"{first.code.tree}/train.py", os.X_OK)
    assert first.elastic is not None and first.elastic.hostfile == f"{project}/pack/hosts"
    assert frozen(job, {}, print).code == first.code
    Path(first.code.tree, "train.py").write_text("a rank wrote here")
    other = frozen(job, {}, print)
    assert other.code is not None and other.code.digest == first.code.digest
    assert other.code.tree != first.code.tree, "what somebody has changed is not used"
    assert sorted(path.name for path in store.iterdir()) == [first.code.digest, f"{first.code.digest}.2"]


@pytest.mark.parametrize("words", ["File exists", "Not a directory", "cannot be written"])
def test_a_store_that_cannot_be(project, tmp_path, words):
    store = tmp_path / "cache" / "store"
    store.parent.mkdir()
    if words == "File exists":
        store.write_text("")
    elif words == "Not a directory":
        store.parent.rmdir()
        store.parent.write_text("")
    elif os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    else:
        store.mkdir(mode=0o500)
    with pytest.raises(RefusedError) as caught:
        frozen_here(project, store)
    assert words in str(caught.value) and "--sync-to" in str(caught.value)


def packed(project, cut=None):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.add(project, ".")
    return io.BytesIO(made.getvalue()[:cut])


def order(project, store, do="receive"):
    manifest = manifest_of(str(project), contents(str(project), 1))
    known = {"do": do, "target": str(store), "digest": manifest["digest"], "bytes": 0, "rsync": False}
    return known | {"manifest": manifest}


def test_an_interrupted_or_a_wrong_transfer_is_never_used_and_a_good_one_is_kept_once(project, tmp_path):
    store = tmp_path / "store"
    wanted = order(project, store)
    code_store.begin(store, 0)
    for data in (packed(project, cut=60), packed(project / "pack"), io.BytesIO(b"\0" * 2000)):
        answer = code_store.answer(wanted, {}, data)
        assert "wrong" in answer and not list(store.iterdir()), answer
    trees = {code_store.answer(wanted, {}, packed(project))["tree"] for _ in range(2)}
    assert [Path(tree, "train.py").is_file() for tree in trees] == [True]
    (copy,) = store.iterdir()
    os.utime(copy / code_store.MANIFEST, (1, 1))
    assert code_store.answer(wanted | {"do": "find"}, {})["found"]
    assert (copy / code_store.MANIFEST).stat().st_mtime == 1, "a question changes nothing"
    assert code_store.answer(wanted | {"do": "begin"}, {})["found"]
    assert (copy / code_store.MANIFEST).stat().st_mtime > 1


@pytest.mark.parametrize("do", ["find", "begin"])
@pytest.mark.parametrize("whose", ["the store", "the copy", "the manifest"])
def test_a_copy_that_another_user_may_have_written_is_not_used(project, tmp_path, do, whose):
    store = tmp_path / "store"
    wanted = order(project, store)
    code_store.begin(store, 0)
    tree = Path(code_store.answer(wanted, {}, packed(project))["tree"])
    if whose == "the manifest":  # and the files that it describes
        (tree / "train.py").write_text("evil")
        os.utime(tree / "train.py", (code_store.STAMP, code_store.STAMP))
        manifest = json.loads((tree.parent / code_store.MANIFEST).read_text())
        rows = [[name, 4 if name == "train.py" else size, *rest] for name, size, *rest in manifest["files"]]
        (tree.parent / code_store.MANIFEST).write_text(json.dumps(manifest | {"files": rows}))
    else:
        (store if whose == "the store" else tree.parent).chmod(0o777)
    answer = code_store.answer(wanted | {"do": do}, {})
    assert not answer.get("found")
    assert ("can be written by others" in answer.get("wrong", "")) is (whose == "the store")


@pytest.mark.root("give files away")
def test_a_store_of_another_user_is_refused(project, tmp_path):
    store = tmp_path / "store"
    wanted = order(project, store)
    code_store.begin(store, 0)
    copy = Path(code_store.answer(wanted, {}, packed(project))["tree"]).parent
    os.chown(copy, 12345, 12345)
    assert not code_store.answer(wanted | {"do": "find"}, {})["found"]
    os.chown(store, 12345, 12345)
    assert "belongs to somebody else" in code_store.answer(wanted | {"do": "begin"}, {})["wrong"]


def test_no_room_is_found_out_before_anything_is_sent(project, tmp_path):
    store = tmp_path / "store"
    answer = code_store.answer(order(project, store, "begin") | {"bytes": 1 << 60}, {})
    assert "has no room" in answer["wrong"]


def test_a_job_that_runs_keeps_its_copy(project, tmp_path, monkeypatch):
    monkeypatch.setattr(code_files, "RENEWED_EVERY", 0.01)
    job = frozen_here(project, tmp_path / "store")
    assert job.code is not None
    manifest = Path(job.code.tree).with_name(code_store.MANIFEST)
    os.utime(manifest, (1, 1))
    with code_files.kept(job):
        end = time.monotonic() + 30
        while manifest.stat().st_mtime == 1 and time.monotonic() < end:
            time.sleep(0.01)
    assert manifest.stat().st_mtime > 1


@pytest.mark.parametrize("through_a_link", [False, True])
def test_the_sweep_keeps_what_is_new_what_is_used_and_what_ranks_wrote(project, tmp_path, through_a_link):
    store, trees = tmp_path / "store", []
    if through_a_link:
        (tmp_path / "real").mkdir(mode=0o755)
        store.symlink_to("real")
    old = time.time() - 10 * code_store.LEAST_AGE
    for number in range(code_store.KEPT + 4):
        (project / "train.py").write_text(f"{number}")
        job = frozen_here(project, store)
        assert job.code is not None
        trees.append(Path(job.code.tree))
    for number, tree in enumerate(trees):
        os.utime(tree.parent / code_store.MANIFEST, (old + number, old + number))
    (trees[1] / "result").write_text("of a rank")
    (trees[1] / "pack/__pycache__").mkdir()
    (trees[1] / "pack/__pycache__/a.pyc").write_text("")
    left = store / f"{code_store.INCOMING}x"
    left.mkdir()
    os.utime(left, (old - code_store.STALE, old - code_store.STALE))
    with subprocess.Popen(["sleep", "600"], cwd=trees[2] / "pack") as busy:
        try:
            code_store.answer(order(project, store, "begin") | {"digest": "another"}, {})
        finally:
            busy.kill()
    assert not trees[0].exists() and not trees[3].exists() and not left.exists()
    assert [path.name for path in trees[1].rglob("*")] == ["result"]
    assert all((tree / "train.py").is_file() for tree in (trees[2], *trees[4:]))


def test_a_copy_that_is_found_while_it_is_swept_stays(project, tmp_path):
    code_store.begin(tmp_path / "store", 0)
    tree = Path(code_store.answer(order(project, tmp_path / "store"), {}, packed(project))["tree"])
    code_store.remove(tree.parent)  # its time is new: somebody has just found it
    assert (tree / "train.py").is_file() and [path.name for path in code_store.copies(tree.parent.parent)]
    (tree.parent / code_store.MANIFEST).rename(tree.parent / "gone")
    assert code_store.find(tmp_path / "store", tree.parent.name) is None
    with pytest.raises(FileNotFoundError):
        code_store.renew(tree.parent)
