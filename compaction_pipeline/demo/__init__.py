"""`make demo`: a warehouse of its own, writers that never stop, a change log as the truth, and Dagster beside them."""
