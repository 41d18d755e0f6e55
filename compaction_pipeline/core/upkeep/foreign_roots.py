"""Finds the folders outside a table's own in which its metadata names files, so that looks at other tables can keep these files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from compaction_pipeline.core.upkeep.paths import folder_path, full_path

_MOST_FOLDERS = 100
"""Of one store. Where files lie in more folders, the folder above all of them stands for them."""

_FOLDERS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path", "write.metadata.path", "flink.manifests.location")


def own_folders(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The folders to which a table writes: its location, and those that its properties name."""
    return (location, *(properties[key] for key in _FOLDERS if properties.get(key)))


class ForeignRoots:
    """The folders, as far as paths were noted. `own` are the folders of the table itself, as texts."""

    def __init__(self, own: Iterable[str]) -> None:
        texts = tuple(own)
        self._own = tuple(folder_path(text) for text in texts)
        self._own_texts = tuple(f"{text.rstrip('/')}/" for text in texts if text.strip("/"))
        self._folders: dict[str, set[str]] = {}

    def note(self, text: str) -> None:
        """Note a path that the metadata names."""
        if text.startswith(self._own_texts) and "/." not in text:
            return
        path = full_path(text)
        if any(path.is_below(folder) for folder in self._own):
            return
        parts = path.path.split("/")[:-1]
        # The folders of partitions say nothing about the root, and there may be thousands.
        partition = next((place for place, part in enumerate(parts) if "=" in part), len(parts))
        folders = self._folders.setdefault(path.store, set())
        folders.add("/".join(parts[:partition]) or "/")
        if len(folders) > _MOST_FOLDERS:
            self._folders[path.store] = {posixpath.commonpath(folders)}

    def note_folders(self, properties: Mapping[str, str]) -> None:
        """Note the folders to which the properties of the table send its files."""
        for key in _FOLDERS:
            if properties.get(key):
                self.note(f"{properties[key].rstrip('/')}/file")

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders, sorted."""
        return tuple(sorted(f"{store}{folder}" for store, folders in self._folders.items() for folder in folders))
