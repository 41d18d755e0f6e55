"""Bytes of files: Parquet, Avro, Puffin, files of object stores, and hashes of rows. It knows neither tables nor merges."""
