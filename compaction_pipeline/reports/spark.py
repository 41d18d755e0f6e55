"""A listener for Spark's streaming queries. It reports the newest commit of an Iceberg table after each micro-batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from compaction_pipeline.reports.client import CommitReporter

log = logging.getLogger(__name__)

_PARTITION = "partitions."


class CommitReportListener(StreamingQueryListener):  # type: ignore[misc]
    """Reports one table. `spark.streams.addListener(listener)` starts it, and `close` ends it.

    It looks at the table and reports in a thread of its own, so it delays no query. When micro-batches are faster than reports, one
    report stands for several of them.
    """

    def __init__(self, spark: SparkSession, spark_table: str, reporter: CommitReporter, table: str, query_name: str | None = None) -> None:
        """`spark_table` is the table as SQL names it in Spark, and `table` is its name on the server.

        With `query_name`, only the progress of that query counts; otherwise that of every query does.
        """
        self._session = spark
        self._spark_table = spark_table
        self._reporter = reporter
        self._table = table
        self._query_name = query_name
        self._reported: int | None = None
        self._wanted = threading.Semaphore(0)
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"reports of {table}", daemon=True)
        self._thread.start()

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: no batch has been committed yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Ask for a report."""
        if self._query_name is None or event.progress.name == self._query_name:
            self._wanted.release()

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: nothing was committed."""

    def onQueryTerminated(self, event: Any) -> None:
        """Ask for a last report, because the last batch may have been committed without any progress."""
        self._wanted.release()

    def close(self, seconds: float = 30) -> None:
        """Report what is left, and end. Wait so many seconds at most."""
        self._closed = True
        self._wanted.release()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            self._wanted.acquire()
            # One look covers all micro-batches that have ended until now.
            while self._wanted.acquire(blocking=False):
                pass
            closes = self._closed
            try:
                self._report_newest()
            except Exception as error:
                # The table may be gone, or Spark may be ending. Neither may end the query, nor later reports.
                log.warning("table=%s not looked at: %s", self._spark_table, error)
            if closes:
                return

    def _report_newest(self) -> None:
        log_entries = self._session.table(f"{self._spark_table}.metadata_log_entries")
        newest = log_entries.orderBy(log_entries["timestamp"].desc()).select("latest_snapshot_id", "latest_sequence_number").first()
        if newest is None or newest[0] is None or newest[0] == self._reported:
            return
        snapshot_id, sequence_number = int(newest[0]), int(newest[1] or 0)
        snapshots = self._session.table(f"{self._spark_table}.snapshots")
        found = snapshots.where(snapshots["snapshot_id"] == snapshot_id).select("summary").first()
        added = files_added(found[0] if found is not None and found[0] is not None else {})
        if self._reporter.report_commit(self._table, snapshot_id, sequence_number, added) is not None:
            self._reported = snapshot_id


def files_added(summary: Mapping[str, str]) -> dict[str, int]:
    """Return how many files a commit added to each partition, by the summary of its snapshot.

    A summary has partitions only when the table's property `write.summary.partition-limit` is set. Otherwise all files count for "".
    """
    of_partitions = {
        key[len(_PARTITION) :]: _added(dict(part.partition("=")[::2] for part in value.split(",")))
        for key, value in summary.items()
        if key.startswith(_PARTITION)
    }
    added = of_partitions or {"": _added(summary)}
    return {partition: files for partition, files in added.items() if files}


def _added(counts: Mapping[str, str]) -> int:
    return sum(int(counts.get(key, 0)) for key in ("added-data-files", "added-delete-files"))
