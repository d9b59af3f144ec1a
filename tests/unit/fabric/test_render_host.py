"""``render env`` and ``render topology``: what they print of hosts in files, and of no host at all."""

import json
import shlex
from xml.etree import ElementTree

import pytest
from tests.unit.fabric.machines import GPU_HOST, changed, gpu_machine, host, port, rdma

from ringleader.cli.render.topology import topology_text
from ringleader.dataclass_json import document
from ringleader.fabric.settings.setting import Setting, Settings
from ringleader.fabric.topology.matrix import topology_matrix
from ringleader.render.transport_settings import FORMATS, dry_run_lines, settings_values


@pytest.fixture
def written(tmp_path):
    def write(facts) -> str:
        path = tmp_path / "host.json"
        path.write_text(json.dumps(document(facts)))
        return str(path)

    return write


@pytest.mark.parametrize(("word", "ending"), [("shell", "sh"), ("docker-env", "env"), ("kubernetes", "yaml")])
def test_the_formats(call, written, golden, word, ending):
    code, out, err = call("render", "env", "--facts-from", written(GPU_HOST), "--format", word)
    assert (code, err) == (0, "")
    golden(f"render-env.{ending}", out)


def test_a_local_rank(call, written):
    path = written(gpu_machine())
    assert call("render", "env", "--facts-from", path, "--local-rank", "7")[0] == 0
    for rank in ("8", "99", "-1", "x"):
        code, _, err = call("render", "env", "--facts-from", path, "--local-rank", rank)
        assert code == 2 and "--local-rank" in err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"hostname": 7}', "\x00", "[" * 100_000, '{"hostname": "h", "clock": []}']
)
def test_a_file_without_facts(call, tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    for name in ("env", "topology"):
        code, out, err = call("render", name, "--facts-from", str(path))
        assert (code, out) == (2, "")
        assert err.startswith("ringleader: --facts-from: ") and str(path) in err
    path.write_text(json.dumps([document(GPU_HOST), document(host())]))
    code, _, err = call("render", "env", "--facts-from", str(path))
    assert code == 2 and "holds 2 hosts, and one is wanted" in err
    code, _, err = call("render", "env", "--facts-from", str(tmp_path / "none.json"))
    assert code == 2 and "cannot be read" in err


def test_topology(call, written, golden, tmp_path):
    path = written(gpu_machine(gpus=2, nics=2))
    code, out, _ = call("render", "topology", "--facts-from", path)
    assert code == 0
    golden("render-topology.txt", out)
    values = json.loads(call("render", "topology", "--facts-from", path, "--format", "json")[1])
    assert [one["nic"] for one in values["nics"]] == ["mlx5_0:1", "mlx5_1:1"]
    facts = gpu_machine(gpus=1, nics=1)
    text = topology_text(facts, topology_matrix(facts), ("GPU0–mlx5_0: PIX here, SYS there",))
    assert "nvidia-smi says otherwise: GPU0–mlx5_0: PIX here, SYS there\n" in text
    assert values["nics"][0]["gpudirect"] == "yes" and len(values["gpudirect"]) == 5
    drawing = tmp_path / "host.svg"
    assert call("render", "topology", "--facts-from", path, "--format", "svg", "-o", str(drawing))[0] == 0
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")


def test_topology_of_a_host_without_either(call, written):
    path = written(host())
    assert call("render", "topology", "--facts-from", path)[1] == "node1 has no GPU and no RDMA device\n"
    down = changed(gpu_machine(gpus=1, nics=1), rdma_devices=(rdma("mlx5_0", port(state="DOWN")),))
    assert (
        "not used: mlx5_0:1: its state is DOWN"
        in call("render", "topology", "--facts-from", written(down))[1]
    )


def test_nothing_gets_out_of_its_line():
    evil = "a'b\nexport EVIL=1 $(date)"
    found = Settings(settings=(Setting(variable="NCCL_IB_HCA", value=evil, reason=evil, library="NCCL"),))
    shell = FORMATS["shell"]("h\n1", found)
    assert shlex.split(shell, comments=True) == ["export", f"NCCL_IB_HCA={evil}"]
    assert len(FORMATS["docker-env"]("h", found).splitlines()) == 3
    assert settings_values("h", found)["settings"][0]["value"] == evil
    assert len(dry_run_lines({"h1": found})) == 1
