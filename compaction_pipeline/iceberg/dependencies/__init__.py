"""Reads what readiness is decided from: raw metadata of every table that a catalog names, and newer manifests."""
