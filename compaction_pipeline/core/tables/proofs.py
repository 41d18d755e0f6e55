"""What shows that a type of catalog works with an authentication: to be accepted is not to be supported.

Something is shown by a commit: a compaction through the program against a real service, with a login or credentials that end in between
where they can end. A test checks that the named tests exist, and another makes the table of `docs/catalogs.md` from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from compaction_pipeline.core.tables.authentication import LOGINS, Authentication, authentication_of
from compaction_pipeline.core.tables.catalog_types import catalog_type_of


class Proof(Enum):
    """How well something is shown to work."""

    TESTED = "proved by tests"
    """Tests commit through it at each change of the program."""
    ONCE = "tried once"
    """Somebody committed through it, and no test does."""
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True)
class Shown:
    """A proof. `by` are tests, `folder/module.py::test`, or a sentence about what was tried. Empty for what is untried."""

    proof: Proof
    by: tuple[str, ...] = ()


UNTRIED = Shown(Proof.UNTRIED)


def _tested(*tests: str) -> Shown:
    return Shown(Proof.TESTED, tests)


_LOGINS = "interop/test_logins.py::"
_GLUE = "interop/test_glue.py::"
_HIVE = "interop/test_hive_commits.py::"

PROOFS: Mapping[tuple[str, Authentication], Shown] = {
    ("sql", Authentication.SIMPLE): _tested(
        "interop/test_commit_read_by_java.py::test_java_reads_a_merge_with_both_kinds_of_deletes_and_goes_on",
        "iceberg/test_sql_catalog.py::test_a_commit_whose_answer_never_comes_is_unknown_and_found_when_the_server_goes_on",
    ),
    ("sql", Authentication.AKSK): _tested(f"{_LOGINS}test_a_sql_catalog_with_keys_of_the_storage"),
    ("sql", Authentication.KERBEROS): _tested("interop/test_hdfs_with_kerberos.py::test_a_table_of_stored_login_files_is_looked_after"),
    ("rest", Authentication.SIMPLE): _tested(
        f"{_LOGINS}test_a_catalog_without_a_login_gets_no_authorization",
        f"{_LOGINS}test_vended_credentials_that_end_during_a_merge_come_anew",
    ),
    ("rest", Authentication.AKSK): _tested(f"{_LOGINS}test_keys_of_the_storage_are_enough"),
    ("rest", Authentication.BASIC): _tested(f"{_LOGINS}test_basic"),
    ("rest", Authentication.TOKEN): _tested(f"{_LOGINS}test_token", f"{_LOGINS}test_a_token_that_ends_and_is_not_renewed_loses_nothing"),
    ("rest", Authentication.OAUTH2): _tested(
        f"{_LOGINS}test_oauth2_renews_its_tokens_before_they_end",
        f"{_LOGINS}test_oauth2_renews_a_token_that_ends_unannounced_during_a_merge",
        f"{_LOGINS}test_oauth2_renews_a_token_that_ends_right_before_the_commit",
    ),
    ("rest", Authentication.SIGV4): _tested(
        f"{_LOGINS}test_sigv4", f"{_LOGINS}test_sigv4_with_credentials_of_the_machine_that_end_during_a_merge"
    ),
    ("rest", Authentication.TLS): _tested(
        f"{_LOGINS}test_certificates_of_the_client",
        f"{_LOGINS}test_certificates_stand_beside_a_token_that_is_renewed_over_them",
    ),
    ("glue", Authentication.SIMPLE): _tested(f"{_GLUE}test_credentials_of_the_machine_are_renewed_during_a_merge"),
    ("glue", Authentication.AKSK): _tested(
        f"{_GLUE}test_a_compaction_is_committed",
        f"{_GLUE}test_a_lost_race_that_glue_notices_is_tried_again",
        f"{_GLUE}test_a_commit_whose_answer_is_lost_is_found_and_not_sent_again",
        f"{_GLUE}test_a_refusal_is_certain_and_the_next_attempt_commits",
    ),
    ("hive", Authentication.KERBEROS): _tested(
        "interop/test_hdfs_with_kerberos.py::test_a_table_of_a_metastore_with_kerberos_is_looked_after"
    ),
    ("hive", Authentication.SIMPLE): _tested(
        f"{_HIVE}test_rows_stay_exact_while_spark_writes_through_the_same_metastore",
        f"{_HIVE}test_a_compaction_whose_answer_is_late_is_found_by_the_next_one",
        f"{_HIVE}test_the_metastore_refuses_a_swap_that_others_overtook",
        f"{_HIVE}test_the_lock_of_a_killed_committer_of_ours_is_released",
    ),
}
"""What was shown, by type of catalog and authentication. Everything else is untried."""

_OF_AMAZON = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def shown(catalog_type: str, authentication: Authentication) -> Shown:
    """Return the proof for catalogs of this type with this authentication."""
    return PROOFS.get((catalog_type, authentication), UNTRIED)


def untried(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each thing about a catalog that no commit has shown. `catalog add` tells them as warnings."""
    return tuple(sentence for sentence in (_untried_login(properties), _other_glue(properties), _on_hdfs(properties)) if sentence)


def _untried_login(properties: Mapping[str, str]) -> str | None:
    catalog, authentication = catalog_type_of(properties), authentication_of(properties)
    found = shown(catalog, authentication).proof
    if found is Proof.TESTED:
        return None
    what = f"a catalog of type {catalog}" if catalog else "a catalog of a class of your own"
    known = "no test commits through one" if found is Proof.ONCE else "nobody has committed through one"
    return (
        f"{what} with the authentication {authentication.value!r} is {found.value}: {known}; add it with --observe, and compact one small "
        "table before you let it go on"
    )


def _other_glue(properties: Mapping[str, str]) -> str | None:
    host = urlsplit(properties.get("glue.endpoint", "")).hostname
    if catalog_type_of(properties) != "glue" or not host or host.endswith(_OF_AMAZON):
        return None
    return (
        f"'glue.endpoint' names {host}, which is not AWS: it must refuse an UpdateTable whose VersionId is not the table's, or two writers "
        "may overwrite each other; ask whoever runs it"
    )


def _on_hdfs(properties: Mapping[str, str]) -> str | None:
    if not any(key.startswith("hdfs.") for key in properties) and not properties.get("warehouse", "").startswith(("hdfs:", "viewfs:")):
        return None
    return (
        "tables on HDFS are experimental: tests compact, expire and clean them on Hadoop's small cluster alone; begin with --observe, and "
        "compact one small table before you let it go on"
    )


def rows() -> tuple[tuple[str, Authentication, Shown], ...]:
    """Return every type of catalog with every authentication that it knows, and the proof, in the order of `LOGINS`."""
    catalogs = ("rest", "sql", "glue", "hive")
    return tuple((catalog, one, shown(catalog, one)) for catalog in catalogs for one, login in LOGINS.items() if catalog in login.catalogs)
