"""The HTTP application of a small real lake, and its optimizers, as clients see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
from fastapi.testclient import TestClient

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline_tests.services.house import House

REGISTRATION: dict[str, Any] = {
    "group": "default",
    "host": "there",
    "process": "7",
    "version": "1",
    "merge_version": MERGE_VERSION,
    "parallelism": 2,
}


@dataclass
class Served:
    """The house, and its application as a client sees it."""

    house: House
    client: TestClient

    def token(self, role: Role, *receivers: str) -> str:
        """The text of a new token, which may claim for these receivers."""
        return self.house.services.keep_tokens.issue(role, f"a {role.value}", receivers=receivers).text

    def ask(self, method: str, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.client.request(method, path, headers=headers, **more)

    def registered(self, token: str | None = None, **changes: Any) -> Worker:
        """A new optimizer, of a new token unless one is given."""
        answer = self.ask("POST", "/api/v1/optimizers", token or self.token(Role.OPTIMIZER), json={**REGISTRATION, **changes})
        assert answer.status_code == 201, answer.text
        return Worker(self, answer.json()["optimizer_id"], answer.json()["token"])


@dataclass
class Worker:
    """A registered optimizer."""

    served: Served
    optimizer_id: str
    token: str

    def poll(self, poll_id: str = "p1", slots: int = 1, **more: Any) -> Any:
        body = {"poll_id": poll_id, "free_slots": slots, **more}
        answer = self.served.ask("POST", f"/api/v1/optimizers/{self.optimizer_id}/poll", self.token, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def touch(self, *running: str) -> Any:
        answer = self.served.ask("POST", f"/api/v1/optimizers/{self.optimizer_id}/touch", self.token, json={"running": running})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def complete(self, attempt_id: str, result: Any) -> httpx.Response:
        return self.served.ask("POST", f"/api/v1/attempts/{attempt_id}/complete", self.token, json=result)
