"""What writers use to report their commits to the HTTP service. It needs `requests`, and nothing else of this program."""

from compaction_pipeline.reports.client import Answer, CommitReporter, ReportError

__all__ = ["Answer", "CommitReporter", "ReportError"]
