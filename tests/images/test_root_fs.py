"""Of a machine's package sources, those of its own release, whatever form they have."""

from __future__ import annotations

from tests.images import root_fs

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://vendor.example.org
Suites: nodistro
Components: main

Types: deb-src
URIs: http://mirror.example.org/debian
Suites: bookworm
Components: main
"""
LISTS = """\
# deb http://no.example.org/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://a.example.org/debian bookworm main contrib # why
deb http://a.example.org/security bookworm-security main
deb http://a.example.org/debian bookworm-backports main
deb-src http://a.example.org/debian bookworm main
"""


def test_sources_of_the_release_are_kept_and_all_others_left_out(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(LISTS)
    assert (
        root_fs.sources("bookworm", tmp_path)
        == """\
Types: deb
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://a.example.org/debian
Suites: bookworm
Components: main contrib
Signed-By: /k.gpg

Types: deb
URIs: http://a.example.org/security
Suites: bookworm-security
Components: main

"""
    )
    assert root_fs.sources("sid", tmp_path) == ""
