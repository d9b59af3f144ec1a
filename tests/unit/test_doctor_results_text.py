"""What people and programs read of results, of one host and of several."""

from ringleader.cli.doctor.judged_hosts import results_text
from ringleader.doctor.judgement import merged
from ringleader.fabric.check_result import CheckResult, Verdict, listed

GROUPS = {"port.state": "Ports", "port.rate": "Ports", "memlock": "Limits", "shm": "Limits", "gid": "RoCE"}


def result(id, verdict, seen="", **fields):
    return CheckResult(id=id, verdict=Verdict(verdict), seen=seen, **fields)


ONE_HOST = (
    result("memlock", "warn", "8 MiB may be locked", expected="unlimited", remedy="ulimit -l unlimited"),
    result("shm", "pass", "24 GiB"),
    result("port.rate", "pass", "400 Gb/sec", subject="mlx5_0 port 1"),
    result("port.state", "pass", "ACTIVE", subject="mlx5_0 port 1"),
    result(
        "port.state",
        "fail",
        "INIT",
        expected="ACTIVE",
        subject="mlx5_1 port 1",
        remedy="start a subnet manager",
    ),
    result("roce", "skip", "no RoCE port here: 1 check has nothing to judge"),
)


def test_the_worst_comes_first_and_what_passed_is_one_line():
    assert results_text(ONE_HOST, groups=GROUPS, hosts=["h1"]) == (
        "Ports\n"
        "  FAIL  port.state  mlx5_1 port 1: INIT (expected: ACTIVE)\n"
        "        → start a subnet manager\n"
        "\n"
        "Limits\n"
        "  WARN  memlock  8 MiB may be locked (expected: unlimited)\n"
        "        → ulimit -l unlimited\n"
        "\n"
        "1 failed, 1 warning, 2 passed, 1 not applicable: no RoCE port here (--verbose shows all)\n"
    )


def test_verbose_shows_every_result():
    text = results_text(ONE_HOST, groups=GROUPS, hosts=["h1"], verbose=True)
    assert "  PASS  shm      24 GiB\n" in text
    assert "Not applicable\n  SKIP  roce  no RoCE port here" in text
    assert text.endswith("\n1 failed, 1 warning, 2 passed, 1 not applicable\n")


def test_long_sentences_are_wrapped_between_words():
    long = result("memlock", "warn", "word " * 40, remedy="remedy " * 30)
    text = results_text([long], groups=GROUPS, hosts=["h1"], width=60)
    assert max(map(len, text.splitlines()[:-1])) <= 60
    assert text.count("word") == 40 and text.count("remedy") == 30


def test_all_hosts_or_some_are_named():
    by_host = {
        host: [
            result("memlock", "warn", "8 MiB" if host == "h3" else "64 MiB"),
            result("shm", "pass", f"{number} bytes free"),
            result("gid", "warn", "v1"),
            result("port.rate", "warn", f"{number} of 400"),
        ]
        for number, host in enumerate(["h1", "h2", "h3", "h4", "h5", "h6"])
    }
    found = merged(by_host)
    text = results_text(found, groups=GROUPS, hosts=[*by_host])
    assert "memlock  64 MiB [h1, h2, h4, h5 and 1 more]" in text
    assert "memlock  8 MiB [h3]" in text
    assert "gid  v1 [all 6 hosts]" in text
    assert "port.rate  0 of 400 on h1, and similar on 5 more [all 6 hosts]" in text
    assert len([one for one in found if one.id == "shm"]) == 1
    assert listed(["h1", "h2"]) == "h1, h2"
