"""`serve` and `token`: the HTTP service, and who may use it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer

from compaction_pipeline.cli.app import GLOBAL_HELP, command_group
from compaction_pipeline.cli.logs import log_service
from compaction_pipeline.cli.render import tokens_table
from compaction_pipeline.cli.session import Session
from compaction_pipeline.core.access.token import Role, Token, token_id_in
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import count_text

tokens = typer.Typer(
    no_args_is_help=True,
    help="Issue, list and revoke the tokens that the HTTP service accepts.\n\nExamples:\n\n  compaction-pipeline token list",
    epilog=GLOBAL_HELP,
)
commands = command_group()
commands.add_typer(tokens, name="token")


@tokens.command(epilog=GLOBAL_HELP)
def add(
    context: typer.Context,
    role: Role = typer.Option(..., "--role", help="What its holder may do."),
    name: str = typer.Option(..., "--name", help="Who holds it, for people."),
    receivers: list[str] = typer.Option([], "--receiver", help="A writer may claim jobs of this receiver. May be given several times."),
) -> None:
    """Issue a token. Its text is shown only now. Nothing but the text goes to stdout, so a file can take it.

    Examples:

      compaction-pipeline token add --role reader --name grafana
      compaction-pipeline token add --role writer --name flink > writer.token
      compaction-pipeline token add --role writer --name airflow --receiver airflow > airflow.token
    """
    with Session(context) as session:
        issued = session.services.keep_tokens.issue(role, name, receivers=receivers)
        value = {**_token_value(issued.token), "token": issued.text}
        session.output.say(f"token {issued.token.token_id} for {role.value}; keep its text, it is shown only now:")
        session.output.answer(value, issued.text)


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
    """Accept a token no longer. Optimizers that registered with it end too, and their tasks wait again at once.

    Examples:

      compaction-pipeline token revoke 3f0c2b7a9d1e4f60
    """
    with Session(context) as session:
        services = session.services
        token_id = token_id_in(token_id)
        ended = services.serve_optimizers.end_all(services.keep_tokens.revoke(token_id), "its token was revoked")
        told = f"; {count_text(len(ended), 'optimizer')} that registered with it ended: {', '.join(ended)}" if ended else ""
        value = {"token_id": token_id, "revoked": True, "ended_optimizers": list(ended)}
        session.output.answer(value, f"token {token_id} is revoked{told}")


@tokens.command(epilog=GLOBAL_HELP)
def allow(context: typer.Context, token_id: str = typer.Argument(help="The token's id: the part before the dot.")) -> None:
    """Let optimizers register again with a token that is blocked, because reports of its optimizers could not be true.

    Examples:

      compaction-pipeline token allow 3f0c2b7a9d1e4f60
    """
    with Session(context) as session:
        token_id = token_id_in(token_id)
        was_blocked = session.services.keep_tokens.allow(token_id)
        told = "is no longer blocked: optimizers may register with it" if was_blocked else "was not blocked"
        session.output.answer({"token_id": token_id, "was_blocked": was_blocked}, f"token {token_id} {told}")


@commands.command(epilog=GLOBAL_HELP)
def serve(
    context: typer.Context,
    host: str = typer.Option("127.0.0.1", "--host", help="The address to listen on."),
    port: int = typer.Option(8787, "--port", min=1, max=65_535, help="The port to listen on."),
    tls_cert: Path | None = typer.Option(None, "--tls-cert", help="The certificate, in PEM."),
    tls_key: Path | None = typer.Option(None, "--tls-key", help="The key of the certificate, in PEM."),
    behind_proxy: str | None = typer.Option(
        None,
        "--behind-proxy",
        metavar="ADDRESS",
        help="A proxy of yours does TLS and connects from this address or network, so plain HTTP is allowed on any address.",
    ),
    ticks: bool = typer.Option(
        True, help="Also refresh, plan and commit tables here, and clean up once a day, as the sensors and jobs of Dagster do."
    ),
) -> None:
    """Serve optimizers and programs over HTTP, and keep all tables compacted, until Ctrl-C or SIGTERM.

    While nobody was given a token of the role admin or optimizer, it writes admin.token or optimizer.token into COMPACTION_HOME. The pages
    of the API are at /docs.

    Examples:

      compaction-pipeline serve
      compaction-pipeline serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    _need_server_extra()
    from compaction_pipeline.api.first_tokens import write_first_tokens
    from compaction_pipeline.api.serve import Listening, check_listening, check_port, receiver_of
    from compaction_pipeline.api.serve import serve as serve_until_told

    listening = Listening(host, port, tls_cert, tls_key, behind_proxy)
    check_listening(listening)
    check_port(listening)
    with Session(context) as session:
        log_service(session.output.verbosity)
        # A wrong secret is refused before anything says that it serves.
        receiver_of(session.services.settings)
        session.services.check_containers()
        session.services.manage_catalogs.check_file()
        for sentence in session.services.manage_catalogs.apply().problems:
            session.output.say(f"warning: {sentence}")
        home = session.services.settings.home.expanduser().absolute()
        for role, path in write_first_tokens(session.services.keep_tokens, home).items():
            session.output.say(f"the first {role.value} token is in {path}")
        serving = f"serving {'https' if tls_cert else 'http'}://{host}:{port}"
        serve_until_told(session.services, listening, ticks=ticks, listens=lambda: session.output.say(serving))
        session.output.say("the server has ended")


def _need_server_extra() -> None:
    missing = [name for name in ("fastapi", "fastapi_offline", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"`serve` needs {', '.join(missing)}: install 'compaction-pipeline[server]'")


def _token_value(token: Token) -> dict[str, object]:
    return {name: getattr(token, name) for name in ("token_id", "name", "role", "created_at", "revoked_at", "blocked_at", "receivers")}
