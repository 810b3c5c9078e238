"""`SparseMatrix`."""

from __future__ import annotations

import errno
import os

from tenfold import _core, _pickle
from tenfold._html import table
from tenfold._interop.frameworks import decided, using
from tenfold._options import integer, text
from tenfold._public import set_module
from tenfold.sparse import _inputs, _outputs, _products
from tenfold.sparse._inputs import Growing
from tenfold.sparse._rows import Rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any, Literal

    from tenfold._interop.frameworks import Framework, Name
    from tenfold._io.files import Mode, PathLike, Progress

    Layout = Literal["csr", "csc", "coo"]

_PARTS = {
    "csr": ("crow_indices", "col_indices", "values"),
    "csc": ("ccol_indices", "row_indices", "values"),
    "coo": ("indices", "values"),
}


@set_module("tenfold")
class SparseMatrix(Rows, Growing):
    """A sparse matrix on disk or in memory.

    It is stored like a torch sparse tensor: `tenfold.load` returns such a tensor, and tensordict
    opens the folder as plain component tensors. Opening reads no entry; a matrix may be larger than
    memory.

    >>> tenfold.SparseMatrix.from_scipy(ratings).save("ratings")
    >>> m = tenfold.SparseMatrix("ratings")
    >>> m.layout, m.shape, m.nnz, m.dtype
    ('csr', (200000, 100000), 4000000, torch.float32)
    >>> m[5]                                   # a row, dense: [100000]
    >>> m[5, 17]                               # an element, 0-d
    >>> m.rows([5, 900, 5], layout="csr")      # torch.sparse_csr (3, 100000)
    >>> m.rows([5, 900, 5], layout="padded")   # {"indices", "values": [3, longest], "length": [3]}

    Layouts are ``"csr"`` (by row), ``"csc"`` (by column) and ``"coo"`` (coordinates: small if most
    rows are empty). Reading rows is fast in csr and, with a binary search per row, in coo; reading
    columns is fast in csc. To read rows of a csc matrix or columns of a csr or coo matrix, convert
    the matrix with `to_layout` first: otherwise, each call reads all indices.

    Indices keep their dtype, int32 or int64. Explicit zeros are kept. Entries are sorted within
    each row (csc: column), except in a coo matrix that is not coalesced. An index that is out of
    range raises an error and never causes an out-of-bounds read.

    A SparseMatrix that was opened from a path pickles as that path, any other SparseMatrix as its
    arrays. Both kinds work in forked and spawned workers. An unpickled matrix has mode ``"r"``.

    Args:
        source: The path of a file or folder, in any format that supports sparse tensors; or the
            node of a sparse tensor in a tree that `tenfold.open` returned.
        mode: ``"r"`` or ``"c"``: this object never changes the file. ``"r+"``: rows can be appended
            (`append_rows`).
        framework: ``"torch"`` or ``"numpy"``, as for `tenfold.load`; with numpy, sparse rows are
            scipy matrices. None: determined when the matrix is opened. Pickles keep the framework.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If `source` is not a sparse matrix, or for another `mode` or `framework`.
        CorruptFileError: If the component tensors contradict each other. The constructor checks
            only the last offset; each call checks the offsets and indices that it uses.
    """

    def __init__(
        self, source: PathLike | Any, mode: Mode = "r", *, framework: Framework = None
    ) -> None:
        self._framework: Name = decided(framework)
        self._path: str | None = None
        if isinstance(source, (str, os.PathLike)):
            self._path = os.path.abspath(os.fspath(source))
            self._native: Any = _core.SparseMatrix.open_path(
                self._path, text("sparse matrix: mode", mode)
            )
        else:
            self._native = _core.SparseMatrix.of_tree(_core.tree(source, "sparse matrix"))
        self._mode: Mode = mode
        self._read()

    @classmethod
    def _of_native(cls, native: Any) -> SparseMatrix:
        made = object.__new__(cls)
        made._path, made._native, made._mode = None, native, "r"
        made._framework = decided()
        made._read()
        return made

    def _read(self) -> None:
        """Reads layout, shape, number of entries and dtypes from the engine."""
        layout, rows, cols, nnz, dtype, index_dtype, _ = self._native.describe()
        self._layout: Layout = layout
        self._shape = (rows, cols)
        self._nnz: int = nnz
        self._dtype_name: str = dtype
        self._index_dtype_name: str = index_dtype

    # --- constructors ---

    @classmethod
    def from_scipy(cls, x: Any) -> SparseMatrix:
        """Returns `x` as a SparseMatrix, over the same memory unless it must be copied.

        A matrix that is in coo format or not canonical is copied: entries are sorted, and those
        with the same coordinate are added, as in scipy. Arrays that are not contiguous or not in
        native byte order, and index arrays of different dtypes, are copied, too.

        Args:
            x: A scipy sparse matrix or array in format csr, csc or coo; the format is kept.

        Returns:
            SparseMatrix: In memory; `save` writes it.

        Raises:
            ValueError: For another format, for invalid indices, or if `x` is not 2-dimensional.
            UnsupportedError: For a dtype that torch does not have.

        Example:
            >>> tenfold.SparseMatrix.from_scipy(m.to_scipy()).save("copy")
            PosixPath('copy')
        """
        return cls._of_native(_inputs.of_scipy(x))

    @classmethod
    def from_torch(cls, tensor: Any) -> SparseMatrix:
        """Returns `tensor` as a SparseMatrix, over the same memory unless it must be copied.

        A tensor that is not on the CPU, not contiguous or not coalesced is copied.

        Args:
            tensor: A tensor of two dimensions in layout sparse_csr, sparse_csc or sparse_coo; the
                layout is kept. Coordinates are coalesced.

        Returns:
            SparseMatrix: In memory; `save` writes it.

        Raises:
            ValueError: For another tensor, and for invalid indices.

        Example:
            >>> tenfold.SparseMatrix.from_torch(torch.eye(3).to_sparse_csr()).nnz
            3
        """
        return cls._of_native(_inputs.of_torch(tensor))

    @classmethod
    def from_coo(
        cls,
        rows: Any,
        cols: Any,
        values: Any,
        shape: tuple[int, int],
        *,
        layout: Layout = "csr",
        duplicates: Literal["sum", "error"] = "sum",
        path: PathLike | None = None,
        memory_bytes: int = 256 << 20,
        progress: Progress = None,
    ) -> SparseMatrix:
        """Builds a matrix from coordinates in any order, which need not fit in memory.

        If the entries exceed `memory_bytes`, they are sorted in runs, which are written to
        temporary files next to `path` (without `path`: in the system's temporary folder) and
        merged.

        >>> tenfold.SparseMatrix.from_coo([0, 2], [1, 0], [0.5, 2.0], (3, 4)).to_scipy().toarray()
        >>> tenfold.SparseMatrix.from_coo(users, films, stars, shape, path="ratings")   # memmaps

        Args:
            rows: int32 or int64 ``[nnz]``: an array, a memory map or a list. Or an iterable of such
                pieces; then `cols` and `values` are iterables of pieces of the same lengths, too.
            cols: As `rows`. The indices of the matrix are int32 if `cols` or its first piece is
                int32 and neither a dimension nor the number of entries exceeds 2**31 - 1; otherwise
                int64.
            values: The elements. Python floats become torch's default dtype; with framework numpy,
                float32.
            shape: (rows, columns).
            layout: Layout of the result.
            duplicates: ``"sum"``: entries of the same coordinate are added in input order.
                ``"error"``: such entries raise a ValueError that names the coordinate.
            path: Path to which the matrix is saved, atomically. None: the matrix is in memory or,
                if it is large, in a temporary file without a name.
            memory_bytes: Memory for the entries that are sorted at once, 32 bytes each.
            progress: As for `tenfold.save`.

        Returns:
            SparseMatrix: The matrix at `path`, opened for reading. Without `path`: the matrix that
                was built.

        Raises:
            ValueError: For lengths that differ, for arrays with several dimensions or none, for
                coordinates of another dtype or outside the shape, and with ``duplicates="error"``
                for a coordinate that occurs twice.
            UnsupportedError: For tensors that are not dense, for elements of a dtype that torch
                does not have, and for a coordinate with several entries if their dtype has no
                addition, such as float8.
        """
        folder = None if path is None else _existing_parent(path)
        from tenfold._progress import Shown

        with Shown(progress) as callback:
            native = _inputs.of_coordinates(
                rows, cols, values, shape, layout, duplicates, memory_bytes, folder, callback
            )
        made = cls._of_native(native)
        if path is None:
            return made
        made.save(path, progress=progress)
        return cls(path)

    @classmethod
    def build(
        cls,
        rows: Iterable[Mapping[int, Any]],
        path: PathLike,
        num_cols: int | None = None,
        dtype: Any = None,
        *,
        progress: Progress = None,
    ) -> SparseMatrix:
        """Builds a csr matrix on disk from an iterable of rows, in bounded memory.

        >>> tenfold.SparseMatrix.build(({t: 1.0 for t in doc} for doc in docs), "counts", 50_000)

        Args:
            rows: Dicts from column to element, in any order of columns; an empty dict is a row of
                zeros.
            path: Target path, which is replaced atomically.
            num_cols: Number of columns. None: one more than the greatest column.
            dtype: Element type, of torch, numpy or Python, as in `tenfold.create`. None: the rows
                up to the 65,536th element decide: int64 if they have elements and all of these are
                ints; otherwise float64.
            progress: As for `tenfold.save`.

        Returns:
            SparseMatrix: The matrix at `path`, opened for reading.

        Raises:
            ValueError: For a column outside the matrix, or an element that the dtype cannot hold.
            TypeError: For a row that is not a dict, or a column that is not an int.
        """
        from tenfold._progress import Shown

        with Shown(progress) as callback:
            native = _inputs.of_rows(rows, num_cols, dtype, _existing_parent(path), callback)
        cls._of_native(native).save(path, progress=progress)
        return cls(path)

    def save(
        self,
        path: PathLike,
        *,
        format: str | None = None,
        durable: bool = True,
        checksums: bool = True,
        num_threads: int | None = None,
        overwrite: bool = True,
        progress: Progress = None,
    ) -> Path:
        """Saves the matrix atomically, as `tenfold.save` does.

        Args:
            path: Target path. An existing file or folder is replaced. An existing folder with files
                that its metadata does not name is not replaced: an error.
            format: As for `tenfold.save`.
            durable: fsync before returning.
            checksums: Store checksums, which `tenfold.verify` compares.
            num_threads: Maximum number of threads, as for `tenfold.save`.
            overwrite: If false, an existing `path` is an error.
            progress: As for `tenfold.save`.

        Returns:
            Path: `path`.

        Raises:
            UnsupportedError: For a format without sparse tensors.
            FileExistsError: If `path` exists and `overwrite` is false.

        Example:
            >>> m.save("copy")
            PosixPath('copy')
        """
        from tenfold.tensordict._files.any_format import save_node

        return save_node(
            self._native.tree(),
            path,
            format=format,
            durable=durable,
            checksums=checksums,
            num_threads=num_threads,
            overwrite=overwrite,
            progress=progress,
        )

    # --- properties ---

    @property
    def layout(self) -> Layout:
        """The layout: ``"csr"``, ``"csc"`` or ``"coo"``."""
        return self._layout

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._shape

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self._nnz

    @property
    def dtype(self) -> Any:
        """Element type: a dtype of torch or numpy, as `framework` selects."""
        return _dtype(self._dtype_name, self._framework)

    @property
    def index_dtype(self) -> Any:
        """Type of the indices: int32 or int64."""
        return _dtype(self._index_dtype_name, self._framework)

    def __repr__(self) -> str:
        where = f"{self._path!r}, " if self._path else ""
        rows, cols = self._shape
        return (
            f"SparseMatrix({where}{self._layout}, {rows:,} x {cols:,}, {self._nnz:,} entries, "
            f"{self._dtype_name})"
        )

    def _repr_html_(self) -> str:
        rows, cols = self._shape
        density = f"{self._nnz / (rows * cols):.3g}" if rows and cols else "-"
        cells = (
            ("path", self._path or "in memory"),
            ("layout", self._layout),
            ("shape", f"{rows:,} x {cols:,}"),
            ("entries", f"{self._nnz:,}"),
            ("density", density),
            ("dtype", self._dtype_name),
            ("index dtype", self._index_dtype_name),
        )
        return table(("SparseMatrix", ""), cells)

    # --- conversions ---

    def _arrays(self, framework: Name | None = None) -> tuple[Any, ...]:
        """The component tensors as arrays of `framework` (None: the framework of the matrix)."""
        with using(framework or self._framework):
            return tuple(self._array(part) for part in _PARTS[self._layout])

    def _array(self, part: str) -> Any:
        try:
            return self._native.part(part)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            # The binding raises ENOMEM if the matrix was made from read-only numpy arrays, because
            # a write to a torch tensor over them would crash. So the tensor gets a copy.
            with using("numpy"):
                array = self._native.part(part)
            return _outputs.torch_copy(array)

    def _parts(self, framework: Name | None = None) -> tuple[Any, ...]:
        """Checks all offsets and indices, unless checked before; returns the component tensors."""
        self._native.check()
        return self._arrays(framework)

    def to_torch(self) -> Any:
        """Returns a torch sparse tensor of the same layout, over the same memory.

        All indices are checked before their first use, because torch does not check them. int32
        coordinates are copied, because torch supports only int64 coordinates. csr or csc indices
        and offsets whose dtypes differ are copied, and so are read-only numpy arrays from which the
        matrix was made.

        Raises:
            CorruptFileError: If an end offset or index is invalid.
            ImportError: If torch is not installed.
        """
        coalesced = self._layout != "coo" or self._is_coalesced()
        return _outputs.torch_of(self._layout, self._parts("torch"), self._shape, coalesced)

    def to_scipy(self) -> Any:
        """Returns a scipy matrix of the same layout, over the same memory.

        All indices are checked before their first use, because scipy does not check them. In layout
        coo, scipy copies int64 coordinates as int32 unless a dimension exceeds 2**31 - 1. Writing
        into the result does not change the file.

        Raises:
            CorruptFileError: If an end offset or index is invalid.
            UnsupportedError: For a dtype that numpy does not have.
            ValueError: For a dtype of numpy that scipy does not support, such as float16.
            ImportError: If scipy is not installed.
        """
        coalesced = self._layout != "coo" or self._is_coalesced()
        return _outputs.scipy_of(self._layout, self._parts(), self._shape, coalesced)

    def toarray(self) -> Any:
        """Returns all elements as a dense numpy array ``[rows, columns]``, as scipy's matrices do.

        ``m[:]`` returns the same elements as an array of the matrix's framework.

        Raises:
            UnsupportedError: For a dtype that numpy does not have, and a coo matrix that is not
                coalesced.
            CorruptFileError: If an end offset or index is out of range.

        Example:
            >>> m.toarray().shape
            (40, 50)
        """
        return _outputs.numpy_of(self[:], "toarray")

    @property
    def T(self) -> SparseMatrix:  # noqa: N802 - numpy's, scipy's and torch's name
        """The transposed matrix.

        A csr matrix becomes csc and vice versa, over the same memory. The entries of a coo matrix
        are checked, copied and sorted again; if it is not coalesced, duplicates are added.

        Raises:
            CorruptFileError: For a coo matrix with invalid indices.
            UnsupportedError: For a coo matrix of float8, float4 or complex32 with duplicates.
        """
        made = self._of_native(self._native.transposed())
        made._framework = self._framework
        return made

    def __matmul__(self, dense: Any) -> Any:
        """Multiplies by a dense matrix or vector, in blocks of entries.

        All indices are checked before their first use.

        Args:
            dense: A torch tensor or numpy array ``[columns]`` or ``[columns, n]``.

        Returns:
            A tensor or array, as `dense` is, on the device of `dense`: ``[rows]`` or ``[rows, n]``,
            of the promoted dtype. The memory needed besides the result does not grow with the
            matrix, unless torch must copy read-only numpy arrays from which the matrix was made.

        Raises:
            ValueError: If the shapes do not fit.
            TypeError: If `dense` is not a dense tensor or array or has masked elements, or, for an
                array, if numpy cannot promote the two dtypes to a common one.
            RuntimeError: For a tensor, if torch does not support the product of the two dtypes,
                such as float8 and float32.
            UnsupportedError: If `dense` is a numpy array and the matrix has a dtype that numpy does
                not have.
            CorruptFileError: If an end offset or index is invalid.

        Example:
            >>> scores = m @ torch.rand(m.shape[1], 8)
        """
        return _products.product(self, dense)

    def sum(self, axis: int | None = None) -> Any:
        """Returns sums of elements, in bounded memory.

        Floats are added in float64, complex numbers in complex128, integers and bools in int64.
        All indices are checked before their first use.

        Args:
            axis: 0 or -2: the sums of the columns, ``[columns]``. 1 or -1: the sums of the rows,
                ``[rows]``. None: the sum of all elements, 0-d.

        Returns:
            A tensor or array, of the matrix's dtype for floats and complex numbers, else int64. For
            axis None and framework numpy: a numpy scalar.

        Raises:
            ValueError: For another axis.
            CorruptFileError: If an end offset or index is invalid.

        Example:
            >>> ratings_per_user = m.sum(axis=1)
        """
        return _products.total(self, axis)

    def _is_coalesced(self) -> bool:
        return bool(self._native.tree().info().is_coalesced)

    def to_layout(
        self,
        layout: Layout,
        path: PathLike | None = None,
        *,
        memory_bytes: int = 256 << 20,
        progress: Progress = None,
    ) -> SparseMatrix:
        """Converts the matrix to another layout, in bounded memory.

        Args:
            layout: ``"csr"``, ``"csc"`` or ``"coo"``.
            path: Target path. None: the matrix is in memory or, if it is large, in a temporary file
                without a name.
            memory_bytes: As for `from_coo`.
            progress: As for `tenfold.save`.

        Returns:
            SparseMatrix: The matrix at `path`, opened for reading. Without `path`: a new matrix, or
            this one if it already has that layout (and, for coo, is coalesced).

        Raises:
            ValueError: For another `layout`.
            CorruptFileError: If an end offset or index is out of range.

        Example:
            >>> m.to_layout("csc", "by_film").layout
            'csc'
        """
        if layout not in _PARTS:
            raise ValueError(
                f'sparse matrix: layout: expected "csr", "csc" or "coo", found {layout!r}'
            )
        made = self
        if layout != self._layout or not self._is_sorted():
            from tenfold._progress import Shown

            folder = None if path is None else _existing_parent(path)
            builder = _core.SparseBuilder(
                *self._shape,
                self._dtype_name,
                layout,
                self._index_dtype_name,
                True,
                integer("sparse matrix: memory_bytes", memory_bytes, 1),
                folder,
            )
            with Shown(progress) as callback:
                builder.add_matrix(self._native, callback)
            with Shown(progress) as callback:
                made = self._of_native(builder.finish(callback))
            made._framework = self._framework
        if path is None:
            return made
        made.save(path, progress=progress)
        return type(self)(path, framework=self._framework)

    def _is_sorted(self) -> bool:
        return self._layout != "coo" or self._is_coalesced()

    # --- other ---

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is not None:
            return _pickle.opened_matrix, (type(self), self._path, self._framework)
        made = self if self._is_sorted() else self.to_layout("coo")
        parts = (made._layout, made._arrays(), made._shape)
        return _pickle.sparse_matrix, (*parts, self._framework)


def of_parts(
    layout: str, parts: tuple[Any, ...], shape: Any, framework: Name | None = None
) -> SparseMatrix:
    """Creates a matrix in memory from the component arrays of its layout."""
    made = SparseMatrix._of_native(_inputs.of_parts(layout, parts, shape))
    if framework is not None:
        made._framework = framework
    return made


def _dtype(name: str, framework: Name) -> Any:
    from tenfold._interop import arrays

    with using(framework):
        torch = arrays.torch_or_none()
    return arrays.numpy_dtype(name, "sparse matrix") if torch is None else getattr(torch, name)


def _existing_parent(path: PathLike) -> str:
    parent = os.path.dirname(os.path.abspath(os.fsdecode(path)))
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    return parent
