"""Writes the results of checks as JUnit XML, which CI services show as tests. Pure, except for `JUnitFile`."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as XML

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.checks.every_check import CheckResult
from compaction_pipeline.core.insight.checks.gate import Checked
from compaction_pipeline.core.insight.checks.judgement import Severity

_SUITE = "compaction-pipeline check"
# XML 1.0 allows no other characters. A reason may hold the bytes of a corrupt file.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitFile:
    """The file of a report. A report of an earlier command is removed at once, so that nobody takes it for this command's report.

    Raises ConfigError when the folder does not exist, or when the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"--junit {path}: the folder {path.absolute().parent} does not exist; create it first")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def write(self, checked: Checked, fail_on: Severity) -> None:
        """Write the report. Raises ConfigError."""
        try:
            self._path.write_bytes(junit_xml(checked, fail_on))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"--junit {self._path}: the file cannot be written ({error.strerror or error}); choose another path")


def junit_xml(checked: Checked, fail_on: Severity) -> bytes:
    """The report in UTF-8: a test case for each check, and one for each table or catalog that could not be read or was not judged.

    A check that stops the pipeline is a failure. Another one that failed, or that has no answer, is a skipped test with its text, because
    JUnit has no word for a warning. What could not be read, or had to be judged and was not, is an error.
    """
    stopping = set(checked.stopping(fail_on))
    errors = [(f"{name} can be read", "unread", why) for name, why in checked.unread.items()]
    errors += [(f"{name} is judged", "unjudged", why) for name, why in checked.unjudged.items()]
    cases = len(checked.results) + len(errors)
    warnings = sum(not result.passed and result not in stopping for result in checked.results)
    counts = {"tests": cases, "failures": len(stopping), "errors": len(errors), "skipped": warnings}
    attributes = {"name": _SUITE, **{name: str(count) for name, count in counts.items()}}
    root = XML.Element("testsuites", attributes)
    suite = XML.SubElement(root, "testsuite", attributes)
    for result in checked.results:
        _add_check(suite, result, result in stopping)
    for name, kind, why in errors:
        case = XML.SubElement(suite, "testcase", {"classname": _SUITE, "name": _clean(name)})
        XML.SubElement(case, "error", {"type": kind, "message": _clean(why)})
    XML.indent(root)
    document: bytes = XML.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _add_check(suite: XML.Element, result: CheckResult, stops: bool) -> None:
    check, judgement = result.check, result.judgement
    case = XML.SubElement(suite, "testcase", {"classname": _SUITE, "name": check.name})
    text = _clean(judgement.text)
    if result.passed:
        XML.SubElement(case, "system-out").text = text
        return
    found = judgement.failures or judgement.unjudged
    failing = _clean("\n".join([*(f"{failure.name}: {failure.reason}" for failure in found), "", check.description]))
    if stops:
        kind = check.severity.value if result.failed else "NOT_EVALUATED"
        XML.SubElement(case, "failure", {"type": kind, "message": text}).text = failing
    else:
        XML.SubElement(case, "skipped", {"message": f"warning: {text}" if result.failed else text})
        XML.SubElement(case, "system-out").text = failing


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
