"""`state`, `doctor`: the version of the state database, the key of its secrets, and what keeps this set-up from working."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import version as installed_version
from pathlib import Path

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.diagnosis import Probe, Probes, diagnose, is_sound, verdict
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.render import findings_table
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.errors import CompactionError, ConfigError, StorageUnavailable
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.tables.proofs import untried
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.words import count_text

_SPARK = (4, 1)

state = typer.Typer(
    no_args_is_help=True,
    help="Look after the state database.\n\nExamples:\n\n  compaction-pipeline state upgrade\n  compaction-pipeline state rotate-key",
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(state, name="state")


@state.command(epilog=GLOBAL_HELP)
def upgrade(context: typer.Context) -> None:
    """Bring the schema of the state database to the version of this program.

    PostgreSQL needs this command. SQLite is upgraded without it, after a backup copy.

    Examples:

      compaction-pipeline state upgrade
    """
    from compaction_pipeline.bootstrap import upgrade_state_database
    from compaction_pipeline.settings import load_settings

    settings = load_settings()
    upgraded = upgrade_state_database(settings)
    shown = masked_text(settings.state_database_url)
    said = "was upgraded to this version" if upgraded else "already has this version: nothing had to be upgraded"
    context.obj.output.answer({"state": shown, "upgraded": upgraded}, f"the state database {shown} {said}")


@state.command("rotate-key", epilog=GLOBAL_HELP)
def rotate_key(context: typer.Context) -> None:
    """Encrypt the secrets of catalogs and groups in the state database with a new key, and forget the old one.

    Other processes go on meanwhile. SQLite gets a new key in its key file. With COMPACTION_SECRET_KEY or COMPACTION_SECRET_KEY_FILE, the
    first key given is the new one; give the old one behind it until the command has run, to every process. The secrets themselves stay
    the same: whoever saw them must change them at their source.

    Examples:

      compaction-pipeline state rotate-key
      COMPACTION_SECRET_KEY=$NEW,$OLD compaction-pipeline state rotate-key
    """
    from compaction_pipeline.bootstrap import rotate_secret_key
    from compaction_pipeline.settings import load_settings

    count = rotate_secret_key(load_settings())
    of = "one catalog or group" if count == 1 else f"{count} catalogs and groups"
    said = f"the secrets of {of} are encrypted with the new key"
    context.obj.output.answer({"rotated": count}, said if count else "no catalog and no group has an encrypted secret: nothing changed")


@commands.command(epilog=GLOBAL_HELP)
def doctor(
    context: typer.Context,
    spark: bool = typer.Option(False, "--spark", help="Also start Spark, and run one task there."),
    write_check: bool = typer.Option(False, "--write-check", help="Also write and delete one tiny file in a table of each catalog."),
) -> None:
    """Say what is wrong with this set-up, and how to mend it: Python, Java, Spark, DAGSTER_HOME, state database, catalogs and storage.

    The command ends with 1 when something is wrong. It writes to storage only with --write-check.

    Examples:

      compaction-pipeline doctor
      compaction-pipeline doctor --spark --json
      compaction-pipeline doctor --write-check
    """
    with Session(context) as session:
        findings = diagnose(_probes(session, spark, write_check))
        sound = is_sound(findings)
        session.output.answer({"sound": sound, "findings": findings}, findings_table(findings), verdict(findings))
    raise typer.Exit(ExitCode.DONE if sound else ExitCode.FAILED)


def _probes(session: Session, spark: bool, write_check: bool) -> Probes:
    from compaction_pipeline.settings import unknown_settings

    services = session.services
    settings = services.settings

    def java() -> str:
        found = services.find_java()
        return "; ".join([f"{found.version} from {found.source} ({found.path})", *found.passed_over])

    def state_database() -> str:
        services.explore_catalogs.entries()
        return masked_text(settings.state_database_url)

    def catalogs() -> Mapping[str, Probe]:
        return {entry.name: _catalog(session, entry, write_check) for entry in services.explore_catalogs.entries()}

    def catalogs_file() -> str:
        return f"{settings.catalogs_file}: {count_text(services.manage_catalogs.check_definitions(), 'catalog')}"

    def notices_file() -> str:
        return "; ".join([str(settings.notices_file), *services.send_notices.check()])

    return Probes(
        python=sys.version_info[:3],
        java=_spoken(java),
        spark=_spark_version,
        spark_remote=settings.spark_remote,
        dagster_home=os.environ.get("DAGSTER_HOME"),
        dagster_home_problem=_folder_problem,
        state=_spoken(state_database),
        catalogs=catalogs,
        untried=lambda: {entry.name: untried(entry.properties) for entry in services.explore_catalogs.entries()},
        spark_task=_spoken(services.try_spark) if spark else None,
        unknown_settings=unknown_settings(os.environ),
        catalogs_file=_spoken(catalogs_file) if settings.catalogs_file else None,
        notices_file=_spoken(notices_file) if settings.notices_file else None,
    )


def _catalog(session: Session, entry: CatalogEntry, write_check: bool) -> Probe:
    def probe() -> str:
        # Older versions took any property.
        session.services.explore_catalogs.check_properties(entry.name, entry.properties)
        tables = session.services.explore_catalogs.check(entry.name, write_check)
        done = "read and written" if write_check else "read"
        return count_text(len(tables), "table") + (f"; the files of {tables[0]} can be {done}" if tables else "")

    return _spoken(probe)


def _spark_version() -> str:
    text = installed_version("pyspark")
    if tuple(int(part) for part in text.split(".")[:2]) != _SPARK:
        raise ConfigError(f"PySpark {text} is installed but must be {'.'.join(map(str, _SPARK))}.x")
    return f"PySpark {text}"


def _folder_problem(folder: str) -> str | None:
    path = Path(folder)
    if not path.is_absolute():
        return "is no absolute path, and Dagster refuses it"
    if not path.is_dir():
        return "is no folder"
    return None if os.access(path, os.W_OK | os.X_OK) else "cannot be written by this user"


def _spoken(probe: Probe) -> Probe:
    """Turn any unexpected failure of a probe into a finding, so that `doctor` itself never fails."""

    def spoken() -> str:
        try:
            return probe()
        except CompactionError:
            raise
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise StorageUnavailable(f"{type(error).__name__}: {masked_text(first)}") from error

    return spoken
