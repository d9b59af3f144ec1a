"""Any output of perftest, ucx_perftest or OSU, of several versions: which program it is of, what is in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.bench.program_output import program_outputs, ucx_message_size

RULE = "-" * 87 + "\n"


def perftest(title, table, device="mlx5_0"):
    return (
        f"{RULE}                    {title}\n Dual-port       : OFF\t\tDevice         : {device}\n"
        f" Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n{RULE}{table}{RULE}"
    )


RATE_6 = perftest(
    "RDMA_Write BW Test",
    " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
    " 2          1000             7.50               7.25                 3.801088\n"
    " 65536      1000             11750.43           11749.92             0.187999\n",
)
READ = perftest(
    "RDMA_Read BW Test",
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      1000             0.00               80.00                0.152588\n",
)
BOTH = READ.replace("RDMA_Read BW", "RDMA_Write Bidirectional BW")
LATENCY = perftest(
    "Send Latency Test",
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% percentile[usec]   99.9% percentile[usec] \n"
    " 2       1000          1.02           4.11         1.06     \t       1.07        \t0.04   \t\t1.18"
    "    \t\t4.11   \n",
)
TABLE = """\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |{:^30}|   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
"""
UCX_RATE = (
    TABLE.format("overhead (usec)") + "Final:  200  0.516  2378.005 2378.005   420.52  420.52   421  421\n"
)
UCX_LATENCY = (
    TABLE.format("latency (usec)") + "Final:  1000  13.351  13.612  13.612  0.56  0.56  73465  73465\n"
)
BOX = """\
+----------------------------------------------------------------------------------------------------------+
| API:          protocol layer                                                                             |
| Test:         tag match bandwidth                                                                        |
| Send memory:  host                                                                                       |
| Message size: 1000000                                                                                    |
+----------------------------------------------------------------------------------------------------------+
"""
OSU = "# OSU MPI Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n8   12.50\n"
FOR_A_TIME = READ.replace("RDMA_Read", "RDMA_Write").replace(
    " 65536 ", "Conflicting CPU frequency values detected. CPU Frequency is not max.\n 65536 "
)
LATENCY_FOR_A_TIME = perftest(
    "RDMA_Write Latency Test",
    " #bytes        #iterations       t_avg[usec]    tps average\n"
    " 2             893312          1.11           450112.35\n",
)
OSU_5 = """\
# OSU MPI Latency Test v5.6.2
# Size          Latency (us)
0                       1.02
1                       1.06
4194304               481.33
"""
OSU_CUDA = """\
# OSU MPI-CUDA Bandwidth Test v5.6.2
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size      Bandwidth (MB/s)
1                       0.35
1048576             11804.12
"""
OSU_7_5 = """\
/usr/local/libexec/osu_latency: libnl-3.so.200: no version information available

