"""A Kerberos of its own: MIT's KDC on a free loopback port. Debian has it in krb5-kdc, krb5-admin-server and krb5-user."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from compaction_pipeline_tests.ports import free_port

REALM = "COMPACTION.TEST"
_START_SECONDS = 60
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")


@dataclass(frozen=True)
class Kdc:
    """A running KDC."""

    folder: Path
    krb5_conf: Path

    def keytab(self, *names: str) -> Path:
        """Make these principals, `name` or `name/host`, and return a keytab with the keys of all."""
        path = self.folder / f"{names[0].replace('/', '-')}.keytab"
        for name in names:
            self._kadmin(f"addprinc -randkey {name}@{REALM}")
            self._kadmin(f"ktadd -k {path} {name}@{REALM}")
        return path

    def _kadmin(self, query: str) -> None:
        _run(["kadmin.local", "-r", REALM, "-q", query], _environment(self.folder))


@contextmanager
def kdc(folder: Path, ticket_seconds: int = 3600) -> Iterator[Kdc]:
    """A KDC with its files in `folder`, until the block ends. Without the programs, the test is skipped; on CI it fails."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        reason = f"there is no {', no '.join(missing)}: apt-get install krb5-kdc krb5-admin-server krb5-user"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    port = free_port()
    krb5_conf = folder / "krb5.conf"
    krb5_conf.write_text(
        f"""[libdefaults]
  default_realm = {REALM}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {REALM}
"""
    )
    (folder / "kdc.conf").write_text(
        f"""[realms]
  {REALM} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
    max_life = {ticket_seconds}s
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""
    )
    environment = _environment(folder)
    _run(["kdb5_util", "-r", REALM, "create", "-s", "-P", "master"], environment)
    process = subprocess.Popen(
        [_program("krb5kdc"), "-n", "-r", REALM], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        log, deadline = folder / "kdc.log", time.monotonic() + _START_SECONDS
        while not log.exists() or "commencing operation" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the KDC did not start: {log.read_text()[-2000:] if log.exists() else process.returncode}")
            threading.Event().wait(0.02)
        yield Kdc(folder, krb5_conf)
    finally:
        process.kill()
        process.wait()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None
    return found


def _run(command: Sequence[str], environment: dict[str, str]) -> None:
    done = subprocess.run([_program(command[0]), *command[1:]], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
