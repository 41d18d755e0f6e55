"""`catalog file add | list | remove`: the files of Hadoop and Kerberos that catalogs name."""

from __future__ import annotations

from pathlib import Path

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.catalogs.site_files import KIND_OF_KEY, MOST_BYTES, SiteFile
from compaction_pipeline.core.errors import ConfigError

files = typer.Typer(
    no_args_is_help=True,
    help="Store the site files, krb5.conf and keytab that catalogs name. Their contents are stored encrypted and never given out again."
    "\n\nExamples:\n\n  compaction-pipeline catalog file list\n  compaction-pipeline catalog file add --help",
    epilog=GLOBAL_HELP,
)


@files.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    kind: str = typer.Argument(help="What the file is: core-site, hdfs-site, hive-site, krb5-conf or keytab."),
    path: Path = typer.Argument(metavar="FILE", help="The file, of at most 1 MiB. XML must be well-formed and have no DOCTYPE."),
) -> None:
    """Store a file, and say by which property a catalog names it. The same content has the same id, however often it is stored.

    Examples:

      compaction-pipeline catalog file add core-site /etc/hadoop/conf/core-site.xml
      compaction-pipeline catalog file add keytab /secure/compaction.keytab
    """
    content = _read(path)
    with Session(context) as session:
        file = session.services.site_files.add(kind, content)
        key = next(key for key, of in KIND_OF_KEY.items() if of is file.kind)
        text = f"stored as {file.id}: name it with `catalog add` or `catalog change`, -p {key}={file.reference}"
        session.output.answer(_value(file), text)


@files.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """Show the stored files, without their contents.

    Examples:

      compaction-pipeline catalog file list
      compaction-pipeline catalog file list --json
    """
    with Session(context) as session:
        found = session.services.site_files.files()
        lines = [f"{file.id}  {file.size_bytes:,} bytes, added {file.added_at:%Y-%m-%d %H:%M} UTC" for file in found]
        session.output.answer([_value(file) for file in found], *(lines or ["no files are stored"]))


@files.command(epilog=GLOBAL_HELP)
def remove(context: typer.Context, file: str = typer.Argument(help="The id of the file.")) -> None:
    """Forget a file. It is refused while a catalog names it.

    Examples:

      compaction-pipeline catalog file remove core-site-0123456789abcdef
    """
    with Session(context) as session:
        session.services.site_files.remove(file)
        session.output.answer({"file": file, "removed": True}, f"file {file} is forgotten")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            # One byte more tells that the file is too large, without reading all of it.
            return stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {error.strerror}; correct its path") from error


def _value(file: SiteFile) -> dict[str, object]:
    return {
        "file": file.id,
        "kind": file.kind.value,
        "size_bytes": file.size_bytes,
        "added_at": file.added_at,
        "reference": file.reference,
    }
