"""deploy/monitoring: every expression speaks of numbers that the operator has; the objects have known fields.

Fields are those of prometheus-operator 0d9d227 (``pkg/apis/monitoring/v1/prometheusrule_types.go`` and
``types.go``) and of Grafana's schema 36 (00139e8, ``kinds/dashboard/dashboard_kind.cue``). Never loaded into
either.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ringleader.kubernetes.mpijob.status import ConditionType
from ringleader.kubernetes.objects.operator_manifests import RESOURCES, Installation, manifests
from ringleader.kubernetes.operator.runtime.monitoring import Metrics

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alert-rules.yaml").read_text())
BOARD = json.loads((FOLDER / "dashboard.json").read_text())
MONITOR = yaml.safe_load((FOLDER / "service-monitor.yaml").read_text())
ALERTS = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]
TARGETS = [target for panel in BOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [target["expr"] for target in TARGETS]
OF_PROMETHEUS = {"le", "service", "pod", "namespace", "exported_namespace"}
"""Labels that histograms and scraping through a Service add."""


def samples():
    """Return each number of the operator with its labels."""
    metrics = Metrics()
    metrics.conditions((), [str(one) for one in ConditionType])
    metrics.job("team", "train-launcher")
    metrics.requested("get", "pods", "2xx", 0.1)
    metrics.passes.labels("done").observe(0.1)
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_the_operator_has(expression):
    known = samples()
    names = set(re.findall(r"\b(?:mpi_operator|process)_\w+", expression))
    assert names and names <= set(known), names - set(known)
    labels = set().union(*(known[name] for name in names)) | OF_PROMETHEUS
    for inside in re.findall(r"{([^}]*)}|by \(([^)]*)\)", expression):
        given = {re.split(r"[=!~]", part)[0].strip() for part in ",".join(filter(None, inside)).split(",")}
        assert given <= labels, given - labels
    parser = pytest.importorskip("promql_parser", reason="pip install ringleader[dev]")
    parser.parse(expression.replace("$namespace", ".*"))


def test_alerts_say_what_to_do():
    assert set(RULES["spec"]) == {"groups"}
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"})
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    (memory,) = [rule for rule in ALERTS if rule["alert"].endswith("Memory")]
    assert RESOURCES["limits"]["memory"] == "512Mi" and "512 MiB" in memory["annotations"]["description"]


def test_the_monitor_finds_the_service():
    (service,) = [one for one in manifests(Installation(image="i:1")) if one["kind"] == "Service"]
    spec = MONITOR["spec"]
    assert set(spec) == {"selector", "endpoints"}
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert set(endpoint) == {"port", "path", "interval"}
    assert MONITOR["metadata"]["namespace"] == service["metadata"]["namespace"]
    uses = " ".join(EXPRESSIONS)
    assert set(re.findall(r'service="([^"]*)"', uses)) == {service["metadata"]["name"]}


_OF_BOARD = {"uid", "title", "tags", "timezone", "editable", "graphTooltip", "schemaVersion", "version"}
_OF_BOARD |= {"refresh", "time", "templating", "annotations", "links", "panels"}
_OF_PANEL = {"id", "type", "title", "description", "datasource", "gridPos", "fieldConfig", "targets"}


def test_the_dashboard_is_of_its_schema():
    assert set(BOARD) == _OF_BOARD and BOARD["schemaVersion"] == 36
    assert re.fullmatch(r"[\w-]{8,40}", BOARD["uid"])
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert {one["type"] for one in variables.values()} <= {"query", "datasource"}
    taken = set()
    for panel in BOARD["panels"]:
        assert set(panel) == _OF_PANEL and panel["type"] in ("stat", "timeseries")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        at = panel["gridPos"]
        assert at["w"] > 0 and at["h"] > 0 and at["x"] >= 0 and at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD)))
    assert used == set(variables)
