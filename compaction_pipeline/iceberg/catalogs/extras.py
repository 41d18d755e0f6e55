"""Tells which extra of this package to install when a catalog or a storage needs a package that is missing."""

from __future__ import annotations

_EXTRA_OF_MODULE = {
    "boto3": "glue",
    "botocore": "glue",
    "thrift": "hive",
    "s3fs": "s3",
    "gcsfs": "gcs",
    "adlfs": "adls",
    "hdfs_native": "hdfs",
}
# For some missing modules PyIceberg raises an error of its own, which names an extra of PyIceberg.
_EXTRA_OF_PYICEBERG = {"pyiceberg[glue]": "glue", "pyiceberg[hive]": "hive", "pyiceberg[dynamodb]": "glue"}


def missing_extra(error: BaseException) -> str | None:
    """The extra to install if this error is about a missing module. None for another error, or if no extra of ours has the module."""
    if isinstance(error, ModuleNotFoundError):
        return _EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
    return next((extra for theirs, extra in _EXTRA_OF_PYICEBERG.items() if theirs in str(error)), None)
