"""Which extra of this package brings what a catalog or a storage needs and is not installed."""

from __future__ import annotations

_EXTRA_OF_MODULE = {"boto3": "glue", "thrift": "hive", "s3fs": "s3", "gcsfs": "gcs", "adlfs": "adls"}
# PyIceberg answers some missing modules with a sentence of its own, which names its own extra.
_EXTRA_OF_PYICEBERG = {"pyiceberg[glue]": "glue", "pyiceberg[hive]": "hive", "pyiceberg[dynamodb]": "glue"}


def missing_extra(error: BaseException) -> str | None:
    """The extra that brings the module whose absence this error tells of; None when it is another error, or no extra of ours."""
    if isinstance(error, ModuleNotFoundError):
        return _EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
    return next((extra for theirs, extra in _EXTRA_OF_PYICEBERG.items() if theirs in str(error)), None)
