"""`docs/catalogs.md` says what is proved and what each login needs. This test makes both tables from the code.

`interop/test_catalogs_page.py` runs the commands of that page.
"""

from __future__ import annotations

from compaction_pipeline.core.tables.authentication import LOGINS, Authentication, Login
from compaction_pipeline.core.tables.proofs import Proof, rows
from compaction_pipeline_tests.written_pages import check_part, table

PAGE = "docs/catalogs.md"

WHAT: dict[Authentication, str] = {
    Authentication.SIMPLE: "Nothing is asked, the uri holds the login, or the machine has it (AWS).",
    Authentication.BASIC: "A user with a password.",
    Authentication.KERBEROS: "A ticket, for HDFS and for a metastore.",
    Authentication.AKSK: "An access key with its secret: of Glue, or of the storage alone.",
    Authentication.SIGV4: "Each request is signed for AWS, with `client.access-key-id` or the keys of the machine.",
    Authentication.TOKEN: "A bearer token, which ends some day.",
    Authentication.OAUTH2: "Tokens that are got with the secret of a client.",
    Authentication.GOOGLE: "Google's default login, or a file of a service account. Needs the package google-auth.",
    Authentication.ENTRA: "Microsoft's default login. Needs the package azure-identity.",
    Authentication.TLS: "A certificate of the client.",
}


def test_the_table_of_proofs_is_that_of_the_code() -> None:
    def by(proof: Proof, what: tuple[str, ...]) -> str:
        modules = dict.fromkeys(f"`compaction_pipeline_tests/{one.partition('::')[0]}`" for one in what)
        return ", ".join(modules) if proof is Proof.TESTED else "; ".join(what) or "–"

    shown = [(f"`{catalog}`", f"`{one.value}`", proof.proof.value, by(proof.proof, proof.by)) for catalog, one, proof in rows()]
    check_part(PAGE, "proofs", __file__, table(["type", "authentication", "how well it is shown", "by"], shown))


def test_the_table_of_logins_is_that_of_the_code() -> None:
    def needs(login: Login) -> str:
        fixed = [f"`{key}={value}`" for key, value in (login.fixed or {}).items()]
        ways = [", ".join([*fixed, *(f"`{key}`" for key in way)]) for way in login.ways]
        return " or ".join(way for way in ways if way) or "–"

    listed = [
        (f"`{one.value}`", WHAT[one], needs(login), ", ".join(f"`{key}`" for key in login.takes) or "–") for one, login in LOGINS.items()
    ]
    check_part(PAGE, "logins", __file__, table(["authentication", "what it is", "needs", "takes too"], listed))
