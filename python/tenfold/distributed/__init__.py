"""torch.distributed.checkpoint without pickle: a distributed checkpoint is a plain checkpoint.

>>> import torch.distributed.checkpoint as dcp
>>> from tenfold.distributed import StorageReader, StorageWriter
>>> dcp.save(state, storage_writer=StorageWriter("run/model.safetensors"))
>>> dcp.load(state, storage_reader=StorageReader("run/model.safetensors"))

All ranks write into one ``.safetensors`` file, or into one folder, which one rename creates
completely, or not at all. The checkpoint does not depend on the number of ranks: safetensors,
transformers and `tenfold.open` read it as any other, and so does any number of ranks with any
sharding.
"""

from __future__ import annotations

from tenfold.distributed._planner import SavePlanner
from tenfold.distributed._reader import StorageReader
from tenfold.distributed._save_load import load, save
from tenfold.distributed._writer import StorageWriter

__all__ = ["SavePlanner", "StorageReader", "StorageWriter", "load", "save"]
