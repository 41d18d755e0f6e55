"""The published name of our FileIO. Its code is in `formats/file_io/`."""
