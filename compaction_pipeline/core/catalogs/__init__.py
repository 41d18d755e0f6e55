"""What a catalog is defined by, what is wrong with a definition, and which source may set which of its keys."""
