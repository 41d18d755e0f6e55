"""The query of `deploy/kubernetes/keda.yaml`, asked of an answer of the server: the tasks that a group has for its optimizers now."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from compaction_pipeline.core.access.token import Role
from compaction_pipeline_tests.api.merges import merged, planned
from compaction_pipeline_tests.api.served import Served

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "keda.yaml"
_QUERY = re.compile(r'sum\(max by \(state\) \((\w+)\{group="(\w+)",state=~"([\w|]+)"\}\)\)')


def demand(served: Served) -> float:
    """What Prometheus would answer, when it scrapes this server alone."""
    [trigger] = yaml.safe_load(MANIFEST.read_text())["spec"]["triggers"]
    asked = _QUERY.fullmatch(trigger["metadata"]["query"])
    assert asked is not None
    name, group, states = asked.groups()
    answer = served.ask("GET", "/metrics", served.token(Role.READER)).text
    [family] = [each for each in text_string_to_metric_families(answer) if each.name == name]
    of = {each.labels["state"]: each.value for each in family.samples if each.labels["group"] == group}
    return sum(of[state] for state in states.split("|"))


def test_keda_counts_the_tasks_that_wait_and_those_that_run(served: Served) -> None:
    assert demand(served) == 0
    planned(served)
    planned(served, name="u")
    assert demand(served) == 2
    worker = served.registered()
    [assignment] = worker.poll()
    # A task that runs still needs its optimizer, and one that is merged does not.
    assert demand(served) == 2
    assert worker.complete(assignment["task"]["attempt_id"], merged(assignment)).status_code == 200
    assert demand(served) == 1
