"""``ringleader report --serve``: who may ask, for what, and that the page follows its file."""

import http.client
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from tests.report.recorded import Story
from tests.report.test_page import read

from ringleader.bench import run_file
from ringleader.cli.report import source_of
from ringleader.measurements.collective import CollectiveRun
from ringleader.report.page_server import PageServer
from ringleader.scaling import Run


class Client:
    def __init__(self, given: list[Path]) -> None:
        self.told: list[str] = []
        self.server = PageServer(partial(source_of, given), 0, tell=self.told.append)

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def ask(self, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, dict[str, str]]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)) as connection:
            headers = {"Host": f"127.0.0.1:{self.server.port}" if host is None else host}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())

    def text(self, path: str) -> str:
        return self.ask(path)[1]


@pytest.fixture
def directory(tmp_path: Path, run: Run, collective: CollectiveRun) -> Path:
    run_file.write(run, tmp_path / "scale 1")
    run_file.write(collective, tmp_path / "b")
    (tmp_path / "not a run").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


@pytest.fixture
def client(directory: Path) -> Iterator[Client]:
    with Client([directory]) as client:
        yield client


def test_the_index_leads_to_each_run(client: Client) -> None:
    status, page, headers = client.ask("/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert sorted(re.findall(r'<a href="(/runs/[^"]*)"', page)) == ["/runs/b", "/runs/scale%201"]
    status, page, headers = client.ask("/runs/b")
    assert status == 200 and "allreduce on 4 ranks" in page and '<a href="/">All runs</a>' in page
    nonce = re.search(r'<script nonce="([^"]+)">', page)
    policy = headers["Content-Security-Policy"]
    assert nonce and f"script-src 'nonce-{nonce[1]}'" in policy and "default-src 'none'" in policy
    read(page)


def test_only_these_pages_only_get_and_only_this_host(client: Client) -> None:
    for path in ("secret.txt", "runs/", "runs/not%20a%20run", "runs/..%2fsecret.txt", "../secret.txt", "b"):
        assert client.ask(f"/{path}")[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "ANY"):
        assert client.ask("/", method)[0] == 405
    port = client.server.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost:1", ""):
        status, text, _ = client.ask("/", host=host)
        assert status == 403 and "allreduce" not in text
    assert client.ask("/", host=f"localhost:{port}")[0] == 200 and client.told == []


def test_the_version_changes_with_the_file_and_the_page_follows(
    client: Client, directory: Path, collective: CollectiveRun
) -> None:
    versions = [client.text("/runs/b?version")]
    assert versions[0] == client.text("/runs/b?version")
    run_file.write(replace(collective, series=collective.series[:1], failure="stopped"), directory / "b")
    versions.append(client.text("/runs/b?version"))
    assert "The run ended early (stopped)" in client.text("/runs/b")
    (directory / "b" / "run.json").write_text('{"schema": 1')
    versions.append(client.text("/runs/b?version"))
    page, index = client.text("/runs/b"), client.text("/")
    assert "Nothing can be shown now." in page and "is not JSON" in page and len(set(versions)) == 3
    assert "is not JSON" in index and "/runs/scale%201" in index
    (directory / "b" / "run.json").unlink()
    assert client.ask("/runs/b")[0] == 404


def test_a_named_run_that_vanishes_is_told_and_comes_back(tmp_path: Path, collective: CollectiveRun) -> None:
    run_file.write(collective, tmp_path / "a")
    with Client([tmp_path / "a" / "run.json"]) as client:
        (tmp_path / "a" / "run.json").unlink()
        assert "there is no stored run here" in client.text("/")
        run_file.write(collective, tmp_path / "a")
        assert "allreduce on 4 ranks" in client.text("/")


def test_the_page_of_a_running_job_rests_and_follows_its_end(tmp_path: Path) -> None:
    story = Story(tmp_path / "a").at(1.0)
    story.start()
    story.at(2.0).step(0, 0.5)
    with Client([tmp_path / "a"]) as client:
        assert "running for 2.00 s" in client.text("/")
        version = client.text("/?version")
        story.at(3.0).step(0, 0.5)
        assert client.text("/?version") == version, "it stays for ten times what making it took"
        story.end(4.0)
        assert client.text("/?version") != version and "succeeded after 4.00 s" in client.text("/")


def test_several_runs_are_one_page_and_one_that_is_broken_is_told(directory: Path) -> None:
    (directory / "broken.json").write_text("{")
    with Client([directory / "b", directory / "scale 1", directory / "broken.json"]) as client:
        page = client.text("/")
        assert "On this page" in page and "broken.json:1:2: is not JSON" in page
        assert client.ask("/runs/b")[0] == 404


@pytest.mark.process
def test_ctrl_c_ends_it_with_130(directory: Path) -> None:
    words = [sys.executable, "-m", "ringleader", "report", "--serve", str(directory)]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        assert re.fullmatch(r"ringleader: http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)\n", line)
        connection = http.client.HTTPConnection(line.split("/")[2], timeout=20)
        connection.request("GET", "/?version")
        assert connection.getresponse().status == 200
        connection.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
        assert server.stderr.read().endswith("ringleader: stopped by SIGINT\n")
    finally:
        server.kill()
        server.stderr.close()


@pytest.mark.parametrize("value", ["1" * 400, "1" * 5000, "1e400", "-1e300", '"\\\\ud800"'])
def test_a_run_of_impossible_numbers_leaves_the_others_their_pages(
    client: Client, directory: Path, value: str
) -> None:
    (directory / "bad").mkdir()
    text = (directory / "scale 1" / run_file.FILE).read_text()
    text = re.sub(r'"rate": [0-9.e+-]+', f'"rate": {value}', text, count=1)
    (directory / "bad" / run_file.FILE).write_text(text)
    for path in ("/", "/runs/b", "/runs/scale%201", "/runs/bad"):
        assert client.ask(path)[0] == 200, client.told


def test_a_page_that_fails_is_an_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringleader.cli.report.render_index", lambda *words, **more: 1 / 0)
    status, text, _ = client.ask("/")
    assert (status, text) == (500, "a page failed: ZeroDivisionError: division by zero\n")
    assert client.ask("/runs/b")[0] == 200
