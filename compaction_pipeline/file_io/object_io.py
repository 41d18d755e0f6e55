"""The name under which PyIceberg finds our FileIO.

Servers send it to optimizers among the properties of a table (`py-io-impl`), and either side may be of another version. So the name stays
where it is, wherever the class goes.
"""

from compaction_pipeline.formats.file_io.object_io import ObjectFileIO

__all__ = ["OBJECT_FILE_IO", "ObjectFileIO"]

OBJECT_FILE_IO = "compaction_pipeline.file_io.object_io.ObjectFileIO"
"""The value of `py-io-impl` if nobody chose another."""
