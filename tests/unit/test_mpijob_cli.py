"""``ringleader render mpijob`` and ``ringleader operator crd``: exit codes, what stands on which stream."""

import io
import json
import sys
from pathlib import Path

import pytest
from tests.commands import finished

from ringleader.kubernetes.mpijob.crd import crd
from ringleader.kubernetes.mpijob.yaml_text import documents

FILES = Path(__file__).parent.parent / "golden" / "mpijob"
GOOD = (FILES / "tensorflow-benchmarks.yaml").read_text()
OLD = (FILES / "tensorflow-benchmarks.old.yaml").read_text()


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_manifest_with_its_defaults(call, tmp_path):
    (tmp_path / "job.yaml").write_text(GOOD.replace("  slotsPerWorker: 1\n", ""))
    assert call("render", "mpijob", "job.yaml") == (0, GOOD, "")


def test_as_json_one_object_or_a_list(call, tmp_path):
    (tmp_path / "job.yaml").write_text(GOOD)
    code, out, _ = call("render", "mpijob", "--json", "job.yaml")
    (document,) = documents(GOOD, "")
    assert (code, json.loads(out)) == (0, document.value)
    code, out, _ = call("render", "mpijob", "--json", "job.yaml", "job.yaml")
    assert json.loads(out) == {"apiVersion": "v1", "kind": "List", "items": [document.value] * 2}


def test_standard_input(call, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert call("render", "mpijob", "-") == (0, GOOD, "")


def test_converting_lists_changes_on_standard_error(call, tmp_path):
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(GOOD)
    code, out, err = call("render", "mpijob", "--convert", "old.yaml", "new.yaml")
    assert (code, out) == (0, f"{GOOD}---\n{GOOD}")
    assert err.startswith("old.yaml:2 tensorflow-benchmarks:\n  apiVersion: ")
    assert "  spec.cleanPodPolicy: is now spec.runPolicy.cleanPodPolicy\n" in err
    assert err.endswith("new.yaml:1 tensorflow-benchmarks: is v2beta1 already, nothing changed\n")
    assert err.index("NOT CARRIED OVER") > err.index("ringleader/spawn")


def test_an_old_manifest_asks_to_be_converted(call, tmp_path):
    (tmp_path / "old.yaml").write_text(OLD)
    code, out, err = call("render", "mpijob", "old.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "ringleader: old.yaml:2 apiVersion: kubeflow.org/v1alpha2 is an older version\n"
        "    → ringleader render mpijob --convert FILE\n"
    )


def test_all_faults_of_all_files(call, tmp_path):
    (tmp_path / "a.yaml").write_text("kind: [")
    (tmp_path / "b.yaml").write_text(
        GOOD.replace("replicas: 2", "replicas: 0").replace("  name: ten", "  name: .ten")
    )
    (tmp_path / "c.yaml").write_bytes(b"a: 1\nb: \xff\n")
    code, out, err = call("render", "mpijob", "a.yaml", "b.yaml", "c.yaml", "d.yaml")
    assert (code, out) == (2, "")
    wheres = [line.split()[1] for line in err.splitlines() if line.startswith("ringleader: ")]
    assert sorted(wheres) == ["a.yaml:2:", "b.yaml:4", "b.yaml:52", "c.yaml:2:", "d.yaml:"], err


def test_other_objects_pass_and_lists_are_taken_apart(call, tmp_path):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    (document,) = documents(GOOD, "")
    (tmp_path / "all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, document.value]})
    )
    code, out, _ = call("render", "mpijob", "all.json")
    assert code == 0
    assert [one.value for one in documents(out, "")] == [config, document.value]
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, _, err = call("render", "mpijob", "config.json")
    assert (code, "there is no MPIJob" in err) == (2, True)


def test_a_fault_in_a_list_names_its_line(call, tmp_path):
    lines = ["kind: MPIJobList", "apiVersion: kubeflow.org/v2beta1", "items:", "- kind: MPIJob", "  spec: {}"]
    (tmp_path / "list.yaml").write_text("\n".join(lines))
    code, _, err = call("render", "mpijob", "list.yaml")
    assert code == 2
    assert "list.yaml:5 spec.mpiReplicaSpecs: missing" in err
    assert "list.yaml:4 apiVersion: missing" in err


@pytest.mark.parametrize("kind", ["MpiJob", "mpijob", "TFJob"])
def test_a_kind_of_our_group_is_no_foreign_object(call, tmp_path, kind):
    (tmp_path / "job.yaml").write_text(GOOD.replace("kind: MPIJob", f"kind: {kind}"))
    code, _, err = call("render", "mpijob", "job.yaml")
    assert (code, f"'{kind}', an MPIJob is needed" in err) == (2, True)


def test_the_crd(call):
    code, out, err = call("operator", "crd")
    assert (code, out, err) == (0, (FILES / "crd.yaml").read_text(), "")
    code, out, _ = call("operator", "crd", "--json")
    assert (code, json.loads(out)) == (0, crd())


@pytest.mark.parametrize("argv", [("render", "mpijob", "job.yaml"), ("operator", "crd")])
@pytest.mark.process
def test_without_the_extra_it_is_said_what_to_install(argv, tmp_path):
    program = (
        "import sys; sys.modules['yaml'] = None; from ringleader.cli.main import main; main(sys.argv[1:])"
    )
    (tmp_path / "job.yaml").write_text(GOOD)
    done = finished([sys.executable, "-c", program, *argv], cwd=tmp_path, timeout=60)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr == (
        "ringleader: the Python package yaml is missing\n    → pip install 'ringleader[kubernetes]'\n"
    )


def test_a_compute_domain_comes_before_its_job(call):
    """Fields: kubernetes-sigs/dra-driver-nvidia-gpu 61de3f2, api/…/resource/v1beta1/computedomain.go."""
    words = ("--image", "x", "--compute-domain", "nv", "-n", "2", "--job-name", "t", "--json", "--", "python")
    code, out, _ = call("render", "mpijob", "--namespace", "team", *words)
    domain, job = json.loads(out)["items"]
    assert code == 0
    assert domain["spec"] == {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "nv"}}}
    assert domain["metadata"] == {"name": "nv", "namespace": "team"}
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert worker["resourceClaims"] == [{"name": "nvlink", "resourceClaimTemplateName": "nv"}]
    assert "resourceClaims" not in job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
