"""`make demo`: a warehouse of its own, writers that never stop, a log of all changes to compare with, and Dagster."""
