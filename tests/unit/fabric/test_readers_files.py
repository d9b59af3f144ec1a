"""Reading small files: what is there, what is not, and what could hang."""

import os

import pytest

from ringleader.fabric.facts import Unreadable
from ringleader.fabric.readers.sysfs_files import MOST_NOTES, Files, number, pci_address


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_what_is_there_and_what_is_not(tmp_path, files):
    (tmp_path / "mtu").write_text(" 9000 \n")
    (tmp_path / "lid").write_text("0x1a\n")
    assert (files.text("mtu"), files.number("mtu"), files.number("lid")) == ("9000", 9000, 26)
    assert (files.text("none"), files.number("none"), files.names("none"), files.link("none")) == (
        "",
        None,
        (),
        "",
    )
    assert files.unreadable == ()


def test_what_could_hang_or_fail_is_named(tmp_path, files):
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    assert (len(files.data("long")), len(files.data("long", limit=10_000))) == (100_000, 10_000)
    noted = Files(tmp_path)
    for _ in range(MOST_NOTES + 7):
        noted.note("x", "y")
    assert len(noted.unreadable) == MOST_NOTES + 1 and noted.unreadable[-1].reason == "7 more"
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "directory").mkdir()
    for name in ("fifo", "loop", "directory"):
        assert files.data(name) == b""
    assert [(one.path, one.reason) for one in files.unreadable] == [
        ("/fifo", "not a regular file"),
        ("/loop", os.strerror(40)),
        ("/directory", os.strerror(21)),
    ]
    assert Files().data("dev/zero") == b"", "a device file"
    assert files.data("directory", if_applicable=True) == files.data("a\0b") == b""
    assert files.unreadable[3:] == (Unreadable(path="/a\0b", reason="embedded null byte"),)


def test_names_in_the_order_of_their_numbers_and_none_that_is_not_text(tmp_path, files):
    for name in ("mlx5_10", "mlx5_2", "mlx5_bond_0", "1", "0"):
        (tmp_path / name).touch()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    assert files.names("") == ("0", "1", "mlx5_2", "mlx5_10", "mlx5_bond_0")


def test_after_the_deadline_nothing_is_read_and_that_is_said_once(tmp_path):
    (tmp_path / "a").write_text("1")
    now = iter((0.0, 2.0, 3.0, 4.0))
    files = Files(tmp_path, deadline=1.0, clock=lambda: next(now))
    assert [files.text("a"), files.text("a"), files.names(""), files.link("a")] == ["1", "", (), ""]
    assert [one.path for one in files.unreadable] == ["/a"]


def test_links_stay_below_the_root(tmp_path, files):
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "usr/bin/mpirun").symlink_to("/etc/alternatives/mpirun")
    (tmp_path / "etc/alternatives/mpirun").symlink_to("../../usr/bin/orterun")
    (tmp_path / "loop").symlink_to("loop")
    assert files.real("/bin/mpirun") == "/usr/bin/orterun"
    assert files.real("../../bin/./mpirun") == "/usr/bin/orterun"
    assert files.real("loop").startswith("/loop")


def test_numbers_and_addresses():
    for text, value in (("12", 12), ("0x10", 16), ("-1", -1), ("", None), ("max", None), ("9" * 5000, None)):
        assert number(text) == value
    assert pci_address("pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0") == "0000:18:00.0"
    assert pci_address("pci10000:00/10000:e0:06.0/nvme") == "10000:e0:06.0"
    assert pci_address("virtual/net/lo") == ""
