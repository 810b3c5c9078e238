"""torch.distributed.checkpoint without pickle: a distributed checkpoint is a plain checkpoint.

>>> import torch.distributed.checkpoint as dcp
>>> from tenfold.distributed import StorageReader, StorageWriter
>>> dcp.save(state, storage_writer=StorageWriter("run/model.safetensors"))
>>> dcp.load(state, storage_reader=StorageReader("run/model.safetensors"))

In the default layout, all ranks write into one ``.safetensors`` file, the shards of a
``.safetensors.index.json``, or one folder. The new version replaces the previous version when it is
complete. In this layout, only the stored checksums depend on the number of ranks: `tenfold.open`
reads the files like any other checkpoint, and safetensors and transformers read ``.safetensors``
files. Any number of ranks can load a checkpoint with any sharding.
"""

from __future__ import annotations

from tenfold.distributed._planner import SavePlanner
from tenfold.distributed._reader import StorageReader
from tenfold.distributed._save_load import load, save
from tenfold.distributed._writer import StorageWriter

__all__ = ["SavePlanner", "StorageReader", "StorageWriter", "load", "save"]
