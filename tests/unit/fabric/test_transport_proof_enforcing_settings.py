"""Variables that keep libraries from falling back."""

from tests.unit.fabric import machines

from ringleader.fabric.facts import Gpu, HostFacts, MpiFacts
from ringleader.fabric.transport_proof.enforcing_settings import enforcing_settings
from ringleader.fabric.transport_proof.requirement import parse_requirement


def facts(*, gpus: int = 0, nccl: str = "", mpi: str = "", ucx: bool | None = None) -> HostFacts:
    found = MpiFacts(family=mpi, version="5.0", mpirun="mpirun", built_with={"ucx": ucx}) if mpi else None
    cards = tuple(Gpu(index=index, pci_address="") for index in range(gpus))
    return machines.host(nccl=nccl, mpi=found, gpus=cards)


def test_variables() -> None:
    for words, host, user, variables in (
        ("rdma", {"gpus": 1, "nccl": "2.27.7"}, {}, {"NCCL_NET": "IB"}),
        ("tcp", {"gpus": 1, "nccl": "2.27.7"}, {}, {"NCCL_NET": "Socket"}),
        ("rdma", {"gpus": 1, "nccl": "2.8.3"}, {}, {}),
        ("efa", {"gpus": 1, "nccl": "2.27.7"}, {}, {}),
        ("rdma", {"gpus": 1, "nccl": "2.27.7"}, {"NCCL_NET": "Socket"}, {}),
        ("rdma", {"mpi": "Open MPI", "ucx": True}, {}, {"OMPI_MCA_pml": "ucx", "UCX_TLS": "ib,sm,self"}),
        # What GPUs exchange goes by NCCL.
        ("rdma", {"mpi": "Open MPI", "ucx": True, "gpus": 1}, {}, {}),
        ("rdma", {"mpi": "Open MPI", "ucx": False}, {}, {}),
        ("tcp", {"mpi": "Open MPI", "ucx": True}, {}, {"OMPI_MCA_pml": "ob1"}),
        ("efa", {"mpi": "Open MPI"}, {}, {}),
        ("efa", {"mpi": "Intel MPI"}, {}, {"I_MPI_OFI_PROVIDER": "efa"}),
        ("efa", {"mpi": "MPICH"}, {}, {"FI_PROVIDER": "efa"}),
        ("shm", {"mpi": "Open MPI", "ucx": True, "gpus": 1, "nccl": "2.27.7"}, {}, {}),
    ):
        found = enforcing_settings(parse_requirement([words]), facts(**host), user)
        assert found.variables == variables
        assert all(one.reason for one in (*found.settings, *found.not_set, *found.left_to_the_user))


def test_what_the_user_has_set_is_named() -> None:
    host = facts(gpus=1, nccl="2.27.7")
    (found,) = enforcing_settings(parse_requirement(["rdma"]), host, {"NCCL_NET": "IB"}).not_set
    assert (found.variable, found.reason) == ("NCCL_NET", "the user has set NCCL_NET")
