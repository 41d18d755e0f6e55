"""What compaction costs, what it may cost, and with how much capacity it is done."""
