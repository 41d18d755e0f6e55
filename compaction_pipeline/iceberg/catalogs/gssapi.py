"""What a client says and hears when it logs in with a Kerberos ticket (GSSAPI as a mechanism of SASL, RFC 4752).

It calls MIT Kerberos's own library, which reads the ticket from the cache that it is given. So each connection may have another principal.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

_LIBRARY = "libgssapi_krb5.so.2"
_CONTINUE = 1
_ERRORS = 0xFFFF0000
_MUTUAL, _CONFIDENTIAL, _INTEGRITY = 2, 16, 32
_PLAIN, _SIGNED, _SECRET = 1, 2, 4
"""Layers of protection: none, signatures, encryption."""
_LARGEST = 0xFFFFFF
_INITIATE = 1
_ANY_TIME = 0xFFFFFFFF
_HOST_BASED = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04"
_PRINCIPAL = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01"
"""Two forms of names: service@host, and name/host@REALM."""


class _Buffer(Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _Element(Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Element)))


@cache
def _library() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        raise PermissionError(f"there is no library {_LIBRARY}: install MIT Kerberos (Debian: libgssapi-krb5-2)") from None


class KerberosLogin:
    """One login at one service, and the messages after it. Not for several threads. Raises PermissionError where Kerberos refuses."""

    def __init__(self, service: str, host: str, ticket: Path | None = None, principal: str | None = None) -> None:
        """`ticket` is a cache of tickets; without it, that of the process. `principal` is the service's, if it is known."""
        self._context, self._credentials, self._name = c_void_p(), c_void_p(), c_void_p()
        self._who = principal or f"{service}@{host}"
        self._established = False
        self._layer = _PLAIN
        self.complete = False
        form = _Oid(10, _PRINCIPAL if principal else _HOST_BASED)
        text = _given(self._who.encode())
        self._call("gss_import_name", byref(text), byref(form), byref(self._name))
        if ticket is not None:
            element = _Element(b"ccache", f"FILE:{ticket}".encode())
            store = _Store(1, ctypes.pointer(element))
            arguments = (None, c_uint32(_ANY_TIME), None, c_int(_INITIATE), byref(store), byref(self._credentials), None, None)
            self._call("gss_acquire_cred_from", *arguments)

    def answer(self, challenge: bytes) -> bytes:
        """What the client says next. The first challenge is empty."""
        if not self._established:
            return self._step(challenge)
        offered = self.opened(challenge)
        if len(offered) != 4:
            raise PermissionError(f"{self._who} sent no list of layers of protection; it is no service that this client knows")
        layer = next((one for one in (_SECRET, _SIGNED, _PLAIN) if offered[0] & one), None)
        if layer is None:
            raise PermissionError(f"{self._who} offers no layer of protection that this client knows")
        chosen = self._wrapped(bytes([layer]) + _LARGEST.to_bytes(3, "big"), secret=False)
        self._layer, self.complete = layer, True
        return chosen

    def closed(self, message: bytes) -> bytes:
        """A message as it is sent: as it is, signed, or encrypted."""
        return message if self._layer == _PLAIN else self._wrapped(message, secret=self._layer == _SECRET)

    def opened(self, message: bytes) -> bytes:
        """A message as it was before `closed` of the other side."""
        if self.complete and self._layer == _PLAIN:
            return message
        given, taken = _given(message), _Buffer()
        self._call("gss_unwrap", self._context, byref(given), byref(taken), None, None)
        return _taken(taken)

    def end(self) -> None:
        minor = c_uint32()
        if self._context:
            _library().gss_delete_sec_context(byref(minor), byref(self._context), None)
        if self._credentials:
            _library().gss_release_cred(byref(minor), byref(self._credentials))
        if self._name:
            _library().gss_release_name(byref(minor), byref(self._name))

    def _step(self, challenge: bytes) -> bytes:
        given, said = _given(challenge), _Buffer()
        flags = c_uint32(_MUTUAL | _CONFIDENTIAL | _INTEGRITY)
        major = self._call(
            "gss_init_sec_context",
            self._credentials,
            byref(self._context),
            self._name,
            None,
            flags,
            c_uint32(0),
            None,
            byref(given),
            None,
            byref(said),
            None,
            None,
        )
        self._established = not major & _CONTINUE
        return _taken(said)

    def _wrapped(self, message: bytes, secret: bool) -> bytes:
        given, said = _given(message), _Buffer()
        self._call("gss_wrap", self._context, c_int(secret), c_uint32(0), byref(given), None, byref(said))
        return _taken(said)

    def _call(self, function: str, *arguments: Any) -> int:
        minor = c_uint32()
        called = getattr(_library(), function)
        called.restype = c_uint32
        major = int(called(byref(minor), *arguments))
        if major & _ERRORS:
            raise PermissionError(f"Kerberos does not let this client in at {self._who}: {_in_words(major, minor.value)}")
        return major


def _given(message: bytes) -> _Buffer:
    return _Buffer(len(message), ctypes.cast(ctypes.c_char_p(message), c_void_p))


def _taken(buffer: _Buffer) -> bytes:
    message = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return message


def _in_words(major: int, minor: int) -> str:
    # The first code tells the kind of the error, and the second one what Kerberos says.
    found = [_status(code, kind) for code, kind in ((major, 1), (minor, 2)) if code]
    return "; ".join(found)


def _status(code: int, kind: int) -> str:
    said, more = _Buffer(), c_uint32()
    _library().gss_display_status(byref(c_uint32()), c_uint32(code), c_int(kind), None, byref(more), byref(said))
    return _taken(said).decode(errors="replace")
