"""Dictionaries on disk, without pickle, of tensors, scalars, strings, bytes or dicts of these.

>>> words = tenfold.MappedDict.build({"house": torch.rand(300), "garden": torch.rand(300)}, "words")
>>> words["house"]                                       # tensor [300]
>>> vectors, found = words.get_many(["garden", "?"])     # [2, 300], [True, False]
"""

from __future__ import annotations

from tenfold.mapped_dict._mapped_dict import MappedDict

__all__ = ["MappedDict"]
