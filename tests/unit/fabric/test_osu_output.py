"""Output of OSU's programs, of several versions, hand-written after what they print."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.fabric.active.osu_output import osu_test

LATENCY_5 = """\
# OSU MPI Latency Test v5.6.2
# Size          Latency (us)
0                       1.02
1                       1.06
4194304               481.33
"""
CUDA_5 = """\
# OSU MPI-CUDA Bandwidth Test v5.6.2
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size      Bandwidth (MB/s)
1                       0.35
1048576             11804.12
"""
BOTH_7_1 = """\
# OSU MPI Bi-Directional Bandwidth Test v7.1
# Size      Bandwidth (MB/s)
# Datatype: MPI_CHAR.
1                       6.10
2                      12.01
"""
LATENCY_7_5 = """\
/usr/local/libexec/osu_latency: libnl-3.so.200: no version information available

# OSU MPI Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       3.00              Pass
2                       2.99              Fail
"""
FULL_5 = """\
# OSU MPI Latency Test v5.9
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       1.50              1.25              9.75       10000
"""
TAGGED = "".join(f"[1,0]<stdout>:{line}\n" for line in LATENCY_5.splitlines())
OLD = LATENCY_5.replace("Test v5.6.2", "Test (Version 2.0)")


@pytest.mark.parametrize(
    ("text", "program", "version", "memory", "rows"),
    [
        (LATENCY_5, "osu_latency", "5.6.2", "host", {0: 1.02e-6, 1: 1.06e-6, 4194304: 481.33e-6}),
        (CUDA_5, "osu_bw", "5.6.2", "cuda", {1: 0.35e6, 1048576: 11804.12e6}),
        (BOTH_7_1, "osu_bibw", "7.1", "host", {1: 6.10e6, 2: 12.01e6}),
        (LATENCY_7_5, "osu_latency", "7.5", "host", {1: 3.00e-6, 2: 2.99e-6}),
        (TAGGED, "osu_latency", "5.6.2", "host", {0: 1.02e-6, 1: 1.06e-6, 4194304: 481.33e-6}),
        (OLD, "osu_latency", "2.0", "host", {0: 1.02e-6, 1: 1.06e-6, 4194304: 481.33e-6}),
    ],
)
def test_every_version_is_read_in_its_headers_unit(text, program, version, memory, rows):
    found = osu_test(text)
    assert (found.program, found.version, found.memory) == (program, version, memory)
    assert {row.size: row.value for row in found.rows} == pytest.approx(rows)


def test_columns_go_by_their_names():
    (row,) = osu_test(FULL_5).rows
    assert (row.value, row.lowest, row.highest) == pytest.approx((1.5e-6, 1.25e-6, 9.75e-6))
    assert [row.is_wrong for row in osu_test(LATENCY_7_5).rows] == [False, True]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no title"),
        (
            "# OSU MPI Allreduce Latency Test v5.6\n# Size  Avg Latency(us)\n4  2.0\n",
            "Allreduce Latency Test",
        ),
        ("# OSU MPI Latency Test v5.6.2\n", "no header"),
        (LATENCY_5.replace("(us)", "(ms)"), "unknown unit"),
        (LATENCY_5.replace("Latency (us)", "Bandwidth (MB/s)"), "not a latency"),
        ("\n".join(LATENCY_5.splitlines()[:2]), "has printed no size"),
        (LATENCY_7_5.replace("2.99              Fail", "2.99"), "the line of size 2 is cut: 1 of 2 columns"),
        (LATENCY_5[: LATENCY_5.rindex("481")], "the line of size 4194304 is cut"),
        (LATENCY_5.replace("1.06", "nan"), "has 'nan'"),
    ],
)
def test_what_cannot_be_read_is_told(text, word):
    with pytest.raises(ValueError, match=r".") as wrong:
        osu_test(text)
    assert word in str(wrong.value)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_damage_gives_rows_or_a_reason(data):
    text = data.draw(st.sampled_from([LATENCY_5, CUDA_5, BOTH_7_1, LATENCY_7_5, FULL_5]))
    at = data.draw(st.integers(0, len(text)))
    odd = data.draw(st.text("0123456789.#() \neE-MBus/nan٣", max_size=6))
    try:
        found = osu_test(text[:at] + odd + text[at + data.draw(st.integers(0, 9)) :])
    except ValueError as error:
        assert str(error)
    else:
        assert found.rows and all(row.size >= 0 and row.value >= 0 for row in found.rows)
