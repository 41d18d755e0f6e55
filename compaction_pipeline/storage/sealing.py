"""Encrypts the secrets of catalogs and groups before they are stored, and knows the keys.

A row has its secrets in one column, as one text of `cryptography`'s Fernet; its other properties stay readable. The keys are those of
COMPACTION_SECRET_KEY or of the file that COMPACTION_SECRET_KEY_FILE names. Without both, a SQLite database has a key file beside it
(`state.db.key`, mode 600, a key in each line), which is made at the first secret; PostgreSQL takes no secret then.

The first key encrypts, and all keys decrypt. Two rules keep every row readable, also beside other processes and after a crash at any step:

- The key file changes, and a secret is encrypted, only in a write transaction that holds the lock `secret keys`, and the keys are read
  anew in it. So nobody encrypts with a key that another process has just dropped.
- A new key is in the file before the first row needs it. An old one leaves the file only after a look at all rows found none that needs it.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from sqlalchemy import Connection, Engine, Table, inspect, select, update

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.secrets.keys import is_secret
from compaction_pipeline.core.secrets.references import reference_of
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, writing

log = logging.getLogger(__name__)

MAKE_KEY = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
_REMEMBERED = 256
_LOOKS = 5
_TABLES = (schema.catalog, schema.group, schema.site_file)


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """The keys that the settings name: `text`, or a file that is read anew each time. Neither is set for a key file of our own."""

    text: str | None = field(default=None, repr=False)
    file: Path | None = None

    def read(self) -> tuple[str, ...]:
        """The keys, the one that encrypts first. Raises ConfigError for a text that is no key, and for a file that cannot be read."""
        if self.text is not None:
            return _keys_in(self.text.replace(",", "\n"), "COMPACTION_SECRET_KEY")
        if self.file is None:
            return ()
        try:
            return _keys_in(self.file.expanduser().read_text(), f"the file {str(self.file)!r} of COMPACTION_SECRET_KEY_FILE")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f"COMPACTION_SECRET_KEY_FILE names {str(self.file)!r}, which cannot be read: {reason}; correct it") from None


T = TypeVar("T")


class SecretUnreadable(ConfigError):
    """No known key decrypts a stored secret."""


class Sealer:
    """The keys of one state database. Raises ConfigError when a key is missing or is none."""

    def __init__(self, engine: Engine, given: GivenKeys = GivenKeys(), on_step: Callable[[str], None] = lambda step: None) -> None:
        """`on_step` hears of each step of a rotation; crash tests end the process there."""
        self._engine = engine
        self._given = given
        self._on_step = on_step
        # By the stored text, which is different for each encryption. Ticks read all catalogs again and again.
        self._opened: dict[str, Mapping[str, str]] = {}

    @property
    def key_file(self) -> Path | None:
        """The key file beside a SQLite database; that of the database itself where a link leads to it. None for PostgreSQL."""
        if self._engine.dialect.name != "sqlite":
            return None
        return Path(os.path.realpath(f"{os.path.realpath(self._engine.url.database or '')}.key"))

    def columns(self, connection: Connection, properties: Mapping[str, str]) -> dict[str, object]:
        """The values of the columns `properties` and `sealed` for these properties. `connection` is in a write transaction.

        Raises ConfigError when there is a secret and no key to encrypt it.
        """
        secrets = secrets_of(properties)
        if not secrets:
            return {"properties": properties, "sealed": None}
        lock(connection, "secret keys")
        keys = self.keys_for_writing(secrets, lambda: _sealed_rows(connection) > 0)
        readable = {key: value for key, value in properties.items() if key not in secrets}
        return {"properties": readable, "sealed": seal(keys, json.dumps(dict(secrets)))}

    def text(self, connection: Connection, secret: str, what: str) -> str:
        """The encrypted form of a text. `what` names it in errors. `connection` is in a write transaction.

        Raises ConfigError when there is no key to encrypt it.
        """
        lock(connection, "secret keys")
        return seal(self.keys_for_writing((what,), lambda: _sealed_rows(connection) > 0), secret)

    def properties(self, readable: Mapping[str, str], sealed: str | None) -> Mapping[str, str]:
        """All properties of a row. Raises SecretUnreadable."""
        if sealed is None:
            return readable
        known = self._opened.get(sealed)
        if known is None:
            known = json.loads(self.unseal(sealed))
            if len(self._opened) >= _REMEMBERED:
                self._opened.clear()
            self._opened[sealed] = known
        return {**readable, **known}

    def unseal(self, sealed: str) -> str:
        """Decrypt with the keys of this moment. Raises SecretUnreadable."""
        keys = self._keys()
        try:
            return _fernet(keys).decrypt(sealed.encode()).decode() if keys else self._missing()
        except InvalidToken:
            raise SecretUnreadable(
                f"the state database holds secrets that the keys of {self._place()} do not decrypt; "
                "use the key that encrypted them, or restore its file from a copy"
            ) from None

    def keys_for_writing(self, secrets: Iterable[str], has_rows: Callable[[], bool]) -> Sequence[str]:
        """The keys, the one that encrypts first. The key file is made if there is none, and no row was encrypted before.

        `secrets` are the keys of the properties, for the error. The caller holds the lock `secret keys`.
        """
        keys = self._keys()
        if keys:
            return keys
        if has_rows():
            self._missing()
        if self.key_file is None:
            raise ConfigError(
                f"the properties {', '.join(map(repr, sorted(secrets)))} hold secrets, and a PostgreSQL state database stores none without "
                "a key: set COMPACTION_SECRET_KEY or COMPACTION_SECRET_KEY_FILE for every process that uses the state database (a key is "
                f"made by `{MAKE_KEY}`), or write the value as a reference, env:NAME or file:PATH"
            )
        made = Fernet.generate_key().decode()
        _make_key_file(self.key_file, made)
        # Another process may have been faster where the database's lock does not reach, so its key counts.
        return self._keys()

    def rotate(self) -> int:
        """Encrypt every secret with a new key, and forget the old keys. Return how many catalogs and groups have secrets.

        With given keys, the first of them is the new one. Other processes go on: they read the keys anew.
        """
        file = self.key_file
        if self._given.read() or file is None:
            with writing(self._engine) as connection:
                lock(connection, "secret keys")
                if not self._given.read():
                    if _sealed_rows(connection):
                        self._missing()
                    return 0
                return _seal_again(connection, self._keys_or_missing())
        with writing(self._engine) as connection:
            lock(connection, "secret keys")
            keys = self._keys()
            if not keys and _sealed_rows(connection):
                self._missing()
            if not keys:
                return 0
            keys = (Fernet.generate_key().decode(), *keys)
            _replace_key_file(file, keys)
            self._on_step("new key known")
            count = _seal_again(connection, keys)
            self._on_step("rows encrypted")
        self._on_step("rows stored")
        self._forget_old_keys(file)
        self._on_step("old keys forgotten")
        return count

    def _forget_old_keys(self, file: Path) -> None:
        # Another rotation may have begun since the rows were stored. So the keys are read anew, and the rows say which are needed.
        with writing(self._engine) as connection:
            lock(connection, "secret keys")
            first, *others = _read_key_file(file)
            kept = (first, *(key for key in others if _needs(connection, first, key)))
            if len(kept) <= len(others):
                _replace_key_file(file, kept)

    def _keys(self) -> tuple[str, ...]:
        file = self.key_file
        return (*self._given.read(), *(() if file is None else _read_key_file(file)))

    def _keys_or_missing(self) -> tuple[str, ...]:
        keys = self._keys()
        if not keys:
            self._missing()
        return keys

    def _missing(self) -> str:
        file = self.key_file
        if file is None:
            raise SecretUnreadable(
                "the state database holds encrypted secrets, and this process has no key: set COMPACTION_SECRET_KEY or "
                "COMPACTION_SECRET_KEY_FILE to the key that encrypted them"
            )
        raise SecretUnreadable(
            f"the state database holds encrypted secrets, and their key file {str(file)!r} is missing: restore it from a copy, or set "
            "COMPACTION_SECRET_KEY to the key; if it is lost, remove the catalogs and groups that have secrets, and add them again"
        )

    def _place(self) -> str:
        named = "COMPACTION_SECRET_KEY" if self._given.text is not None else None
        named = named or (str(self._given.file) if self._given.file is not None else None)
        return " and ".join(each for each in (named, None if self.key_file is None else str(self.key_file)) if each)


def read_again_after_rotation(read: Callable[[], T]) -> T:
    """What `read` returns. It is called again when the keys changed between its look at the rows and its look at the keys."""
    for _ in range(_LOOKS - 1):
        with suppress(SecretUnreadable):
            return read()
    return read()


def secrets_of(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Those properties that hold secrets. A reference is none. A value that only begins like one may be a secret."""
    return {key: value for key, value in properties.items() if is_secret(key, value) and not _is_reference(key, value)}


