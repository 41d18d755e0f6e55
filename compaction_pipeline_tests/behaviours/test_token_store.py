from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.builders import NOW

TOKEN = Token("t1", "my laptop", Role.READER, NOW, "00", "ab")


def test_a_token_is_found_by_its_id(stores: Stores) -> None:
    assert stores.tokens.token("t1") is None
    stores.tokens.add(TOKEN)
    child = Token("t2", "optimizer", Role.OPTIMIZER, NOW + timedelta(seconds=1), "01", "cd", parent_id="t1", optimizer_id="o1")
    stores.tokens.add(child)
    assert stores.tokens.token("t1") == TOKEN
    assert stores.tokens.tokens() == (TOKEN, child)


def test_revoking_a_token_revokes_its_children_and_keeps_the_first_time(stores: Stores) -> None:
    other = replace(TOKEN, token_id="t3")
    child = replace(TOKEN, token_id="t2", parent_id="t1")
    for token in (TOKEN, child, other):
        stores.tokens.add(token)
    assert not stores.tokens.revoke("unknown", NOW)
    assert stores.tokens.revoke("t2", NOW)
    assert stores.tokens.revoke("t1", NOW + timedelta(hours=1))
    assert stores.tokens.token("t2") == replace(child, revoked_at=NOW)
    assert stores.tokens.token("t1") == replace(TOKEN, revoked_at=NOW + timedelta(hours=1))
    assert stores.tokens.token("t3") == other
    assert stores.tokens.revoke("t1", NOW + timedelta(hours=2))
    assert stores.tokens.token("t1") == replace(TOKEN, revoked_at=NOW + timedelta(hours=1))


def test_revoked_tokens_and_those_of_forgotten_optimizers_expire(stores: Stores) -> None:
    later = NOW + timedelta(days=1)
    for name in ("t1", "t2", "t3"):
        stores.tokens.add(replace(TOKEN, token_id=name))
    stores.tokens.add(replace(TOKEN, token_id="t4", optimizer_id="gone"))
    stores.tokens.add(replace(TOKEN, token_id="t5", optimizer_id="there"))
    stores.tokens.add(replace(TOKEN, token_id="t6", optimizer_id="new", created_at=later))
    stores.tokens.revoke("t1", NOW)
    stores.tokens.revoke("t2", later)
    assert stores.tokens.expire(NOW, ["there"]) == 0
    assert stores.tokens.expire(later, ["there"]) == 2
    assert [token.token_id for token in stores.tokens.tokens()] == ["t2", "t3", "t5", "t6"]


def test_a_blocked_token_keeps_the_first_time_until_it_is_allowed(stores: Stores) -> None:
    stores.tokens.add(TOKEN)
    assert not stores.tokens.block("unknown", NOW)
    for at in (NOW, NOW + timedelta(hours=1)):
        assert stores.tokens.block("t1", at)
        assert stores.tokens.token("t1") == replace(TOKEN, blocked_at=NOW)
    later = NOW + timedelta(hours=2)
    assert not stores.tokens.allow("unknown", later)
    assert stores.tokens.allow("t1", later)
    assert stores.tokens.token("t1") == replace(TOKEN, allowed_at=later)


def test_optimizers_are_known_by_the_token_with_which_they_registered(stores: Stores) -> None:
    stores.tokens.add(TOKEN)
    for name in ("b", "a"):
        stores.tokens.add(replace(TOKEN, token_id=f"of {name}", parent_id="t1", optimizer_id=name))
    stores.tokens.add(replace(TOKEN, token_id="other", parent_id="t9", optimizer_id="c"))
    assert stores.tokens.optimizers_of("t1") == ("a", "b")
    assert (stores.tokens.issuer_of("b"), stores.tokens.issuer_of("c"), stores.tokens.issuer_of("d")) == ("t1", "t9", None)
