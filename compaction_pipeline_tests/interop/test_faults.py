"""Faults of the catalog, of storage, of files and of our own database: what a person sees of each, and what it leaves behind.

`docs/faults.md` shows what these tests see. With `COMPACTION_TEST_WRITE_DOCS=1` they write the page, otherwise they compare it. In each
case they compare all rows after the fault, after the next run and after upkeep.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from compaction_pipeline_tests import faults_page
from compaction_pipeline_tests.real_services.fault_proxy import Drop, Hang, Lost, Status, Truncate
from compaction_pipeline_tests.real_services.faulted_compaction import Fault, Scene, Seen, course
from compaction_pipeline_tests.real_services.lake import ServedLake
from compaction_pipeline_tests.real_services.servers import RestCatalogServer, S3Server
from compaction_pipeline_tests.reference_reader import DATA, entries_of, manifests_of, metadata_of

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def catalog_says(code: int, what: str, pattern: str | None = None) -> Fault:
    """The catalog answers every commit, or every request that matches the pattern, with this status."""

    def comes(scene: Scene) -> None:
        body = f'{{"error": {{"message": "{what}", "type": "TestException", "code": {code}}}}}'
        scene.lake.catalog_proxy.add(pattern or scene.commit, Status(code, body, "application/json"))

    return Fault(f"{code} {what}", comes)


def s3_says(code: int, error: str, pattern: str = "", probability: float = 1.0, name: str | None = None) -> Fault:
    """S3 answers requests that match the pattern with this error."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{error}</Code><Message>{error} (test)</Message></Error>'
    return Fault(name or f"{code} {error}", lambda scene: scene.lake.s3_proxy.add(pattern, Status(code, body), probability=probability))


def at_commit(name: str, fault: Lost | Drop | Hang) -> Fault:
    def comes(scene: Scene) -> None:
        scene.lake.catalog_proxy.add(scene.commit, fault)
        if isinstance(fault, Hang):
            scene.give_up_after(2, commits_only=True)
            # The test looks only after the late request has reached the server.
            scene.then_mended_by(lambda: wait_for_the_late_one(scene))

    return Fault(name, comes)


def wait_for_the_late_one(scene: Scene) -> None:
    while not any(isinstance(request.fault, Hang) for request in scene.lake.catalog_proxy.requests(scene.commit)):
        threading.Event().wait(0.05)


def catalog_hangs(scene: Scene) -> None:
    scene.lake.catalog_proxy.add("", Hang())
    scene.give_up_after(2)


def at_s3(name: str, fault: Drop | Hang | Truncate, pattern: str = "", times: int | None = None, probability: float = 1.0) -> Fault:
    return Fault(name, lambda scene: scene.lake.s3_proxy.add(pattern, fault, times=times, probability=probability))


def other_property(name: str, key: str, value: str) -> Fault:
    """A property of the registered catalog becomes wrong, as when somebody changes the key on the other side."""

    def comes(scene: Scene) -> None:
        scene.then_mended_by(lambda: scene.change_catalog(key, scene.lake.product_properties[key]))
        scene.change_catalog(key, value)

    return Fault(name, comes)


def a_data_file(scene: Scene) -> str:
    metadata = metadata_of(scene.table.table.refresh())
    return min(
        entry.path for manifest in manifests_of(metadata["snapshots"][-1]) for entry in entries_of(manifest) if entry.content == DATA
    )


def a_delete_file(scene: Scene) -> str:
    metadata = metadata_of(scene.table.table.refresh())
    return min(
        entry.path for manifest in manifests_of(metadata["snapshots"][-1]) for entry in entries_of(manifest) if entry.content != DATA
    )


def a_manifest(scene: Scene) -> str:
    metadata = metadata_of(scene.table.table.refresh())
    return min(manifest["manifest_path"] for manifest in manifests_of(metadata["snapshots"][-1]))


def the_manifest_list(scene: Scene) -> str:
    return str(metadata_of(scene.table.table.refresh())["snapshots"][-1]["manifest-list"])


