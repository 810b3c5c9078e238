"""Serves embeddings from a MappedDict over HTTP, while another process changes them.

    python serve_embeddings.py folder

The dictionary may be larger than memory: the server opens it without reading it, and looks up all
keys of a request in one call. The server returns new values without reopening the dictionary.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch

import tenfold

WIDTH = 64


def build(path: Path, count: int) -> None:
    """Builds the dictionary from a stream of pairs of key and tensor, in bounded memory."""
    pairs = ((f"item-{i}", torch.full((WIDTH,), float(i))) for i in range(count))
    tenfold.MappedDict.build(pairs, path, progress=False)


def handler_of(vectors: tenfold.MappedDict) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            keys = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found_vectors, found = vectors.get_many(keys)  # threads may share one handle
            answer = {"vectors": found_vectors.tolist(), "found": found.tolist()}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def change(path: Path) -> None:
    """Assigns a new value and adds a new key, in another process than the server."""
    with tenfold.MappedDict(path, "r+") as vectors:
        vectors.update({"item-1": torch.full((WIDTH,), -1.0)})  # readers get the old or new value
        vectors.extend({"item-new": torch.zeros(WIDTH)})


def ask(url: str, keys: list[str]) -> tuple[list[float], list[bool]]:
    """Requests vectors. Returns the first number of each, and which keys were found."""
    with urllib.request.urlopen(url, data=json.dumps(keys).encode()) as response:
        answer = json.load(response)
    return [vector[0] for vector in answer["vectors"]], answer["found"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100_000)
    options = parser.parse_args()
    path = options.folder / "embeddings"
    build(path, options.count)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(tenfold.MappedDict(path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    keys = ["item-1", "item-7", "item-new"]
    print("before:", *ask(url, keys))
    writer = multiprocessing.get_context("spawn").Process(target=change, args=(path,))
    writer.start()
    writer.join()
    print("after: ", *ask(url, keys))
    server.shutdown()


if __name__ == "__main__":
    main()
