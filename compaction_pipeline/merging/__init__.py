"""The kernel: data files and delete files in, proved files out. PyArrow, no Spark, no table metadata."""
