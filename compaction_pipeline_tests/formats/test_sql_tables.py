"""The tables that SQL statements read and write."""

from __future__ import annotations

import pytest

from compaction_pipeline.formats.sql_tables import MOST_CHARACTERS, SqlPlace, SqlTables, tables_of

_PLACE = SqlPlace(frozenset({"lake", "cold"}), "lake", ("shop",))

# Names of the first column are written as people would: `orders` is lake.shop.orders.
_KNOWN = [
    # One table and its relatives.
    ("spark", "SELECT * FROM orders", "orders", ""),
    ("spark", "INSERT INTO daily SELECT day, sum(amount) FROM orders GROUP BY day", "orders", "daily"),
    ("spark", "INSERT OVERWRITE daily PARTITION (day = '2026-01-01') SELECT * FROM orders", "orders", "daily"),
    ("spark", "INSERT INTO daily (day, total) VALUES ('2026-01-01', 3)", "", "daily"),
    ("spark", "INSERT INTO daily TABLE orders", "orders", "daily"),
    ("spark", "CREATE TABLE daily USING iceberg AS SELECT * FROM orders", "orders", "daily"),
    ("spark", "CREATE OR REPLACE TABLE daily AS SELECT * FROM orders JOIN refunds USING (id)", "orders refunds", "daily"),
    ("spark", "FROM orders INSERT INTO a SELECT id INSERT INTO b SELECT day", "orders", "a b"),
    # Names.
    ("spark", "INSERT INTO cold.archive.orders SELECT * FROM lake.shop.orders", "orders", "cold.archive.orders"),
    ("spark", "SELECT * FROM raw.orders", "lake.raw.orders", ""),
    ("spark", "SELECT * FROM lake.a.b.orders", "lake.a.b.orders", ""),
    ("spark", "SELECT * FROM `lake`.`shop`.`order lines`", "lake.shop.order lines", ""),
    ("spark", "SELECT * FROM `lake`.`shop`.`a.b`", "lake.shop.a.b", ""),
    ("trino", 'SELECT * FROM "lake"."shop"."Orders"', "lake.shop.Orders", ""),
    ("trino", 'SELECT * FROM lake.shop."orders$snapshots"', "orders", ""),
    ("spark", "SELECT * FROM lake.shop.orders.files", "orders", ""),
    ("spark", "SELECT * FROM lake.shop.orders.branch_audit", "orders", ""),
    ("spark", "SELECT * FROM orders VERSION AS OF 3", "orders", ""),
    ("trino", "SELECT * FROM orders FOR VERSION AS OF 3", "orders", ""),
    ("spark", "USE cold.archive; SELECT * FROM orders", "cold.archive.orders", ""),
    ("spark", "USE CATALOG cold; USE NAMESPACE old; INSERT INTO t SELECT * FROM s", "cold.old.s", "cold.old.t"),
    # CTEs. One of them may have the name of the table that it reads.
    ("spark", "WITH o AS (SELECT * FROM orders) INSERT INTO daily SELECT * FROM o", "orders", "daily"),
    ("spark", "INSERT INTO daily WITH a AS (SELECT * FROM orders), b AS (SELECT * FROM a) SELECT * FROM b", "orders", "daily"),
    ("spark", "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", "orders", ""),
    ("spark", "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM orders) SELECT * FROM a JOIN b", "b orders", ""),
    ("trino", "WITH RECURSIVE a AS (SELECT 1 n UNION ALL SELECT n + 1 FROM a) SELECT * FROM a JOIN orders ON true", "orders", ""),
    ("spark", "SELECT * FROM (WITH a AS (SELECT * FROM orders) SELECT * FROM a) x JOIN a", "a orders", ""),
    ("spark", "SELECT * FROM t WHERE id IN (WITH a AS (SELECT id FROM u) SELECT id FROM a)", "t u", ""),
    # Views stand for what they read.
    ("spark", "CREATE TEMP VIEW o AS SELECT * FROM orders; INSERT INTO daily SELECT * FROM o", "orders", "daily"),
    ("spark", "CREATE VIEW o AS SELECT * FROM orders; INSERT INTO daily SELECT * FROM lake.shop.o", "orders", "daily"),
    ("spark", "CACHE TABLE o AS SELECT * FROM orders; INSERT INTO daily SELECT * FROM O", "orders", "daily"),
    ("trino", "CREATE MATERIALIZED VIEW daily AS SELECT * FROM orders", "orders", "daily"),
    # Sets, and queries within others.
    ("spark", "INSERT INTO x SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT SELECT * FROM c", "a b c", "x"),
    ("spark", "SELECT (SELECT max(id) FROM b) FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.id = a.id)", "a b c", ""),
    ("spark", "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.id = a.id)", "a b", ""),
    ("spark", "SELECT * FROM a LATERAL VIEW explode(a.items) i AS item", "a", ""),
    ("spark", "SELECT * FROM range(10) r JOIN a ON a.id = r.id", "a", ""),
    ("spark", "WITH x AS (FROM a SELECT *) SELECT * FROM x PIVOT (sum(n) FOR k IN ('p', 'q'))", "a", ""),
    # What changes rows by what is in the table reads it.
    (
        "spark",
        "MERGE INTO daily t USING (SELECT * FROM orders) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "daily orders",
        "daily",
    ),
    ("spark", "DELETE FROM daily WHERE id IN (SELECT id FROM refunds)", "daily refunds", "daily"),
    ("spark", "UPDATE daily SET total = (SELECT max(amount) FROM orders)", "daily orders", "daily"),
    ("spark", "INSERT OVERWRITE daily SELECT * FROM daily WHERE day > '2026-01-01'", "daily", "daily"),
    # What moves no rows.
    ("spark", "DROP TABLE IF EXISTS a; ALTER TABLE b ADD COLUMN c int; TRUNCATE TABLE d; SET x = 1; DESCRIBE e; -- the end", "", ""),
    ("spark", "CREATE TABLE a (id int) USING iceberg; CREATE TABLE b LIKE a", "", ""),
    ("spark", "INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT * FROM orders", "orders", ""),
]


