"""What writers use to report their commits to the HTTP service.

It needs `requests`, and no other module of this program. `reports.spark` needs PySpark too, and `reports.kafka` confluent-kafka.
"""

from compaction_pipeline.reports.client import Answer, CommitReporter
from compaction_pipeline.reports.door import ReportError

__all__ = ["Answer", "CommitReporter", "ReportError"]
