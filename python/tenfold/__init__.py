"""PyTorch's data on disk as memory-mapped trees of tensors, without pickle.

>>> import tenfold
>>> tenfold.save({"model": model.state_dict(), "step": 7}, "run/ckpt")
>>> model.load_state_dict(tenfold.load("run/ckpt")["model"])
>>> tenfold.open("run/ckpt")["model", "encoder.weight"]     # maps this tensor only

Importing this package imports neither torch nor numpy. By default, arrays are torch tensors if the
program has imported torch, else numpy arrays if it has imported numpy, else torch tensors if torch
is installed, else numpy arrays. To choose, call `set_framework`, or import torch before the call
that loads. tenfold imports the chosen framework when it creates the first array.
"""

from __future__ import annotations

# The public names of each module. A name is imported from its module when it is first used.
# `make format` generates __init__.pyi, which type checkers read, from this table.
_EXPORTS = {
    "tenfold._core": ["__version__"],
    "tenfold._errors": ["CorruptFileError", "Error", "UnsupportedError"],
    "tenfold._io.files": ["convert", "diff", "load", "open", "probe", "save", "scan", "verify"],
    "tenfold._io.load_into": ["load_into"],
    "tenfold._reports": [
        "Change",
        "DiffReport",
        "IngestReport",
        "LoadReport",
        "Mismatch",
        "Problem",
        "Promotion",
        "ScanFinding",
        "ScanReport",
        "VerifyReport",
    ],
    "tenfold._io.snapshot": [
        "PendingSnapshot",
        "RNGState",
        "Snapshot",
        "SnapshotEntry",
        "SnapshotMetadata",
        "StateDict",
    ],
    "tenfold.checkpoint": [
        "CheckpointManager",
        "Estimate",
        "Preemption",
        "RestoreResult",
        "RngState",
        "SaveHandle",
        "StepStatus",
    ],
    "tenfold._interop.frameworks": ["set_framework"],
    "tenfold._interop.objects": ["Opaque"],
    "tenfold.sparse": ["SparseMatrix"],
    "tenfold.dataset": [
        "BatchLoader",
        "Column",
        "Dataset",
        "Schema",
        "accumulate",
        "collate",
        "commit_parts",
        "compact",
        "concat",
        "create",
        "create_parts",
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
        "NestedKey",
        "NonTensorData",
        "NonTensorStack",
        "TensorDict",
        "TensorDictBase",
        "UnbatchedTensor",
        "assert_allclose_td",
        "assert_close",
        "cat",
        "default_is_leaf",
        "dense_stack_tds",
        "from_any",
        "from_consolidated",
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
# Exceptions that are not public: users catch their public base classes (KeyError, ...). This module
# must provide them, because tracebacks and pickles name them ``tenfold.<name>``.
_ERRORS = {
    "InplaceWriteError": "tenfold.tensordict._ops.mapping",
    "KeyNotFoundError": "tenfold._errors",
    "KeyThroughLeafError": "tenfold.tensordict._ops.mapping",
    "ShapesDiffer": "tenfold.tensordict._ops.join",
    "TooManyIndicesError": "tenfold.tensordict._index",
    "UnknownPathError": "tenfold._io.snapshot.manifest",
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
# These modules have the interfaces of the packages tensordict and torchsnapshot. Their names are
# attributes of `tenfold`, too, but `__all__` lists only the best known ones.
_ELSEWHERE = ("tenfold.tensordict", "tenfold._io.snapshot")
_WELL_KNOWN = {"MemoryMappedTensor", "Snapshot", "TensorDict", "load_memmap", "tensorclass"}
__all__ = [
    name
    for name, module in _MODULE_OF.items()
    if not module.startswith(_ELSEWHERE) or name in _WELL_KNOWN
]
_MODULE_OF |= _ERRORS


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        import sys

        # With `name` and `obj`, tracebacks suggest the nearest name.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    import importlib

    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