@pytest.mark.parametrize(("dialect", "sql", "reads", "writes"), _KNOWN, ids=[sql[:60] for _, sql, _, _ in _KNOWN])
def test_every_table_of_a_statement_is_found(dialect: str, sql: str, reads: str, writes: str) -> None:
    found = tables_of(sql, dialect, _PLACE)
    assert found.unknown == ()
    assert {".".join(name) for name in found.reads} == _full(reads)
    assert {".".join(name) for name in found.writes} == _full(writes)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT * FROM {{ ref('orders') }}",
            "it is a template, and what {{ ref('orders') }} stands for is known only when it is filled in",
        ),
        ("SELECT * FROM ${db}.orders", "it is a template, and what ${db} stands for"),
        ("SELECT * FROM orders_{{ ds }}", "it is a template, and what {{ ds }} stands for"),
        ("SELECT * FROM orders_{day}", "it is a template, and what {day} stands for"),
        ("{% if full %} SELECT * FROM orders {% endif %}", "it is a template, and what {% if full %} stands for"),
        ("INSERT INTO %(table)s SELECT 1", "it is a template, and what %(table)s stands for"),
        ("SELECT * FROM orders WHERE day = :?", "it cannot be read as SQL of spark: "),
        ("SELECT * FROM :name", "known only when it runs"),
        ("SELECT * FROM IDENTIFIER(:name)", "the function IDENTIFIER"),
        ("SELECT * FROM parquet.`s3://bucket/file`", "reads files: s3://bucket/file"),
        ("CALL lake.system.rewrite_data_files(table => 'shop.orders')", "not understood"),
        ("garbage in here", "not understood"),
        ("SELECT * FROM lake.orders", "no catalog or no namespace"),
        ("INSERT INTO lake.shop.orders.branch_audit SELECT 1", "becomes visible when"),
        ("SELECT 'open", "Error tokenizing"),
    ],
)
def test_what_is_not_understood_is_said_and_the_other_statements_count(sql: str, says: str) -> None:
    found = tables_of(f"INSERT INTO a SELECT * FROM b; {sql}", "spark", _PLACE)
    assert len(found.unknown) == 1
    assert says in found.unknown[0]
    if "open" not in sql:
        assert (found.reads, found.writes) == ({("lake", "shop", "b")}, {("lake", "shop", "a")})


@pytest.mark.parametrize("sql", ["SELECT * FROM b -- {{ x }}", "SELECT * FROM b WHERE day = '{{ ds }}' AND x = '${x}'"])
def test_a_template_in_a_comment_or_in_a_text_hides_no_table(sql: str) -> None:
    assert tables_of(f"INSERT INTO a {sql}", "spark", _PLACE) == SqlTables(_names("b"), _names("a"), ())


def test_the_other_tables_of_a_template_count() -> None:
    found = tables_of("INSERT INTO a SELECT * FROM b JOIN c_{{ x }} ON true WHERE day = {{ ds }}", "spark", _PLACE)
    assert (found.reads, found.writes, len(found.unknown)) == (_names("b"), _names("a"), 1)


def _names(text: str) -> frozenset[tuple[str, ...]]:
    return frozenset(("lake", "shop", one) for one in text.split())


def test_a_view_of_something_unknown_hides_nothing_else_that_it_reads() -> None:
    found = tables_of("CREATE TEMP VIEW v AS SELECT * FROM a JOIN :b; INSERT INTO c SELECT * FROM v", "spark", _PLACE)
    assert found.reads == {("lake", "shop", "a")}
    assert found.writes == {("lake", "shop", "c")}
    assert len(found.unknown) == 1


def test_names_without_a_catalog_are_unknown_where_nothing_says_which() -> None:
    found = tables_of("SELECT * FROM shop.orders; SELECT * FROM cold.shop.orders", "spark", SqlPlace(frozenset({"cold"})))
    assert found.reads == {("cold", "shop", "orders")}
    assert "shop.orders has no catalog" in found.unknown[0]


def test_an_unknown_dialect_and_a_long_script_are_refused() -> None:
    with pytest.raises(ValueError, match="the dialect 'klingon' is unknown; there are athena"):
        tables_of("SELECT 1", "klingon", _PLACE)
    with pytest.raises(ValueError, match="may have 200000"):
        tables_of(" " * (MOST_CHARACTERS + 1), "spark", _PLACE)


def _full(names: str) -> set[str]:
    if names.startswith("lake.shop.order lines"):
        return {names}
    return {name if "." in name else f"lake.shop.{name}" for name in names.split()}