def _is_reference(key: str, value: str) -> bool:
    reference = reference_of(key, value)
    return reference is not None and reference.problem is None


def seal(keys: Sequence[str], text: str) -> str:
    """Encrypt with the first of the keys."""
    return Fernet(keys[0]).encrypt(text.encode()).decode()


def _tables(connection: Connection) -> Sequence[Table]:
    """The tables with encrypted texts. The upgrade that encrypts secrets runs before the one that makes the last of them."""
    known = inspect(connection)
    return [table for table in _TABLES if known.has_table(table.name)]


def _sealed_rows(connection: Connection) -> int:
    return sum(len(connection.execute(select(table.c.name).where(table.c.sealed.is_not(None))).all()) for table in _tables(connection))


def _seal_again(connection: Connection, keys: Sequence[str]) -> int:
    """Encrypt all rows with the first key."""
    fernet, count = _fernet(keys), 0
    for table in _tables(connection):
        # A change of a row that is under way ends first.
        rows = connection.execute(select(table.c.name, table.c.sealed).where(table.c.sealed.is_not(None)).with_for_update()).all()
        for name, sealed in rows:
            try:
                again = fernet.rotate(sealed.encode()).decode()
            except InvalidToken:
                raise SecretUnreadable(
                    f"the secrets of {name!r} are encrypted with a key that is not among those given, so nothing was changed; "
                    "give the old key behind the new one"
                ) from None
            connection.execute(update(table).where(table.c.name == name).values(sealed=again))
            count += 1
    return count


