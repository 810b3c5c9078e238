"""Word vectors in a dictionary on disk, and a small classifier over them.

    python word_embeddings.py folder
    python word_embeddings.py folder --vectors glove.6B.100d.txt

The texts are docstrings of Python's standard library, and the vectors are computed from them:
words that occur near the same words get similar vectors. The method is positive pointwise mutual
information followed by a truncated SVD, close to what word2vec computes implicitly (Levy and
Goldberg, "Neural Word Embedding as Implicit Matrix Factorization", 2014). With --vectors, the
vectors come from a file in GloVe's format instead. The program looks up the vectors on disk, for
one batch of texts at a time. The classifier predicts the module to which a docstring belongs.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import tenfold

MODULES = [
    "argparse",
    "asyncio",
    "collections",
    "datetime",
    "email",
    "logging",
    "socket",
    "tkinter",
]
MODULES += ["unittest", "urllib.request", "xml.dom.minidom", "zipfile"]
DIMENSIONS = 64
NEAR = 4  # number of neighbouring words on either side


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]{2,}", text.lower())


def members(module: object, seen: dict[int, object], depth: int = 0) -> Iterator[str]:
    """Yields the docstrings of a module's functions and classes, and of their methods."""
    for _, member in inspect.getmembers(module):
        # For a classmethod, getmembers() creates a new object in each call; its function is the
        # same object.
        function = getattr(member, "__func__", member)
        if id(function) in seen or not (inspect.isclass(member) or inspect.isroutine(member)):
            continue
        seen[id(function)] = function
        doc = member.__dict__.get("__doc__") if inspect.isclass(member) else member.__doc__
        if isinstance(doc, str):
            yield doc
        if inspect.isclass(member) and depth == 0:
            yield from members(member, seen, 1)


def texts() -> list[tuple[list[str], int]]:
    """Returns the words of each docstring, and the index of its module in MODULES."""
    found: list[tuple[list[str], int]] = []
    seen: dict[int, object] = {}
    for label, name in enumerate(MODULES):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found += [
            (words, label) for doc in members(module, seen) if len(words := words_of(doc)) > 4
        ]
    return found


def learned(documents: list[list[str]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields vectors of the words that occur at least twice."""
    counts = Counter(word for words in documents for word in words)
    known_words = [word for word, count in counts.items() if count > 1]
    number = {word: i for i, word in enumerate(known_words)}
    near = torch.zeros(len(number), len(number))
    for words in documents:
        known = [number[word] for word in words if word in number]
        for i, word in enumerate(known):
            for other in known[i + 1 : i + 1 + NEAR]:
                near[word, other] += 1
                near[other, word] += 1
    expected = near.sum(1, keepdim=True) * near.sum(0, keepdim=True) / near.sum()
    information = torch.log((near / expected.clamp(min=1e-9)).clamp(min=1))
    torch.manual_seed(0)
    u, s, _ = torch.svd_lowrank(information, DIMENSIONS)
    vectors = u * s.sqrt()
    yield from zip(number, vectors, strict=True)


def of_file(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields words and vectors from a file in GloVe's format, one word per line."""
    count = -1
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # A word may contain spaces, so the first line defines how many numbers a line has.
            word, *numbers = line.rstrip().rsplit(" ", count)
            count = len(numbers)
            yield word, torch.tensor([float(number) for number in numbers])


def mean_vectors(vectors: tenfold.MappedDict, documents: list[list[str]]) -> torch.Tensor:
    """Returns the mean vector of each text's known words, with one lookup for all texts."""
    words = [word for text in documents for word in text]
    rows = torch.repeat_interleave(
        torch.arange(len(documents)), torch.tensor([len(text) for text in documents])
    )
    found_vectors, found = vectors.get_many(words)
    sums = torch.zeros(len(documents), found_vectors.shape[1])
    sums.index_add_(0, rows, found_vectors)
    known = torch.zeros(len(documents)).index_add_(0, rows, found.float())
    return sums / known.clamp(min=1)[:, None]


def train(vectors: tenfold.MappedDict, data: list[tuple[list[str], int]], epochs: int) -> float:
    """Trains the classifier and returns its accuracy on texts that it was not trained on."""
    torch.manual_seed(0)
    order = torch.randperm(len(data)).tolist()
    held_out, seen = order[: len(data) // 5], order[len(data) // 5 :]
    model = nn.Sequential(
        nn.LayerNorm(next(iter(vectors.values())).shape[0]), nn.LazyLinear(64), nn.ReLU()
    )
    model.append(nn.LazyLinear(len(MODULES)))
    optimizer = None
    for _ in range(epochs):
        for begin in range(0, len(seen), 64):
            batch = [data[i] for i in seen[begin : begin + 64]]
            scores = model(mean_vectors(vectors, [words for words, _ in batch]))
            loss = nn.functional.cross_entropy(scores, torch.tensor([y for _, y in batch]))
            optimizer = optimizer or torch.optim.Adam(model.parameters(), 3e-3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(mean_vectors(vectors, [data[i][0] for i in held_out]))
    labels = torch.tensor([data[i][1] for i in held_out])
    return float((scores.argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vectors", type=Path, help="a file in GloVe's format")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    data = texts()
    items = of_file(options.vectors) if options.vectors else learned([words for words, _ in data])
    vectors = tenfold.MappedDict.build(
        items, options.folder / "vectors", duplicates="last", progress=False
    )
    print(vectors)
    print(f"{len(data)} texts of {len(MODULES)} modules")
    # The accuracy of a classifier that always answers with the module that has the most texts.
    guess = max(Counter(label for _, label in data).values()) / len(data)
    accuracy = train(vectors, data, options.epochs)
    print(f"accuracy {accuracy:.3f} on texts it has not seen; most frequent module: {guess:.3f}")
    with tenfold.MappedDict(options.folder / "vectors", "r+") as more:
        known = torch.stack([vector for vector, _ in zip(vectors.values(), range(2), strict=False)])
        more.extend({"<unknown>": known.mean(0)})
    print(f"{len(more)} words with <unknown>")


if __name__ == "__main__":
    main()
