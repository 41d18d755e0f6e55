"""Reads and writes files on object stores, where each request costs time. It knows neither tables nor merges."""
