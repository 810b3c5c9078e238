"""torch.distributed.checkpoint without pickle: a distributed checkpoint is a plain checkpoint.

>>> import torch.distributed.checkpoint as dcp
>>> from tenfold.distributed import StorageReader, StorageWriter
>>> dcp.save(state, storage_writer=StorageWriter("run/model.safetensors"))
>>> dcp.load(state, storage_reader=StorageReader("run/model.safetensors"))

In the default layout, all ranks write into one ``.safetensors`` file, the shards of an index, or
one folder, which replaces the previous version when it is complete. It does not depend on the
number of ranks: `tenfold.open` reads it like any other checkpoint, safetensors and transformers
read ``.safetensors`` files, and any number of ranks can load it with any sharding.
"""

from __future__ import annotations

from tenfold.distributed._planner import SavePlanner
from tenfold.distributed._reader import StorageReader
from tenfold.distributed._save_load import load, save
from tenfold.distributed._writer import StorageWriter

__all__ = ["SavePlanner", "StorageReader", "StorageWriter", "load", "save"]
