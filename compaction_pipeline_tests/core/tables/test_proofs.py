"""What is said to be proved is proved: each named test exists, and `catalog add` warns about everything else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.authentication import LOGINS, Authentication
from compaction_pipeline.core.tables.proofs import PROOFS, Proof, rows, shown, untried

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("key", PROOFS, ids=lambda key: f"{key[0]}-{key[1].value}")
def test_each_proof_names_tests_that_exist(key: tuple[str, Authentication]) -> None:
    proof = PROOFS[key]
    assert key[0] in LOGINS[key[1]].catalogs
    assert proof.by
    if proof.proof is not Proof.TESTED:
        return
    for test in proof.by:
        module, _, name = test.partition("::")
        functions = [one for one in ast.walk(ast.parse((TESTS / module).read_text())) if isinstance(one, ast.FunctionDef)]
        assert name in {one.name for one in functions if any(isinstance(each, ast.Assert | ast.Call) for each in ast.walk(one))}, test


def test_a_catalog_that_was_never_committed_to_is_told_as_untried() -> None:
    google = {"type": "rest", "uri": "https://catalog.example", "auth.type": "google"}
    assert untried(google) == (
        "a catalog of type rest with the authentication 'google' is untried: nobody has committed through one; add it with --observe, and "
        "compact one small table before you let it go on",
    )
    assert "a catalog of a class of your own" in untried({"py-catalog-impl": "mine.Catalog"})[0]


def test_what_tests_prove_is_no_warning() -> None:
    assert untried({"type": "rest", "uri": "https://catalog.example", "credential": "i:s"}) == ()
    assert untried({"uri": "sqlite:////c.db"}) == ()
    assert untried({"type": "glue", "glue.endpoint": "https://glue.eu-central-1.amazonaws.com"}) == ()


def test_a_service_with_glues_api_must_compare_versions() -> None:
    [sentence] = untried({"type": "glue", "glue.endpoint": "http://localhost:5000"})
    assert "'glue.endpoint' names localhost, which is not AWS: it must refuse an UpdateTable whose VersionId is not the table's" in sentence


def test_the_table_of_proofs_has_every_login_that_a_catalog_knows() -> None:
    assert len(rows()) == len({(catalog, one) for catalog, one, _ in rows()})
    assert all(proof is shown(catalog, one) for catalog, one, proof in rows())
    assert {one for _, one, _ in rows()} == set(Authentication)
