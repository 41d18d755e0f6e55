"""`forward-events`: a process of its own between a catalog's topics in Kafka and the HTTP service."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.logs import log_service
from compaction_pipeline.cli.output import Invocation
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.secrets.keys import secret_values
from compaction_pipeline.core.secrets.known import KnownSecrets
from compaction_pipeline.core.words import count_text

commands = command_group()


@commands.command("forward-events", epilog=GLOBAL_HELP)
def forward_events(
    context: typer.Context,
    catalog: str = typer.Argument(help="The registered catalog that the events are about."),
    server: str = typer.Option(..., "--server", metavar="URL", help="The URL of `compaction-pipeline serve`."),
    topic: list[str] = typer.Option(..., "--topic", help="A topic of Kafka. It may be given several times."),
    kafka: Path = typer.Option(
        ..., "--kafka", help="A file with one property of librdkafka, key=value, a line; bootstrap.servers at least."
    ),
    token_file: Path = typer.Option(..., "--token-file", help="A file with a token of the role events."),
    ca_file: Path | None = typer.Option(None, "--ca-file", help="Trust the certificates in this file, in PEM, too."),
) -> None:
    """Send the events of a catalog from Kafka to a server, until Ctrl-C or SIGTERM, so that it looks at tables right after their commits.

    It reads what Lakekeeper and Polaris write. Without group.id in the file, all processes for one catalog share the group
    compaction-pipeline-CATALOG. A group that is new begins with the events that come from then on.

    Examples:

      compaction-pipeline forward-events lake --server http://127.0.0.1:8787 --topic lakekeeper --kafka kafka.conf --token-file events.token
    """
    if find_spec("confluent_kafka") is None:
        raise ConfigError("`forward-events` needs confluent-kafka: install 'compaction-pipeline[kafka]'")
    from confluent_kafka import KafkaException

    from compaction_pipeline.reports.door import Door, ReportError
    from compaction_pipeline.reports.kafka import EventForwarder, consumer

    given: Invocation = context.obj
    log_service(given.output.verbosity)
    properties, token, secrets, over = _properties(kafka), _read(token_file, "--token-file").strip(), KnownSecrets(), Event()
    secrets.know("kafka", {*secret_values(properties), token})
    try:
        events = consumer(topic, properties, f"compaction-pipeline-{catalog}")
    except KafkaException as error:
        raise ConfigError(f"{kafka}: {error.args[0].str()}; correct the file") from None
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    given.output.say(f"forwarding events of catalog {catalog} from {', '.join(topic)} to {server}")
    try:
        door = Door(server, token, ca_file=str(ca_file) if ca_file else None, sleep=over.wait)
        count = EventForwarder(door, catalog, events).run(over.is_set)
    except (ReportError, KafkaException) as error:
        raise ConfigError(f"events are not forwarded: {error.args[0]}") from None
    finally:
        events.close()
    given.output.answer({"catalog": catalog, "events": count}, f"it was told to end: {count_text(count, 'event')} forwarded")


def _properties(path: Path) -> Mapping[str, str]:
    lines = [line.strip() for line in _read(path, "--kafka").splitlines()]
    found = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            # The line may be a secret, so it is not repeated.
            raise ConfigError(f"{path}: each line is key=value, empty, or begins with #; one of its {len(lines)} lines is not")
        found[key.strip()] = value.strip()
    if not found.get("bootstrap.servers"):
        raise ConfigError(f"{path}: bootstrap.servers is missing; name brokers of your Kafka, such as bootstrap.servers=broker:9092")
    return found


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"the file {path} cannot be read: {why}; give {option}") from None