def _needs(connection: Connection, first: str, key: str) -> bool:
    """Whether a row is decrypted by this key, and not by the first one."""
    sealed = [
        text
        for table in _tables(connection)
        for text in connection.execute(select(table.c.sealed).where(table.c.sealed.is_not(None))).scalars().all()
    ]
    return any(not _opens(first, text) and _opens(key, text) for text in sealed)


def _opens(key: str, sealed: str) -> bool:
    try:
        Fernet(key).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def _fernet(keys: Sequence[str]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def _keys_in(text: str, place: str) -> tuple[str, ...]:
    keys = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            # The key itself is not repeated, because it may have only one wrong character.
            raise ConfigError(
                f"key {number} in {place} is no key: it must be 32 bytes in URL-safe base64, as `{MAKE_KEY}` makes it"
            ) from None
    if not keys:
        raise ConfigError(f"{place} holds no key: it must hold one as `{MAKE_KEY}` makes it, or not be set")
    return keys


def _read_key_file(file: Path) -> tuple[str, ...]:
    try:
        text = file.read_text()
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            with suppress(OSError):
                file.chmod(0o600)
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StorageUnavailable(
            f"the key file {str(file)!r} of the state database cannot be read: {reason}; let this user read it"
        ) from None
    return _keys_in(text, f"the key file {str(file)!r}")


def _make_key_file(file: Path, key: str) -> None:
    """Make the file with its whole content at once, unless there is one."""
    part = _written_beside(file, (key,))
    try:
        with suppress(FileExistsError):
            os.link(part, file)
    except OSError as error:
        raise _not_written(file, error) from error
    finally:
        part.unlink(missing_ok=True)
    _keep_name(file)


def _replace_key_file(file: Path, keys: Sequence[str]) -> None:
    part = _written_beside(file, keys)
    try:
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _not_written(file, error) from error
    _keep_name(file)


def _written_beside(file: Path, keys: Sequence[str]) -> Path:
    part = file.with_name(f"{file.name}.{uuid4().hex}.part")
    try:
        # Nobody else may open the file at any moment, so the mode is that of its making.
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write("".join(f"{key}\n" for key in keys))
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise _not_written(file, error) from error
    return part


def _keep_name(file: Path) -> None:
    """Let the name outlast a loss of power, before a row needs the key."""
    with suppress(OSError):
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _not_written(file: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"the key file {str(file)!r} of the state database cannot be written: {error.strerror}; see that its folder can be written by this "
        "user, or set COMPACTION_SECRET_KEY"
    )