# OSU MPI Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       3.00              Pass
2                       2.99              Fail
"""
OSU_FULL = """\
# OSU MPI Latency Test v5.9
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       1.50              1.25              9.75       10000
"""
OSU_TAGGED = "".join(f"[1,0]<stdout>:{line}\n" for line in OSU_5.splitlines())


def test_the_program_is_known_by_its_title_and_the_unit_by_its_header():
    for text, program, field, values in (
        (RATE_6, "ib_write_bw", "rate", {2: 7.25 * 2**20, 65536: 11749.92 * 2**20}),
        (READ, "ib_read_bw", "rate", {65536: 10e9}),
        (BOTH, "ib_write_bw", "both_ways_rate", {65536: 10e9}),
        (LATENCY, "ib_send_lat", "latency", {2: 1.06e-6}),
        (UCX_RATE, "ucx_perftest", "rate", {1 << 20: 420.52 * 2**20}),
        (UCX_LATENCY, "ucx_perftest", "latency", {8: 13.351e-6}),
        (BOX + UCX_RATE, "ucx_perftest tag match bandwidth", "rate", {1000000: 420.52 * 2**20}),
        (FOR_A_TIME, "ib_write_bw", "rate", {65536: 10e9}),
        (LATENCY_FOR_A_TIME, "ib_write_lat", "latency", {2: 1.11e-6}),
        (LATENCY, "ib_send_lat", "latency_p99", {2: 1.18e-6}),
        (OSU, "osu_bw", "rate", {8: 12.5e6}),
        (OSU_TAGGED, "osu_latency", "latency", {0: 1.02e-6, 1: 1.06e-6, 4194304: 481.33e-6}),
        (OSU_7_5, "osu_latency", "latency", {1: 3.00e-6, 2: 2.99e-6}),
        (OSU_FULL, "osu_latency", "latency_low", {8: 1.25e-6}),
    ):
        (found,) = program_outputs("some words before\n" + text)
        assert found.program == program
        assert {row.size: getattr(row, field) for row in found.rows} == pytest.approx(values)


def test_one_text_may_hold_several():
    found = program_outputs(LATENCY + RATE_6 + BOX + UCX_RATE + UCX_LATENCY + OSU)
    programs = [one.program.split()[0] for one in found]
    assert programs == ["ib_send_lat", "ib_write_bw", "ucx_perftest", "ucx_perftest", "osu_bw"]
    assert [one.rows[0].size for one in found] == [2, 2, 1000000, 8, 8]


def test_memory_of_gpus_and_failed_validation_are_told():
    assert program_outputs(OSU_CUDA)[0].memory == "cuda" and program_outputs(OSU_5)[0].memory == "host"
    (read,) = program_outputs(READ)
    assert read.is_read and not read.notes and not program_outputs(RATE_6)[0].is_read
    (cut,) = program_outputs(RATE_6[: RATE_6.index(" 65536")])
    assert len(cut.rows) == 1 and "may be cut" in cut.notes[0]
    assert program_outputs(OSU_7_5)[0].notes == ("osu_latency's validation failed at sizes 2",)


def test_what_cannot_be_read_is_told():
    for text, word in (
        ("", "no output of perftest"),
        (RATE_6[: RATE_6.index(" 2  ")], "no row of a bandwidth test"),
        (RATE_6.replace("MiB/sec", "Kb/sec"), "unknown unit"),
        (TABLE.format("overhead (usec)"), "does not print the size"),
        (LATENCY.replace("usec", "cycles"), "unknown unit"),
        ("# OSU MPI Latency Test v5.6.2\n", "no header"),
        (OSU_5.replace("Latency (us)", "Bandwidth (MB/s)"), "not a latency"),
        (OSU_7_5.replace("2.99              Fail", "2.99"), "the line of size 2 is cut: 1 of 2 columns"),
        (OSU_5.replace("1.06", "nan"), "has 'nan'"),
    ):
        with pytest.raises(ValueError, match=r".") as wrong:
            program_outputs(text)
        assert word in str(wrong.value)


def test_the_size_of_ucx_perftests_messages_is_only_taken_where_it_is_clear():
    assert ucx_message_size(UCX_RATE) == 1 << 20 and ucx_message_size(UCX_LATENCY) == 8
    assert ucx_message_size(UCX_RATE.replace("420.52  420.52", "300.00  300.00")) is None
    assert ucx_message_size("Final: 1 2 3 4 0.00 0.00 7 7") is None
    assert ucx_message_size("Final: x") is None


@given(st.data())
def test_any_damage_gives_rows_or_a_reason(data):
    text = data.draw(
        st.sampled_from(
            [RATE_6, READ, BOTH, LATENCY, UCX_RATE, UCX_LATENCY, BOX + UCX_RATE, OSU, OSU_7_5, OSU_FULL]
        )
    )
    at = data.draw(st.integers(0, len(text)))
    odd = data.draw(st.text("0123456789.#|: \neE-[]%/nan٣", max_size=6))
    try:
        found = program_outputs(text[:at] + odd + text[at + data.draw(st.integers(0, 9)) :])
    except ValueError as error:
        assert str(error)
    else:
        assert all(one.rows for one in found)
