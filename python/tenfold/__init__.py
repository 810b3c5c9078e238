"""PyTorch's data on disk as memory-mapped trees of tensors, without pickle.

>>> import tenfold
>>> tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
>>> model.load_state_dict(tenfold.load("run/ckpt")["model"])
>>> tenfold.open("run/ckpt")["model", "encoder.weight"]     # reads nothing else

Importing this package imports neither torch nor numpy: the first tensor that is handed over does.
Tensors are torch's if torch can be imported, else numpy arrays.
"""

from __future__ import annotations

# The public names, by the module that each is imported from when it is first used. Nothing else
# lists them: `make format` makes __init__.pyi, which type checkers read, from this table.
_EXPORTS = {
    "tenfold._core": ["__version__"],
    "tenfold._errors": ["CorruptFileError", "Error", "UnsupportedError"],
    "tenfold._io.files": ["convert", "diff", "load", "open", "probe", "save", "scan", "verify"],
    "tenfold._io.load_into": ["load_into"],
    "tenfold._reports": [
        "Change",
        "DiffReport",
        "LoadReport",
        "Mismatch",
        "Problem",
        "ScanFinding",
        "ScanReport",
        "VerifyReport",
    ],
    "tenfold._io.snapshot": [
        "PendingSnapshot",
        "RNGState",
        "RngState",
        "Snapshot",
        "SnapshotEntry",
        "SnapshotMetadata",
        "StateDict",
    ],
    "tenfold._interop.objects": ["Opaque"],
    "tenfold.sparse": ["SparseMatrix"],
    "tenfold.dataset": [
        "BatchLoader",
        "Column",
        "Dataset",
        "Schema",
        "IngestReport",
        "Promotion",
        "accumulate",
        "collate",
        "concat",
        "create",
        "infer_schema",
        "ingest",
        "mix",
        "permutation",
    ],
    "tenfold.dataset._stream": ["IterableDataset"],
    "tenfold.mapped_dict": ["MappedDict"],
    "tenfold.mappers": [
        "CachedStateMapper",
        "HierarchicalStateMapper",
        "ModuleStateMapper",
        "SparseStateMapper",
        "StateMapper",
        "register_mapper",
    ],
    "tenfold.tensordict": [
        "LazyStackedTensorDict",
        "NonTensorData",
        "NonTensorStack",
        "TensorDict",
        "TensorDictBase",
        "UnbatchedTensor",
        "assert_close",
        "cat",
        "default_is_leaf",
        "dense_stack_tds",
        "from_any",
        "from_dict",
        "from_module",
        "from_modules",
        "from_namedtuple",
        "from_pytree",
        "from_struct_array",
        "from_tuple",
        "fromkeys",
        "is_leaf_nontensor",
        "is_non_tensor",
        "is_tensor_collection",
        "is_tensorclass",
        "lazy_stack",
        "load_memmap",
        "maybe_dense_stack",
        "merge_tensordicts",
        "pad",
        "pad_sequence",
        "stack",
        "unravel_key",
        "unravel_key_list",
        "unravel_key_to_tuple",
    ],
    "tenfold.tensordict._files.archive": [
        "is_memmap_archive",
        "pack_memmap",
        "refresh_archive_checksums",
        "unpack_memmap",
    ],
    "tenfold.tensordict._files.grow": ["append_memmap"],
    "tenfold.tensordict._files.mapped_tensor": ["MemmapTensor", "MemoryMappedTensor"],
    "tenfold.tensordict._tensorclass.decorator": ["TensorClass", "tensorclass"],
}
# Exceptions to be caught by their public bases (KeyError, IndexError, ...). Tracebacks and pickles
# name them in this module, so it has them.
_ERRORS = {
    "InplaceWriteError": "tenfold.tensordict._ops.mapping",
    "KeyNotFoundError": "tenfold._errors",
    "KeyThroughLeafError": "tenfold.tensordict._ops.mapping",
    "ShapesDiffer": "tenfold.tensordict._ops.join",
    "TooManyIndicesError": "tenfold.tensordict._index",
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = list(_MODULE_OF)
_MODULE_OF |= _ERRORS


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
