"""`docs/service.md` lists the metrics of `/metrics`. This test makes the list from an answer of the server, and checks that answer."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline_tests.api.merges import merged, planned
from compaction_pipeline_tests.api.served import Served
from compaction_pipeline_tests.written_pages import check_part, table

PAGE = "docs/service.md"
UNITS = ("seconds", "bytes")
_ADDED = ("_total", "_bucket", "_sum", "_count", "_created")
"""What the format adds to the name of a metric in its samples."""


def scraped(served: Served) -> list[Metric]:
    """The metrics of a server in which everything has happened that they count."""
    planned(served)
    planned(served, name="u")
    # A server counts what ends after its first scrape.
    served.ask("GET", "/metrics", served.token(Role.READER))
    served.house.pass_time(30)
    worker = served.registered()
    [assignment] = worker.poll()
    worker.complete(assignment["task"]["attempt_id"], merged(assignment))
    assert len(list(served.house.services.commit_due.commit())) == 1
    # Ends are counted a few seconds later.
    served.house.pass_time(6)
    served.house.services.stores.center.note_alerts([Alert("raw", "team-a", "silent")])
    answer = served.ask("GET", "/metrics", served.token(Role.READER))
    assert answer.headers["content-type"].startswith("text/plain; version=")
    # The parser keeps the order of the answer. Prometheus itself does not care.
    return sorted(text_string_to_metric_families(answer.text), key=lambda each: each.name)


def unit_of(metric: Metric) -> str:
    return next((unit for unit in UNITS if metric.name.endswith(f"_{unit}")), "count")


def test_the_page_lists_every_metric_with_its_type_its_unit_and_its_labels(served: Served) -> None:
    rows = []
    # The parser sets apart the times at which counters and histograms were made.
    for metric in scraped(served):
        if metric.name.endswith("_created"):
            continue
        assert metric.samples, f"{metric.name} has no sample here, so nobody knows its labels"
        labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
        shown = f"{metric.name}_total" if metric.type == "counter" else metric.name
        rows.append((f"`{shown}`", metric.type, unit_of(metric), ", ".join(f"`{label}`" for label in labels), metric.documentation))
    head = ("metric", "type", "unit", "labels", "meaning")
    check_part(PAGE, "metrics", __file__, table(head, rows))


def test_the_metrics_keep_the_rules_of_prometheus_for_names(served: Served) -> None:
    names = [metric.name for metric in scraped(served)]
    assert len(names) == len(set(names))
    for metric in scraped_types(served):
        assert metric.name.startswith("compaction_")
        assert metric.documentation
        assert not any(metric.name.endswith(ending) for ending in _ADDED if ending != "_created"), metric.name
        assert not {"ms", "milliseconds", "minutes", "kb", "mb", "gauge", "counter", "histogram"} & set(metric.name.split("_"))


def test_what_waits_in_the_dependency_center_is_in_the_metrics(served: Served) -> None:
    services = served.house.services
    raw = {"name": "raw", "period": "day", "virtual": True, "since": "2026-01-01"}
    load = {"name": "load", "period": "day", "since": served.house.now.date().isoformat(), "needs": [{"job": "raw", "times": -1}]}
    services.center.save_project({"project": "sales", "receiver": "airflow", "jobs": [raw, load]})
    services.lead_center.run()
    yesterday = (served.house.now - timedelta(days=1)).date().isoformat()
    services.center.report(f"job=raw && biz={yesterday}", InstanceState.SUCCEEDED, "test")
    served.house.pass_time(7)
    assert _of_center(served)["compaction_center_oldest_report_seconds"] == 7
    services.lead_center.run()
    served.house.pass_time(5)
    table = "table=lake.a.b && watermark="
    services.stores.center.post([Fact(table, served.house.now, "tables", reached) for reached in (1, 2, 3)], missed_by="tables")
    found = _of_center(served)
    assert found["compaction_center_instances READY"] == 1
    assert found["compaction_center_oldest_unclaimed_seconds"] == 5
    assert found["compaction_center_p99_delay_seconds"] == 0
    assert found["compaction_center_missed_events"] == 3
    services.stores.center.note_alerts([Alert("raw", "team-a", "silent"), Alert("load", "team-a", "silent"), Alert("old", "", "silent")])
    found = _of_center(served)
    assert {name: value for name, value in found.items() if "alerts" in name} == {
        "compaction_center_alerts team-a": 2,
        "compaction_center_alerts ": 1,
    }


def _of_center(served: Served) -> dict[str, float]:
    text = served.ask("GET", "/metrics", served.token(Role.READER)).text
    samples = [sample for metric in text_string_to_metric_families(text) for sample in metric.samples]
    named = {" ".join((sample.name, *sample.labels.values())): sample.value for sample in samples}
    return {name: value for name, value in named.items() if name.startswith("compaction_center_")}


def scraped_types(served: Served) -> list[Metric]:
    text = served.ask("GET", "/metrics", served.token(Role.READER)).text
    return [metric for metric in text_string_to_metric_families(text) if not metric.name.endswith("_created")]