def overwritten(content: bytes) -> bytes:
    return b"\x00" * len(content)


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def state_database_locked(scene: Scene) -> None:
    """Another process locks the state database until the fault is mended."""
    holder = sqlite3.connect(scene.lake.home / "state.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    scene.then_mended_by(holder.close)


FAULTS: Mapping[str, Sequence[Fault]] = {
    "The catalog answers a commit": [
        catalog_says(400, "Bad Request"),
        catalog_says(401, "Unauthorized"),
        catalog_says(403, "Forbidden"),
        catalog_says(404, "Not Found"),
        catalog_says(409, "Conflict"),
        catalog_says(422, "Unprocessable Content"),
        catalog_says(429, "Too Many Requests"),
        catalog_says(500, "Internal Server Error"),
        catalog_says(502, "Bad Gateway"),
        catalog_says(503, "Service Unavailable"),
        catalog_says(504, "Gateway Timeout"),
    ],
    "A commit gets no answer": [
        at_commit("carried out, then the answer is lost", Lost()),
        at_commit("carried out, then 504 in place of the answer", Lost(Status(504, "", "text/plain"))),
        at_commit("not carried out, the connection ends", Drop()),
        at_commit("not carried out, the connection is reset", Drop(reset=True)),
        at_commit("not carried out, the catalog hangs", Hang()),
        at_commit("the catalog hangs, and carries it out after the command has ended", Hang(lands_late=True)),
    ],
    "The catalog is away": [
        catalog_says(503, "Service Unavailable, to every request", "."),
        catalog_says(401, "Unauthorized, to every request", "."),
        Fault("hangs at every request", catalog_hangs),
    ],
    "Storage fails for a moment": [
        s3_says(503, "SlowDown", probability=0.05, name="503 SlowDown, 5 % of the requests"),
        s3_says(503, "SlowDown", probability=0.4, name="503 SlowDown, 40 % of the requests"),
        at_s3("connections reset, 20 % of the requests", Drop(reset=True), probability=0.2),
        at_s3("answers cut off, 20 % of those that have a body", Truncate(), "^GET", probability=0.2),
    ],
    "Storage refuses": [
        s3_says(403, "AccessDenied", "^(GET|HEAD) .*/data/", name="403 AccessDenied to reads of data files"),
        s3_says(403, "AccessDenied", "^(PUT|POST) ", name="403 AccessDenied to writes"),
        s3_says(400, "ExpiredToken", name="400 ExpiredToken"),
        s3_says(400, "AuthorizationHeaderMalformed", name="400 AuthorizationHeaderMalformed: a wrong region"),
        other_property("a wrong access key", "s3.access-key-id", "nobody"),
        other_property("a wrong secret", "s3.secret-access-key", "a-wrong-one"),
    ],
    "Files are not what they should be": [
        Fault("a data file is missing", lambda scene: scene.damage(a_data_file(scene), None)),
        Fault("a data file holds zeros", lambda scene: scene.damage(a_data_file(scene), overwritten)),
        Fault("a data file ends in the middle", lambda scene: scene.damage(a_data_file(scene), halved)),
        Fault("a delete file is missing", lambda scene: scene.damage(a_delete_file(scene), None)),
        Fault("a manifest is missing", lambda scene: scene.damage(a_manifest(scene), None)),
        Fault("a manifest holds zeros", lambda scene: scene.damage(a_manifest(scene), overwritten)),
        Fault("the manifest list is missing", lambda scene: scene.damage(the_manifest_list(scene), None)),
        Fault("the metadata file is missing", lambda scene: scene.damage(scene.table.table.refresh().metadata_location, None)),
    ],
    "Our own state database": [
        Fault("another process holds it locked", state_database_locked),
    ],
}

WRITING = bool(os.environ.get("COMPACTION_TEST_WRITE_DOCS"))
"""True when the tests write the page, false when they compare it."""
SEEN: dict[str, tuple[str, ...]] = {}


@pytest.mark.parametrize("fault", [pytest.param(fault, id=f"{group}: {fault.name}") for group in FAULTS for fault in FAULTS[group]])
def test_a_fault_changes_no_row(fault: Fault, tmp_path: Path, s3: S3Server, rest_catalog: RestCatalogServer) -> None:
    with ServedLake(tmp_path, s3, rest_catalog) as lake:
        SEEN[fault.name] = cells_of(fault, course(Scene(lake), fault))
    if not WRITING:
        assert SEEN[fault.name] == faults_page.read(PAGE.read_text()).get(fault.name), f"{PAGE.name} differs; {HOW}"


def test_the_page_lists_every_fault_once() -> None:
    unseen = {fault.name: (fault.name, "not seen yet", "", "", "", "", "") for group in FAULTS.values() for fault in group}
    groups = {group: [fault.name for fault in faults] for group, faults in FAULTS.items()}
    page = faults_page.written(_HEAD, groups, {**unseen, **faults_page.read(PAGE.read_text()), **SEEN})
    if WRITING:
        PAGE.write_text(page)
    assert PAGE.read_text() == page, HOW


HOW = "write the page with COMPACTION_TEST_WRITE_DOCS=1, read the difference and commit it"


def cells_of(fault: Fault, seen: Seen) -> tuple[str, ...]:
    """The cells of a row of the page, in Markdown and in full."""
    code = f"{seen.exit_code}, {seen.reason_code}"
    cells = (fault.name, code, seen.reason, seen.state, seen.left, seen.again, seen.left_at_last)
    return tuple(cell.replace("|", "\\|") for cell in cells)


_HEAD = """# Faults, what you see of them, and what they leave behind

A test writes this page (`compaction_pipeline_tests/interop/test_faults.py`), and fails when the program does something else. The
table is on a real S3 and in Iceberg's own REST catalog, and a proxy in front of each causes the faults. Each fault lasts while
`compact` and then `table list` run. An hour later the fault is over, and `compact` runs again. A day after that, upkeep runs. **In
every case all rows were exactly as before**: after the fault, after the next run and after upkeep.

*Unlisted files* are files in the table's folder that no snapshot lists; no reader sees them. What is left in `metadata/` a day later
belongs to earlier requests of a commit that landed; the removal of orphan files takes it. PORT, ID, UUID, TIME and N replace values
that differ from run to run. A number in parentheses stands for one of the [messages](#the-messages).
[Operations](operations.md) explains exit codes and reasons."""
