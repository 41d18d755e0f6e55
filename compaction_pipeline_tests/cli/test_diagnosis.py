"""Doctor finds each thing that is wrong, says how to mend it, and lets no failure hide another."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from compaction_pipeline.cli.diagnosis import Finding, Probe, Probes, Soundness, diagnose, is_sound, verdict
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.proofs import untried
from compaction_pipeline.settings import Settings, load_settings, unknown_settings


def fails(message: str) -> Probe:
    def probe() -> str:
        raise StorageUnavailable(message)

    return probe


def catalogs(**probes: Probe) -> Mapping[str, Probe]:
    return probes


SOUND = Probes(
    python=(3, 11, 2),
    java=lambda: "17 in /java",
    spark=lambda: "4.1.4",
    spark_remote=None,
    dagster_home="/dagster",
    dagster_home_problem=lambda home: None,
    state=lambda: "sqlite:///state.db",
    catalogs=lambda: catalogs(lake=lambda: "3 tables"),
)


def found(probes: Probes) -> dict[str, Finding]:
    return {finding.subject: finding for finding in diagnose(probes)}


def test_a_sound_set_up_says_so() -> None:
    findings = diagnose(SOUND)
    assert is_sound(findings)
    assert {finding.soundness for finding in findings} == {Soundness.OK}
    assert [finding.subject for finding in findings] == ["Python", "Java", "Spark", "DAGSTER_HOME", "state database", "catalog lake"]


def test_an_old_python_is_wrong() -> None:
    finding = found(replace(SOUND, python=(3, 9, 18)))["Python"]
    assert finding.soundness is Soundness.WRONG
    assert "3.9.18, but 3.10" in finding.found


def test_a_missing_java_is_wrong_unless_spark_runs_elsewhere() -> None:
    without = replace(SOUND, java=fails("no Java found"))
    assert found(without)["Java"].soundness is Soundness.WRONG
    assert "JAVA_HOME" in (found(without)["Java"].mend or "")
    assert found(replace(without, spark_remote="sc://spark:15002"))["Java"].soundness is Soundness.OK


def test_the_last_line_counts_warnings() -> None:
    assert verdict(diagnose(SOUND)) == "all is well"
    assert verdict(diagnose(replace(SOUND, dagster_home=None, catalogs=catalogs))) == "usable; 2 warnings"
    assert verdict(diagnose(replace(SOUND, java=fails("no Java found")))).startswith("something is wrong")


def test_an_unset_dagster_home_is_a_warning_and_a_bad_one_is_wrong() -> None:
    unset = diagnose(replace(SOUND, dagster_home=None))
    assert is_sound(unset)
    assert Soundness.WARNING in {finding.soundness for finding in unset}
    bad = diagnose(replace(SOUND, dagster_home_problem=lambda home: "does not exist"))
    assert not is_sound(bad)


def test_an_unreachable_state_database_is_not_reported_as_a_fault_of_catalogs() -> None:
    def unreachable() -> Mapping[str, Probe]:
        raise AssertionError("must not be asked")

    findings = found(replace(SOUND, state=fails("no answer"), catalogs=unreachable))
    assert findings["state database"].soundness is Soundness.WRONG
    assert findings["catalogs"].soundness is Soundness.WARNING


def test_one_bad_catalog_hides_no_other() -> None:
    findings = found(replace(SOUND, catalogs=lambda: catalogs(bad=fails("gone"), good=lambda: "2 tables")))
    assert findings["catalog bad"].soundness is Soundness.WRONG
    assert findings["catalog good"].soundness is Soundness.OK


def test_catalogs_that_cannot_be_listed_are_wrong() -> None:
    def broken() -> Mapping[str, Probe]:
        raise ConfigError("newer version")

    assert found(replace(SOUND, catalogs=broken))["catalogs"].soundness is Soundness.WRONG


def test_no_catalog_at_all_tells_how_to_add_one() -> None:
    finding = found(replace(SOUND, catalogs=catalogs))["catalogs"]
    assert finding.soundness is Soundness.WARNING
    assert "catalog add" in (finding.mend or "")


def test_a_spark_task_is_run_only_when_asked() -> None:
    assert "Spark task" not in found(SOUND)
    assert found(replace(SOUND, spark_task=fails("worker died")))["Spark task"].soundness is Soundness.WRONG


def test_a_variable_that_is_no_setting_is_a_warning_that_names_the_one_that_was_meant() -> None:
    names = ["COMPACTION_TASK_SLOT", "COMPACTION_QUUX", "COMPACTION_HOME", "compaction_home", "COMPACTION_DEMO_HOME", "PATH"]
    sentences = unknown_settings(names)
    assert sentences == (
        "COMPACTION_QUUX is set, but no setting has this name, so it has no effect",
        "COMPACTION_TASK_SLOT is set, but no setting has this name, so it has no effect: did you mean COMPACTION_TASK_SLOTS?",
    )
    findings = [each for each in diagnose(replace(SOUND, unknown_settings=sentences)) if each.subject == "settings"]
    assert [(each.soundness, each.found) for each in findings] == [(Soundness.WARNING, sentence) for sentence in sentences]


def test_a_variable_that_is_no_setting_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("COMPACTION_LINGER_SECOND", "3")
    # An earlier test may have set the log to errors only, so this test sets its own level.
    with caplog.at_level(logging.WARNING, "compaction_pipeline"):
        load_settings()
    assert "COMPACTION_LINGER_SECOND is set" in caplog.text
    assert "did you mean COMPACTION_LINGER_SECONDS?" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("COMPACTION_TASK_SLOTS", "abc", "a whole number from 1 to 1000000"),
        ("COMPACTION_TASK_SLOTS", "1.5", "a whole number from 1 to 1000000"),
        ("COMPACTION_READ_SECONDS", "soon", "a number above 0, at most 3600"),
        ("COMPACTION_LINGER_SECONDS", "-1", "a number from 0 to 86400"),
        ("COMPACTION_LOG_LEVEL", "loud", "one of DEBUG, INFO, WARNING, ERROR"),
        ("COMPACTION_ASSET_PREFIX", "/a", "levels of letters, digits and '_', separated by '/'"),
        ("COMPACTION_ASSET_OWNERS", "me@", "team:name or an e-mail address, several separated by commas"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_reported_with_our_own_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, rule: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert str(raised.value) == f"{name} is {value!r} but must be {rule}; correct it, or unset it"


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.metadata])
def test_every_setting_with_a_rule_names_it_in_its_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable = f"COMPACTION_{name.upper()}"
    monkeypatch.setenv(variable, "/ no such value /")
    with pytest.raises(ConfigError, match=f"{variable} is '/ no such value /' but must be .+; correct it, or unset it"):
        load_settings()


def test_what_is_untried_is_a_warning_of_its_catalog() -> None:
    hdfs = {"lake": untried({"type": "sql", "uri": "sqlite:////x", "warehouse": "hdfs://nn/wh"}), "other": untried({"type": "sql"})}
    findings = [one for one in diagnose(replace(SOUND, untried=lambda: hdfs)) if one.soundness is Soundness.WARNING]
    assert [(one.subject, "HDFS are experimental" in one.found) for one in findings] == [("catalog lake", True)]
