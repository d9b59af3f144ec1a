from hypothesis import given
from hypothesis import strategies as st

from ringleader.plan.host_list import apply_torchrun, parse_host_list, parse_hostfile
from ringleader.plan.job import Host


def host(name, slots=None, max_slots=None):
    return Host(name=name, slots=slots, max_slots=max_slots)


def test_host_lists():
    for text, hosts in (
        ("h1:2,h2:2", (host("h1", 2), host("h2", 2))),
        ("h1,h1,h1", (host("h1", 3),)),
        ("h1:2,h2,h1:3", (host("h1", 5), host("h2", 1))),
        ("[fe80::1]:2", (host("fe80::1", 2),)),
        ("[fe80::1%eth0]:4,[::1]", (host("fe80::1%eth0", 4), host("::1", 1))),
        ("alice@h1:2,alice@[fe80::1]:3", (host("alice@h1", 2), host("alice@fe80::1", 3))),
        (" h1:2 , h2:1 ", (host("h1", 2), host("h2", 1))),
        ("gpu_node.example.com:8", (host("gpu_node.example.com", 8),)),
    ):
        parsed = parse_host_list(text)
        assert parsed.faults == ()
        assert parsed.hosts == hosts


def test_faults_of_host_lists_name_the_entry():
    for text, entry, word in (
        ("h1:0", 1, "0 slots"),
        ("h1:2,h2:-1", 2, "'-1'"),
        ("h1:", 1, "''"),
        ("h1:2,,h2", 2, "empty"),
        ("", 1, "empty"),
        (":2", 1, "missing"),
        ("-oProxyCommand=evil:2", 1, "not a host name"),
        ("$(x)", 1, "not a host name"),
        ("h1:99999999", 1, "more than"),
        ("[fe80::1:2", 1, "IPv6"),
        ("[fe80::1]2", 1, "IPv6"),
        ("[h1]:2", 1, "IPv6"),
        ("zz::1::2", 1, "IPv6"),
        ("-l@h1", 1, "user"),
        ("h1:٣", 1, "number"),
    ):
        parsed = parse_host_list(text)
        named = text.split(",")[entry - 1]
        assert [fault.where for fault in parsed.faults] == [f"-H {named}" if named else f"-H entry {entry}"]
        assert word in parsed.faults[0].what


HOSTFILE = """\
# our cluster
h1 slots=2          # Open MPI
h2 slots=2 max_slots=4
h3:3\r
\t
[fe80::1]:2
fe80::2 slots=1 max-slots=1
bob@h4
h1 slots=1
"""


def test_a_hostfile_in_every_dialect():
    parsed = parse_hostfile(HOSTFILE, "hosts.txt")
    assert parsed.faults == ()
    assert parsed.hosts == (
        host("h1", 3),
        host("h2", 2, 4),
        host("h3", 3),
        host("fe80::1", 2),
        host("fe80::2", 1, 1),
        host("bob@h4", None),
    )


def test_every_bad_line_is_named_at_once():
    text = "h1 slots=2\nh2 slots=0\n\nh3 slot=2\nh4 slots=a\nh5:2 slots=3\nh6 slots=3 max_slots=2\nh7 slots\n"
    parsed = parse_hostfile(text, "my hosts")
    assert [fault.where for fault in parsed.faults] == [f"my hosts:{n}" for n in (2, 4, 5, 6, 7, 8)]
    assert parsed.hosts == (host("h1", 2),)
    assert all(fault.what for fault in parsed.faults)


@given(st.text())
def test_any_text_gives_hosts_or_faults_never_an_exception(text):
    for parsed in (parse_hostfile(text), parse_host_list(text)):
        assert parsed.hosts or parsed.faults
        assert all(fault.where and fault.what for fault in parsed.faults)


WORDS = st.text(alphabet="h1:[]@=%-., slots=0#\tmax_\r\n", max_size=60)


@given(WORDS)
def test_nearly_right_text_gives_sound_hosts(text):
    for parsed in (parse_hostfile(text), parse_host_list(text)):
        names = [host.name for host in parsed.hosts]
        assert len(set(names)) == len(names)
        for one in parsed.hosts:
            assert one.slots is None or one.slots >= 1
            assert one.max_slots is None or one.max_slots >= (one.slots or 1)
            assert not one.name.startswith("-")
            assert not set(one.name) & set(" \t,#=[]")


THREE = (host("h1", 4), host("h2", 4), host("h3", None))


def test_torchruns_words():
    for hosts, nnodes, nproc, chosen, np in (
        (THREE, None, None, THREE, None),
        (THREE, "2", None, THREE[:2], None),
        (THREE, "2", "3", (host("h1", 3), host("h2", 3)), 6),
        (THREE, None, "2", (host("h1", 2), host("h2", 2), host("h3", 2)), 6),
        ((), "1", "2", (), 2),
    ):
        assert apply_torchrun(hosts, nnodes=nnodes, nproc_per_node=nproc) == (chosen, np, ())


def test_torchruns_words_that_cannot_be_followed():
    for hosts, nnodes, nproc, wheres in (
        (THREE, "4", None, ["--nnodes"]),
        ((), "2", "2", ["--nnodes"]),
        (THREE, "1:4", "gpu", ["--nnodes", "--nproc-per-node"]),
        (THREE, None, "0", ["--nproc-per-node"]),
    ):
        _, np, faults = apply_torchrun(hosts, nnodes=nnodes, nproc_per_node=nproc)
        assert [fault.where for fault in faults] == wheres
        assert np is None
        assert all(fault.hint for fault in faults)


def test_hostfiles():
    for text, hosts in (
        ("n1\nn1\nn2\nn1\n", (host("n1", 3), host("n2"))),  # a name for each slot
        ("n1\nn1 slots=2\n", (host("n1", 3),)),
        ("n1 slots=1 max_slots=3\nn1 slots=1 max_slots=2", (host("n1", 2, 5),)),
        ("n1 slots=1 max_slots=3\nn1 slots=4", (host("n1", 5),)),
        ("\ufeffh1:2\n", (host("h1", 2),)),
        *((f"h1 slots{sign}4 max_slots = 8\n", (host("h1", 4, 8),)) for sign in (" = ", "= ", " =", "\t= ")),
        ("# nothing\n", ()),
    ):
        parsed = parse_hostfile(text, "f")
        assert parsed.hosts == hosts
        assert [fault.where for fault in parsed.faults] == ([] if hosts else ["f"])
