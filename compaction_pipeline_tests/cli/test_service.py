"""`token`, `serve` and `optimizer` on the command line, up to the point where a process would run for long."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn

from compaction_pipeline.api.first_tokens import write_first_tokens
from compaction_pipeline.api.serve import Listening
from compaction_pipeline.bootstrap import Services
from compaction_pipeline.cli.exit_codes import ExitCode
from compaction_pipeline.cli.output import Output
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.settings import load_settings
from compaction_pipeline_tests.cli.conftest import Desk
from compaction_pipeline_tests.services.house import House


def test_a_token_is_issued_listed_and_revoked(desk: Desk) -> None:
    issued = desk.json("token", "add", "--role", "reader", "--name", "grafana")
    assert issued["token"].startswith(f"{issued['token_id']}.")
    [listed] = desk.json("token", "list")
    assert (listed["name"], listed["role"], listed["revoked_at"]) == ("grafana", "reader", None)
    assert issued["token"].partition(".")[2] not in desk.type("token", "list").stdout
    assert desk.type("token", "revoke", issued["token_id"]).exit_code == 0
    [listed] = desk.json("token", "list")
    assert listed["revoked_at"] is not None


def test_a_token_names_the_receivers_for_which_it_claims(desk: Desk) -> None:
    issued = desk.json("token", "add", "--role", "writer", "--name", "airflow", "--receiver", "airflow", "--receiver", "airflow-2")
    assert issued["receivers"] == ["airflow", "airflow-2"]
    desk.json("token", "add", "--role", "writer", "--name", "flink")
    shown = desk.type("token", "list").stdout
    assert ("airflow-2" in shown, "all" in shown) == (True, False)
    refused = desk.type("token", "add", "--role", "reader", "--name", "grafana", "--receiver", "airflow")
    assert refused.exit_code == 2
    assert "a token of the role reader names no receiver" in " ".join(refused.stderr.split())
    for wrong in ("", "a b", "-x"):
        refused = desk.type("token", "add", "--role", "writer", "--name", "airflow", f"--receiver={wrong}")
        assert refused.exit_code == 2
        assert f"'receiver' is {wrong!r} but must be a name of 1 to 200 letters, digits" in " ".join(refused.stderr.split())


def test_a_file_that_takes_stdout_holds_the_token_alone(desk: Desk) -> None:
    answer = desk.type("token", "add", "--role", "writer", "--name", "flink")
    [token] = answer.stdout.splitlines()
    [listed] = desk.json("token", "list")
    assert token.startswith(f"{listed['token_id']}.")
    assert "keep its text" in answer.stderr
    assert token not in answer.stderr


@pytest.mark.parametrize("content", [b"token 12 for writer\n12.secret\n", b"12.secret more", b"\xff\xfe12.secret", "12.sécret".encode()])
def test_a_token_file_that_holds_more_than_a_token_is_refused_and_not_shown(desk: Desk, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.token"
    file.write_bytes(content)
    answer = desk.type("optimizer", "--server", "http://127.0.0.1:1", "--token-file", str(file))
    assert answer.exit_code == ExitCode.BAD_INPUT
    assert f"the token file {file} must hold a token and nothing else" in answer.stderr
    assert "cret" not in answer.stdout + answer.stderr


def test_a_whole_token_is_taken_for_its_id_and_its_secret_is_not_shown(desk: Desk) -> None:
    issued = desk.json("token", "add", "--role", "optimizer", "--name", "a worker")
    secret = issued["token"].partition(".")[2]
    for command in ("allow", "revoke"):
        shown = desk.type("token", command, issued["token"])
        assert (shown.exit_code, secret in shown.output) == (0, False)
        assert issued["token_id"] in shown.output
    refused = desk.type("token", "allow", issued["token"])
    assert (refused.exit_code, secret in refused.output) == (2, False)
    assert "is revoked, and stays so" in refused.output


def test_an_optimizer_whose_token_is_revoked_is_shown_as_ended_at_once(desk: Desk) -> None:
    services = Services(load_settings())
    tokens, registration = services.keep_tokens, Registration("default", "a host", "7", services.version, MERGE_VERSION, 2)
    issued, other = (tokens.issue(Role.OPTIMIZER, name).token.token_id for name in ("workers", "others"))
    ids = [services.serve_optimizers.register(registration).optimizer_id for _ in range(3)]
    for optimizer_id, parent_id in zip(ids, (issued, issued, other), strict=True):
        tokens.issue(Role.OPTIMIZER, optimizer_id, parent_id=parent_id, optimizer_id=optimizer_id)
    services.serve_optimizers.leave(ids[0])
    services.close()
    assert desk.json("token", "revoke", issued) == {"token_id": issued, "revoked": True, "ended_optimizers": [ids[1]]}
    states = {each["optimizer_id"]: (each["state"], each["why"]) for each in desk.json("optimizer", "list", "--all")}
    assert states == {ids[0]: ("ENDED", "it was told to end"), ids[1]: ("ENDED", "its token was revoked"), ids[2]: ("RUNNING", "")}


def test_bad_tokens_are_clear_errors(desk: Desk) -> None:
    assert desk.type("token", "revoke", "nobody").exit_code == 2
    assert desk.type("token", "add", "--role", "king", "--name", "x").exit_code == 2
    assert desk.type("token", "add", "--role", "reader", "--name", " ").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "--tls-cert"),
        (["--host", "example.com"], "--tls-cert"),
        (["--tls-cert", "missing.pem"], "belong together"),
        (["--tls-cert", "missing.pem", "--tls-key", "missing.key"], "no such file"),
        (["--tls-cert", __file__, "--tls-key", __file__], "which cannot be used"),
        (["--host", ""], "--host is ''"),
        (["--host", "203.0.113.9", "--behind-proxy", "203.0.113.1"], "--host is '203.0.113.9', which is no address of this host"),
        (["--port", "0"], "--port"),
    ],
)
def test_serve_does_not_start_where_secrets_would_leak(desk: Desk, arguments: list[str], says: str) -> None:
    done = desk.type("serve", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "serving" not in done.stderr
    assert desk.json("token", "list") == []


@pytest.mark.parametrize(
    ("listening", "url"),
    [
        (Listening("127.0.0.1", 8787), "http://127.0.0.1:8787"),
        (Listening("0.0.0.0", 1, Path("cert"), Path("key")), "https://127.0.0.1:1"),
        (Listening("::", 1), "http://[::1]:1"),
        (Listening("example.com", 1), "http://example.com:1"),
    ],
)
def test_optimizers_of_the_servers_host_reach_it_by_the_address_on_which_it_listens(listening: Listening, url: str) -> None:
    assert listening.url == url


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--server", "http://127.0.0.1:1", "--token-file", "missing"], "missing cannot be read"),
        (["--server", "http://127.0.0.1:1", "--parallelism", "2"], "in-process merges one task at a time"),
        ([], "--server"),
    ],
)
def test_an_optimizer_with_bad_options_says_so(desk: Desk, arguments: list[str], says: str) -> None:
    done = desk.type("optimizer", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_server_that_does_not_answer_ends_the_optimizer(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.token").write_text("a.b\n")
    done = desk.type("optimizer", "--server", "http://127.0.0.1:1", "--token-file", str(tmp_path / "a.token"))
    assert done.exit_code == 1
    assert "did not answer" in done.stderr


def test_optimizers_are_listed_asked_and_drained(desk: Desk) -> None:
    assert desk.json("optimizer", "list") == []
    services = Services(load_settings())
    registration = Registration("default", "a host", "7", services.version, MERGE_VERSION, 2)
    one = services.serve_optimizers.register(registration).optimizer_id
    for command in (["stack", one], ["logs", one, "--level", "debug"], ["drain", one]):
        assert "at its next heartbeat, within 10 s" in desk.type("optimizer", *command).stdout
    [listed] = desk.json("optimizer", "list")
    assert (listed["optimizer_id"], listed["state"], listed["log_level"]) == (one, "DRAINING", "DEBUG")
    assert listed["stack_request"]
    assert "a host" in desk.type("optimizer", "list", COLUMNS="200").stdout
    assert f"{one} is canceled; its tasks wait again" in desk.type("optimizer", "cancel", one).stdout
    services.close()
    assert desk.json("optimizer", "list") == []
    assert [each["state"] for each in desk.json("optimizer", "list", "--all")] == ["ENDED"]
    for command in (
        ["stack", one],
        ["logs", one, "--level", "DEBUG"],
        ["drain", one],
        ["cancel", one],
        ["logs", one],
        ["logs", one, "--level", "loud"],
    ):
        assert desk.type("optimizer", *command).exit_code == 2


def test_the_first_tokens_are_written_once_for_their_owner_only(tmp_path: Path) -> None:
    house = House(tmp_path)
    tokens, home = house.services.keep_tokens, tmp_path / "home"
    written = write_first_tokens(tokens, home)
    assert set(written) == {Role.ADMIN, Role.OPTIMIZER}
    for role, path in written.items():
        assert path.stat().st_mode & 0o777 == 0o600
        token = tokens.check(path.read_text().strip())
        assert token is not None
        assert token.role is role
    assert write_first_tokens(tokens, home) == {}
    house.services.close()


def test_a_token_of_another_role_keeps_no_first_token_back(tmp_path: Path) -> None:
    house = House(tmp_path)
    tokens = house.services.keep_tokens
    tokens.issue(Role.WRITER, "flink")
    tokens.issue(Role.ADMIN, "me")
    assert set(write_first_tokens(tokens, tmp_path / "home")) == {Role.OPTIMIZER}
    house.services.close()


def test_without_the_extra_everything_but_serve_works() -> None:
    program = (
        "import sys\n"
        "for name in ('fastapi', 'uvicorn', 'prometheus_client', 'starlette'): sys.modules[name] = None\n"
        "import importlib.util as u; found = u.find_spec\n"
        "import compaction_pipeline.definitions, compaction_pipeline.optimizer.loop\n"
        "from compaction_pipeline.cli.main import app\n"
        "sys.argv[1:] = ['serve']\n"
        "u.find_spec = lambda name, *rest: None if name == 'fastapi' else found(name, *rest)\n"
        "import compaction_pipeline.cli.commands.service as service; service.find_spec = u.find_spec\n"
        "app()\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2, done.stderr
    assert "install 'compaction-pipeline[server]'" in done.stderr


def test_a_server_says_that_it_serves_once_it_listens(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    before: list[str] = []
    monkeypatch.setattr(Output, "say", lambda _, text: said.append(text))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    listen = uvicorn.Server.startup

    async def startup(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        before.extend(said)
        await listen(server, sockets)
        with socket.create_connection(("127.0.0.1", port)):
            server.should_exit = True

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    assert desk.type("serve", "--no-ticks", "--port", str(port)).exit_code == 0
    assert not any(text.startswith("serving") for text in before)
    assert f"serving http://127.0.0.1:{port}" in said


def test_a_port_that_another_process_has_is_refused_before_anything_is_done(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = desk.json("serve", "--port", str(port), code=2)
    assert answer["error"].startswith(f"--port is {port}, but nobody can listen there on 127.0.0.1 (Address already in use): give another")
    assert list(desk.folder.rglob("*.token")) == []
    assert "--host is 'nowhere.invalid', which has no address" in desk.type(
        "serve", "--host", "nowhere.invalid", "--behind-proxy", "10.0.0.7"
    ).output.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "which cannot be read: No such file or directory; correct it"),
        ("workers:\n  kind: [local\n", "which is no YAML: line 3, column 1: expected ',' or ']'"),
        (
            "- workers\n",
            "must hold names of containers, and below each its keys, for example `workers: {kind: local}`, but it holds a list",
        ),
        ("workers: {kind: flink}\n", "'kind' of container 'workers' in "),
    ],
)
def test_a_file_of_containers_that_is_wrong_is_refused_before_the_server_does_anything(desk: Desk, text: str | None, says: str) -> None:
    file = desk.folder / "containers.yaml"
    if text is not None:
        file.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = desk.type("serve", "--port", str(port), COMPACTION_CONTAINERS_FILE=str(file))
    told = " ".join(done.stderr.split())
    assert (done.exit_code, str(file) in told, says in told) == (2, True, True), told
    assert list(desk.folder.rglob("*.token")) == []


@pytest.mark.parametrize("secret", [{}, {"COMPACTION_READY_CALLBACK_SECRET": "whsec_no base64"}])
def test_a_receiver_of_callbacks_without_a_good_secret_is_refused_before_the_server_does_anything(
    desk: Desk, secret: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = desk.type("serve", "--port", str(port), COMPACTION_READY_CALLBACK_URL="http://127.0.0.1:9/hook", **secret)
    told = " ".join(done.stderr.split())
    assert (done.exit_code, "COMPACTION_READY_CALLBACK_SECRET" in told, "serving" in told) == (2, True, False), told
    assert list(desk.folder.rglob("*.token")) == []
