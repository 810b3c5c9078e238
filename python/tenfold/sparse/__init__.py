"""Sparse matrices on disk and in memory.

>>> m = tenfold.SparseMatrix.from_scipy(ratings)
>>> m.save("ratings")
>>> tenfold.SparseMatrix("ratings").rows([5, 900_000], layout="csr")
"""

from __future__ import annotations

from tenfold.sparse._sparse_matrix import SparseMatrix

__all__ = ["SparseMatrix"]
