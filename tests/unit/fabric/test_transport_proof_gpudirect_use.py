"""Whether NICs reached the memory of GPUs, by logs."""

from tests.unit.fabric.transport_evidence import between, host

from ringleader.fabric.transport_proof.library_transport import gpudirect_use

RECEIVE, SEND = (
    "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/",
    "Channel 00/0 : 1[0] -> 0[0] [send] via NET/",
)


def test_verdicts() -> None:
    for keywords, used, words in (
        ({"nccl_log": [RECEIVE + "IB/0/GDRDMA", SEND + "IB/0/GDRDMA"]}, True, "1 of 1"),
        # Without NVLink NCCL sends through the host: no failure.
        ({"nccl_log": [RECEIVE + "IB/0/GDRDMA", SEND + "IB/0"]}, True, "copied through the host"),
        (
            {
                "nccl_log": [
                    RECEIVE + "IB/0",
                    "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
                ]
            },
            False,
            "mlx5_0: no module",
        ),
        (
            {"nccl_log": [RECEIVE + "IB/0/GDRDMA", RECEIVE.replace("0[0]", "2[0]") + "IB/0"]},
            None,
            "some ranks",
        ),
        ({"nccl_log": [RECEIVE + "Socket/0"]}, False, "NET/Socket/0"),
        ({"nccl_log": ["Connected all rings, use ring PXN 0 GDR 1"]}, True, "GDR 1"),
        ({"nccl": between(9)}, None, "no log says"),
        ({"mpi": between(9)}, None, "no library that reads"),
    ):
        found = gpudirect_use(host({}, gpus=2, **keywords))
        assert found.used is used
        assert words in "; ".join(found.evidence)


def test_ranks_without_gpus() -> None:
    assert gpudirect_use(host({})).evidence == ("its ranks use no GPU",)
