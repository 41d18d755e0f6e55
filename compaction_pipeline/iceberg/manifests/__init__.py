"""Manifests and manifest lists, read and written with every field of the specification. Whatever is written is proved first."""
