"""Catalogs: how they are opened, how long they may take to answer, and what their answers mean."""
