"""What is ready: the watermark of a table, and the rules by which partitions become complete."""
