"""What writers use to report their commits to the HTTP service.

It needs `requests`, and no other module of this program. `reports.spark` needs PySpark too.
"""

from compaction_pipeline.reports.client import Answer, CommitReporter, ReportError

__all__ = ["Answer", "CommitReporter", "ReportError"]
