"""`serve`, `optimizer` and `token`: the HTTP service, its workers, and who may use it."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path

import typer

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.logs import log_service
from compaction_pipeline.cli.output import Output
from compaction_pipeline.cli.render import tokens_table
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.words import count_text

tokens = typer.Typer(
    no_args_is_help=True,
    help="Issue, list and revoke the tokens that the HTTP service accepts.\n\nExamples:\n\n  compaction-pipeline token list",
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(tokens, name="token")

_URL = typer.Option(..., "--server", metavar="URL", help="The server's URL, e.g. https://compaction.example.com:8787.")
_TOKEN_FILE = typer.Option(
    None, "--token-file", help="A file with a token of the role optimizer. The default is optimizer.token in COMPACTION_HOME."
)


@tokens.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    role: Role = typer.Option(..., "--role", help="What its holder may do."),
    name: str = typer.Option(..., "--name", help="Who holds it, for people."),
) -> None:
    """Issue a token. Its text is shown only now.

    Examples:

      compaction-pipeline token add --role reader --name grafana
    """
    with Session(context) as session:
        issued = session.services.keep_tokens.issue(role, name)
        value = {**_token_value(issued.token), "token": issued.text}
        session.output.answer(value, f"token {issued.token.token_id} for {role.value}; keep its text, it is shown only now:", issued.text)


@tokens.command("list", epilog=GLOBAL_HELP)
def list_(context: typer.Context) -> None:
    """List the tokens that people issued, the oldest first, without their secrets.

    Examples:

      compaction-pipeline token list --json
    """
    with Session(context) as session:
        found = session.services.keep_tokens.tokens()
        session.output.answer([_token_value(token) for token in found], tokens_table(found) if found else "no tokens")


@tokens.command(epilog=GLOBAL_HELP)
def revoke(context: typer.Context, token_id: str = typer.Argument(help="The token's id: the part before the dot.")) -> None:
    """Accept a token no longer. Optimizers that registered with it are refused too, and their tasks wait again within a minute.

    Examples:

      compaction-pipeline token revoke 3f0c2b7a9d1e4f60
    """
    with Session(context) as session:
        session.services.keep_tokens.revoke(token_id)
        session.output.answer({"token_id": token_id, "revoked": True}, f"token {token_id} is revoked")


@commands.command(epilog=GLOBAL_HELP)
def serve(
    context: typer.Context,
    host: str = typer.Option("127.0.0.1", "--host", help="The address to listen on."),
    port: int = typer.Option(8787, "--port", min=1, max=65_535, help="The port to listen on."),
    tls_cert: Path | None = typer.Option(None, "--tls-cert", help="The certificate, in PEM."),
    tls_key: Path | None = typer.Option(None, "--tls-key", help="The key of the certificate, in PEM."),
    behind_proxy: bool = typer.Option(False, "--behind-proxy", help="A proxy of yours does TLS, so plain HTTP is allowed on any address."),
    ticks: bool = typer.Option(
        True, help="Also refresh, plan and commit tables here, and clean up once a day, as the sensors and jobs of Dagster do."
    ),
) -> None:
    """Serve optimizers and programs over HTTP, and keep all tables compacted, until Ctrl-C or SIGTERM.

    When no token exists yet, it writes admin.token and optimizer.token into COMPACTION_HOME. The pages of the API are at /docs.

    Examples:

      compaction-pipeline serve
      compaction-pipeline serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    _need_server_extra()
    from compaction_pipeline.api.first_tokens import write_first_tokens
    from compaction_pipeline.api.serve import Listening, check_listening
    from compaction_pipeline.api.serve import serve as serve_until_told

    listening = Listening(host, port, tls_cert, tls_key, behind_proxy)
    check_listening(listening)
    with Session(context) as session:
        log_service(session.output.verbosity)
        home = session.services.settings.home.expanduser().absolute()
        for role, path in write_first_tokens(session.services.keep_tokens, home).items():
            session.output.say(f"the first {role.value} token is in {path}")
        session.output.say(f"serving {'https' if tls_cert else 'http'}://{host}:{port}")
        serve_until_told(session.services, listening, ticks=ticks)


@commands.command(epilog=GLOBAL_HELP)
def optimizer(
    context: typer.Context,
    server: str = _URL,
    group: str = typer.Option("default", "--group", help="The group whose tasks it takes."),
    parallelism: int | None = typer.Option(
        None, "--parallelism", min=1, max=1_024, help="How many tasks it merges at a time. The default is COMPACTION_TASK_SLOTS."
    ),
    memory: int = typer.Option(
        0,
        "--memory",
        min=0,
        metavar="BYTES",
        help="How much memory it may use in all. This has no effect; the list of optimizers shows it.",
    ),
    resource_id: str = typer.Option(
        "", "--resource-id", help="A name that the system that starts it chooses, e.g. the id of its pod. The list of optimizers shows it."
    ),
    token_file: Path | None = _TOKEN_FILE,
    ca_file: Path | None = typer.Option(None, "--ca-file", help="Trust the certificates in this file, in PEM, too."),
) -> None:
    """Take tasks from a server and merge them, until Ctrl-C or SIGTERM. It needs the tables' storage, but no catalog and no database.

    COMPACTION_SPARK_MASTER, COMPACTION_SPARK_REMOTE and COMPACTION_MERGE_ENGINE say where it merges.

    Examples:

      compaction-pipeline optimizer --server http://127.0.0.1:8787
      compaction-pipeline optimizer --server https://compaction.example.com:8787 --parallelism 8 --token-file worker.token
    """
    from compaction_pipeline.core.queue.optimizer import Registration
    from compaction_pipeline.optimizer.client import HttpTaskQueue
    from compaction_pipeline.optimizer.loop import run_optimizer

    with Session(context) as session:
        log_service(session.output.verbosity)
        services, output = session.services, session.output
        slots = _slots(services, parallelism)
        registration = Registration(
            group, socket.gethostname(), str(os.getpid()), services.version, MERGE_VERSION, slots, memory, resource_id
        )
        token = _token(token_file or services.settings.home.expanduser() / "optimizer.token")
        queue = HttpTaskQueue(server, token, registration, str(ca_file) if ca_file else None)
        output.say(f"{count_text(slots, 'slot')} for group {group} of {server}")
        done = run_optimizer(services, queue, slots)
        _ended(output, queue.optimizer_id, done.polled, len(done.prepared), queue.why_drains)


def _ended(output: Output, optimizer_id: str, attempts: int, merged: int, why: str) -> None:
    value = {"optimizer_id": optimizer_id, "attempts": attempts, "merged": merged, "why": why}
    output.answer(value, f"{optimizer_id} ended, {why}: {count_text(attempts, 'attempt')}, {merged} merged")


def _slots(services: Services, parallelism: int | None) -> int:
    if services.settings.merge_engine == "in-process":
        if parallelism not in (None, 1):
            raise ConfigError(f"--parallelism is {parallelism}, but COMPACTION_MERGE_ENGINE=in-process merges one task at a time; give 1")
        return 1
    return parallelism or services.settings.task_slots


def _token(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"the token file {path} cannot be read: {error.strerror}; give --token-file") from error
    if not text:
        raise ConfigError(f"the token file {path} is empty; `compaction-pipeline token add --role optimizer` issues a token")
    return text


def _need_server_extra() -> None:
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"`serve` needs {', '.join(missing)}: install 'compaction-pipeline[server]'")


def _token_value(token: Token) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "name": token.name,
        "role": token.role,
        "created_at": token.created_at,
        "revoked_at": token.revoked_at,
    }
