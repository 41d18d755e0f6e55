"""Reads and writes a table's files where each request counts: object stores. Knows neither tables nor merges."""
