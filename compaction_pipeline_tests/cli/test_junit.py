"""The JUnit report: what CI services count as failed, as an error and as skipped, and text that would break XML."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as XML

import pytest

from compaction_pipeline.cli.junit import JUnitFile, junit_xml
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.checks.every_check import CHECKS, CheckResult
from compaction_pipeline.core.insight.checks.gate import Checked
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement, Severity
from compaction_pipeline_tests.defs.values import ORDERS, day

NASTY = "]]> <a & \"b\" 'c'> \x00\x1b[31m \ud800 \ufffe ü → 𝄞"


def report(fail_on: Severity, reason: str = "why", **unread: str) -> XML.Element:
    """The report of checks that fail all."""
    ill = Judgement("nodes", 2, (Failure(ORDERS, day(1), reason), Failure(ORDERS, day(2), reason)))
    return XML.fromstring(junit_xml(Checked(tuple(CheckResult(check, ill) for check in CHECKS), unread), fail_on))


def test_a_failed_check_is_a_failure_and_a_warning_that_stops_nothing_is_skipped() -> None:
    root = report(Severity.ERROR, orders="no answer")
    errors = {check.name for check in CHECKS if check.severity is Severity.ERROR}
    warnings = {check.name for check in CHECKS} - errors
    cases = list(root.iter("testcase"))
    assert {case.get("name") for case in cases if case.find("failure") is not None} == errors
    assert {case.get("name") for case in cases if case.find("skipped") is not None} == warnings
    assert [case.get("name") for case in cases if case.find("error") is not None] == ["orders can be read"]
    counts = {name: str(count) for name, count in (("failures", len(errors)), ("skipped", len(warnings)), ("errors", 1))}
    for element in (root, root[0]):
        assert element.attrib == {"name": "compaction-pipeline check", "tests": str(len(CHECKS) + 1), **counts}


def test_every_failed_check_is_a_failure_when_warnings_stop_the_pipeline() -> None:
    assert len(list(report(Severity.WARN).iter("failure"))) == len(CHECKS)


def test_a_check_that_passes_has_its_sentence_as_output() -> None:
    well = Checked(tuple(CheckResult(check, Judgement("nodes", 7)) for check in CHECKS))
    root = XML.fromstring(junit_xml(well, Severity.WARN))
    assert {element.text for element in root.iter("system-out")} == {"all 7 nodes pass"}
    assert root.get("failures") == root.get("errors") == root.get("skipped") == "0"


def test_a_check_without_an_answer_is_skipped_unless_it_stops_the_pipeline() -> None:
    missing = Judgement("nodes", 0, unjudged=(Failure(ORDERS, None, "no history"),))
    results = tuple(CheckResult(check, missing) for check in CHECKS)
    lenient = XML.fromstring(junit_xml(Checked(results), Severity.WARN))
    assert (lenient.get("failures"), lenient.get("skipped")) == ("0", str(len(CHECKS)))
    assert {one.get("message") for one in lenient.iter("skipped")} == {f"not evaluated: {ORDERS} could not be judged: no history"}
    strict = XML.fromstring(junit_xml(Checked(results, strict=True), Severity.WARN))
    assert {one.get("type") for one in strict.iter("failure")} == {"NOT_EVALUATED"}
    assert strict.get("failures") == str(sum(check.needs_history for check in CHECKS))


def test_a_failure_lists_every_node_and_what_to_do() -> None:
    failure = next(report(Severity.ERROR).iter("failure"))
    assert "2 of 2 nodes fail" in (failure.get("message") or "")
    assert f"{ORDERS} {day(2)}: why" in (failure.text or "")
    assert "When this is red" in (failure.text or "")


def test_text_that_would_break_xml_is_escaped_and_what_xml_cannot_hold_is_replaced() -> None:
    root = report(Severity.ERROR, NASTY, orders=NASTY)
    shown = "]]> <a & \"b\" 'c'> \ufffd\ufffd[31m \ufffd \ufffd ü → 𝄞"
    assert shown in (next(root.iter("failure")).get("message") or "")
    assert shown in (next(root.iter("failure")).text or "")
    assert next(root.iter("error")).get("message") == shown


def test_a_report_of_an_earlier_command_is_removed_before_anything_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text("old")
    JUnitFile(path)
    assert not path.exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the folder .*nowhere does not exist; create it first"):
        JUnitFile(tmp_path / "nowhere" / "report.xml")


def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--junit .*: the file cannot be written .*; choose another path"):
        JUnitFile(tmp_path)
