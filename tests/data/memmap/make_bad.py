"""Writes the damaged folders bad-*, each with `tree` and with `expected.json`, which has the error.

    python make_bad.py

Needs only Python. The tests create FIFOs and symbolic links themselves.
"""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent

TD = "<class 'tensordict._td.TensorDict'>"
LAZY = "<class 'tensordict._lazy.LazyStackedTensorDict'>"
DATA = "<class 'tensordict.tensorclass.NonTensorData'>"
STACK = "<class 'tensordict.tensorclass.NonTensorStack'>"
CLASS = "<class 'app.Point'>"


def leaf(shape=(2,), dtype="torch.float32", **more):
    return {"device": "cpu", "shape": list(shape), "dtype": dtype, "is_nested": False, **more}


def td(**members):
    return {**members, "shape": [], "device": "cpu", "_type": TD}


NODE = {"type": "TensorDict"}
GOOD = b"\0" * 8


def nested(shape):
    return td(a=leaf(shape, is_nested=True))


def int64(*values):
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)


# name: (code, message after the path of the tree, files). A file is given as bytes, or as a value
# that is written as JSON.
CASES = {
    "meta-missing": ("corrupt", ": meta.json: file is missing: expected the folder of a TensorDict",
                     {"other": b""}),
    "meta-empty": ("corrupt", "/meta.json: ", {"meta.json": b""}),
    "meta-not-json": ("corrupt", "/meta.json: ", {"meta.json": b"pickle"}),
    "meta-cut": ("corrupt", "/meta.json: ", {"meta.json": json.dumps(td(a=leaf()))[:-9].encode()}),
    "meta-trailing": ("corrupt", "/meta.json: ", {"meta.json": (json.dumps(td()) + "{}").encode()}),
    "meta-utf16": ("corrupt", "/meta.json: ", {"meta.json": json.dumps(td()).encode("utf-16")}),
    "meta-array": ("corrupt", "/meta.json: expected a JSON object, found an array", {"meta.json": [1]}),
    "meta-text": ("corrupt", "/meta.json: expected a JSON object, found a string", {"meta.json": "x"}),
    "meta-too-deep": ("corrupt", "/meta.json: ",
                      {"meta.json": ('{"a": ' + "[" * 600 + "]" * 600 + "}").encode()}),
    "key-twice": ("corrupt", '/meta.json: key "a": expected once, found twice',
                  {"meta.json": json.dumps(td(a=leaf())).replace('"shape": []', '"a": {}, "shape": []').encode()}),
    "type-missing": ("corrupt", "/meta.json: _type: expected a string, found none; this is not metadata of tensordict",
                     {"meta.json": {"shape": []}}),
    "type-number": ("corrupt", "/meta.json: _type: expected a string, found an integer",
                    {"meta.json": {"_type": 1}}),
    "type-object": ("corrupt", "/meta.json: _type: expected a string, found an object",
                    {"meta.json": {"_type": {}}}),
    "device-number": ("corrupt", "/meta.json: device: expected a string, found an integer",
                      {"meta.json": {**td(), "device": 0}}),
    "batch-negative": ("corrupt", "/meta.json: shape: negative length in shape: expected at least 0, found -1",
                       {"meta.json": {**td(), "shape": [2, -1]}}),
    "batch-text": ("corrupt", "/meta.json: shape: expected an array of integers, found a string",
                   {"meta.json": {**td(), "shape": "[]"}}),
    "batch-floats": ("corrupt", "/meta.json: shape: expected an array of integers, found an array with other elements",
                     {"meta.json": {**td(), "shape": [2.0]}}),
    "batch-huge": ("corrupt", "/meta.json: shape: shape too large: expected a product of the lengths below 2^63, "
                              "found [4611686018427387904, 4]",
                   {"meta.json": {**td(), "shape": [2**62, 4]}}),
    "batch-of-no-tensor": ("corrupt", "/meta.json: shape: the batch size fits no tensor: expected the beginning of "
                                      "a tensor's shape, such as [2] of \"a\", found [7]",
                           {"meta.json": {**td(a=leaf(), b=leaf((3, 7))), "shape": [7]}, "a.memmap": GOOD,
                            "b.memmap": b"\0" * 84}),
    "batch-of-no-tensor-below": ("corrupt", "/n/meta.json: shape: the batch size fits no tensor: expected the "
                                            "beginning of a tensor's shape, such as [2] of \"a\", found [2, 2]",
                                 {"meta.json": td(n=NODE), "n/meta.json": {**td(a=leaf()), "shape": [2, 2]},
                                  "n/a.memmap": GOOD}),
    "device-index": ("corrupt", "/meta.json: device: expected a type and optionally an index of at most 127, as in "
                                '"cuda:0", found "nonsense:99999999999"',
                     {"meta.json": {**td(), "device": "nonsense:99999999999"}}),
    "device-command": ("corrupt", "/meta.json: device: expected a type and optionally an index of at most 127, as in "
                                  '"cuda:0", found "os.system"',
                       {"meta.json": {**td(), "device": "os.system"}}),
    "names-too-few": ("corrupt", "/meta.json: _names: expected one for each of 2 batch dimensions, found 1",
                      {"meta.json": {**td(), "shape": [2, 3], "_names": ["t"]}}),
    "names-twice": ("corrupt", '/meta.json: _names: expected different names, found "t" twice',
                    {"meta.json": {**td(), "shape": [2, 3], "_names": ["t", "t"]}}),
    "names-number": ("corrupt", "/meta.json: _names: expected strings or null, found an integer",
                     {"meta.json": {**td(), "shape": [2], "_names": [1]}}),
    "version-2": ("unsupported", "/meta.json: _format_version: expected at most 1, found 2; "
                                 "a newer version of tensordict wrote this folder",
                  {"meta.json": {**td(), "_format_version": 2}}),
    "version-huge": ("unsupported", "/meta.json: _format_version: expected at most 1, found 100000000000000000000; "
                                    "a newer version of tensordict wrote this folder",
                     {"meta.json": {**td(), "_format_version": 10**20}}),
    "version-2-below": ("unsupported", "/n/meta.json: _format_version: expected at most 1, found 2; "
                                       "a newer version of tensordict wrote this folder",
                        {"meta.json": td(n=NODE), "n/meta.json": {**td(), "_format_version": 2}}),
    "version-2-tensorclass": ("unsupported", "/meta.json: _format_version: expected at most 1, found 2; "
                                             "a newer version of tensordict wrote this folder",
                              {"meta.json": {"_type": CLASS, "_format_version": 2},
                               "_tensordict/meta.json": td()}),
    "leaf-missing": ("corrupt", ': tensor "a": leaf file is missing: expected a file "a.memmap"',
                     {"meta.json": td(a=leaf())}),
    "leaf-short": ("corrupt", '/a.memmap: tensor "a": the file is too short: expected 8 bytes, found 7; '
                              "it may be truncated", {"meta.json": td(a=leaf()), "a.memmap": b"\1" * 7}),
    "leaf-empty": ("corrupt", '/a.memmap: tensor "a": the file is too short: expected 8 bytes, found 0; '
                              "it may be truncated", {"meta.json": td(a=leaf()), "a.memmap": b""}),
    "leaf-large-short": ("corrupt", '/a.memmap: tensor "a": the file is too short: expected 400000 bytes, found 8; '
                                    "it may be truncated",
                         {"meta.json": td(a=leaf([100000])), "a.memmap": GOOD}),
    "leaf-is-a-folder": ("corrupt", "/a.memmap: expected a regular file, found a folder",
                         {"meta.json": td(a=leaf()), "a.memmap/x": b""}),
    "leaf-outside": ("corrupt", ': tensor "../secret": leaf file is missing: expected a file "..%2Fsecret.memmap"',
                     {"meta.json": {**td(), "../secret": leaf()}, "../secret.memmap": GOOD}),
    "leaf-another-keys": ("corrupt", ': tensor "a%2Fb": leaf file is missing: expected a file "a%252Fb.memmap"',
                          {"meta.json": {**td(), "a/b": leaf(), "a%2Fb": leaf()}, "a%2Fb.memmap": GOOD}),
    "leaf-nul": ("corrupt", ': tensor "a\\x00b": leaf file is missing: expected a file "a%00b.memmap"',
                 {"meta.json": {**td(), "a\0b": leaf()}, "a": GOOD}),
    "leaf-name-long": ("corrupt", ': tensor "' + "k" * 200 + '...": leaf file is missing: expected a file "'
                                  + "k" * 200 + '..."', {"meta.json": {**td(), "k" * 300: leaf()}}),
    "shape-negative": ("corrupt", '/meta.json: tensor "a": negative length in shape: expected at least 0, found -3',
                       {"meta.json": td(a=leaf([2, -3])), "a.memmap": GOOD}),
    "shape-huge": ("corrupt", '/meta.json: tensor "a": shape too large: expected fewer than 2^63 bytes, '
                              "found [4294967296, 4294967296]",
                   {"meta.json": td(a=leaf([2**32, 2**32])), "a.memmap": GOOD}),
    "shape-huge-empty": ("corrupt", '/meta.json: tensor "a": shape too large: expected fewer than 2^63 bytes, '
                                    "found [9223372036854775807, 0, 2]",
                         {"meta.json": td(a=leaf([2**63 - 1, 0, 2]))}),
    "shape-large": ("corrupt", '/a.memmap: tensor "a": the file is too short: expected 4398046511104 bytes, '
                               "found 8; it may be truncated",
                    {"meta.json": td(a=leaf([2**40])), "a.memmap": GOOD}),
    "shape-big-int": ("corrupt", '/meta.json: tensor "a": shape: expected an array of integers, '
                                 "found an array with other elements",
                      {"meta.json": td(a=leaf([2**64])), "a.memmap": GOOD}),
    "shape-nested-array": ("corrupt", '/meta.json: tensor "a": shape: expected an array of integers, '
                                      "found an array with other elements",
                           {"meta.json": td(a=leaf([[2]])), "a.memmap": GOOD}),
    "shape-number": ("corrupt", '/meta.json: tensor "a": shape: expected an array of integers, found an integer',
                     {"meta.json": td(a={**leaf(), "shape": 2}), "a.memmap": GOOD}),
    "dtype-unknown": ("unsupported", '/meta.json: tensor "a": unsupported dtype: expected a supported one such as '
                                     '"torch.float32", found "torch.float7"',
                      {"meta.json": td(a=leaf(dtype="torch.float7")), "a.memmap": GOOD}),
    "dtype-quantized": ("unsupported", '/meta.json: tensor "a": unsupported dtype: expected a supported one such as '
                                       '"torch.float32", found "torch.qint8"',
                        {"meta.json": td(a=leaf(dtype="torch.qint8")), "a.memmap": GOOD}),
    "dtype-number": ("corrupt", '/meta.json: tensor "a": dtype: expected a string, found an integer',
                     {"meta.json": td(a=leaf(dtype=7)), "a.memmap": GOOD}),
    "node-missing": ("corrupt", ': node "n": folder is missing: expected a folder "n"', {"meta.json": td(n=NODE)}),
    "node-is-a-file": ("corrupt", ': node "n": folder is missing: expected a folder "n"',
                       {"meta.json": td(n=NODE), "n": b"x"}),
    "node-outside": ("corrupt", ': node "../out": folder is missing: expected a folder "..%2Fout"',
                     {"meta.json": {**td(), "../out": NODE}, "../out/meta.json": td()}),
    "node-above": ("corrupt", ': node "..": folder is missing: expected a folder "%2E%2E"',
                   {"meta.json": {**td(), "..": NODE}}),
    "node-meta-missing": ("corrupt", "/n: meta.json: file is missing: expected the folder of a TensorDict",
                          {"meta.json": td(n=NODE), "n/x": b""}),
    "meta-is-a-folder": ("corrupt", "/n/meta.json: expected a regular file, found a folder",
                         {"meta.json": td(n=NODE), "n/meta.json/x": b""}),
    "nested-sizes-missing": ("corrupt", ': tensor "a": leaf file is missing: expected a file "a.shape.memmap"',
                             {"meta.json": nested([2, 1]), "a.memmap": GOOD}),
    "nested-sizes-short": ("corrupt", '/a.shape.memmap: tensor "a": the file is too short: expected 16 bytes, '
                                      "found 8; it may be truncated",
                           {"meta.json": nested([2, 1]), "a.memmap": GOOD, "a.shape.memmap": int64(1)}),
    "nested-sizes-negative": ("corrupt", '/a.shape.memmap: tensor "a": sizes of the components: expected lengths of '
                                         "at least 0, and fewer than 2^63 elements in total",
                              {"meta.json": nested([2, 1]), "a.memmap": GOOD, "a.shape.memmap": int64(3, -1)}),
    "nested-sizes-overflow": ("corrupt", '/a.shape.memmap: tensor "a": sizes of the components: expected lengths of '
                                         "at least 0, and fewer than 2^63 elements in total",
                              {"meta.json": nested([1, 2]), "a.memmap": GOOD,
                               "a.shape.memmap": int64(2**62, 2**62)}),
    "nested-sizes-sum": ("corrupt", '/a.shape.memmap: tensor "a": sizes of the components: expected lengths of '
                                    "at least 0, and fewer than 2^63 elements in total",
                         {"meta.json": nested([3, 1]), "a.memmap": GOOD,
                          "a.shape.memmap": int64(2**62, 2**62, 2**62)}),
    "nested-bytes": ("corrupt", ': tensor "a": nested tensor too large: expected fewer than 2^63 bytes, '
                                "found 4611686018427387904 elements of 4 bytes",
                     {"meta.json": nested([1, 1]), "a.memmap": GOOD, "a.shape.memmap": int64(2**62)}),
    "nested-data-short": ("corrupt", '/a.memmap: tensor "a": the file is too short: expected 12 bytes, found 8; '
                                     "it may be truncated",
                          {"meta.json": nested([2, 1]), "a.memmap": GOOD, "a.shape.memmap": int64(1, 2)}),
    "nested-three-dims": ("corrupt", '/meta.json: tensor "a": shape of a nested tensor: expected 2 lengths, found 3',
                          {"meta.json": nested([2, 1, 1])}),
    "nested-no-dims": ("corrupt", '/meta.json: tensor "a": shape of a nested tensor: expected components of at '
                                  "least 1 dimension, found 0", {"meta.json": nested([4, 0])}),
    "lazy-dim-negative": ("corrupt", "/meta.json: stack_dim: expected 0 to 63, found -1",
                          {"meta.json": {"_type": LAZY, "stack_dim": -1}}),
    "lazy-dim-text": ("corrupt", "/meta.json: stack_dim: expected an integer, found a string",
                      {"meta.json": {"_type": LAZY, "stack_dim": "0"}}),
    "lazy-dim-missing": ("corrupt", "/meta.json: stack_dim: expected an integer, found none",
                         {"meta.json": {"_type": LAZY}, "0/meta.json": td()}),
    "lazy-dim-high": ("corrupt", "/meta.json: stack_dim: expected at most 1, the number of batch dimensions of "
                                 'entry "0", found 2',
                      {"meta.json": {"_type": LAZY, "stack_dim": 2},
                       "0/meta.json": {**td(a=leaf()), "shape": [2]}, "0/a.memmap": GOOD}),
    "lazy-dim-high-of-second": ("corrupt", "/meta.json: stack_dim: expected at most 0, the number of batch dimensions "
                                           'of entry "1", found 1',
                                {"meta.json": {"_type": LAZY, "stack_dim": 1},
                                 "0/meta.json": {**td(a=leaf()), "shape": [2]}, "0/a.memmap": GOOD,
                                 "1/meta.json": td(a=leaf()), "1/a.memmap": GOOD}),
    "lazy-dim-high-of-stack": ("corrupt", "/meta.json: stack_dim: expected at most 1, the number of batch dimensions "
                                          'of entry "0", found 63',
                               {"meta.json": {"_type": LAZY, "stack_dim": 63},
                                "0/meta.json": {"_type": LAZY, "stack_dim": 0},
                                "0/0/meta.json": td(a=leaf()), "0/0/a.memmap": GOOD}),
    "lazy-name-number": ("corrupt", "/meta.json: stack_dim_name: expected a string or null, found an integer",
                         {"meta.json": {"_type": LAZY, "stack_dim": 0, "stack_dim_name": 1}}),
    "tensorclass-inner-missing": ("corrupt", ': tensorclass "' + CLASS + '": folder is missing: expected "_tensordict"',
                                  {"meta.json": {"_type": CLASS}}),
    "tensorclass-inner-value": ("corrupt", "/meta.json: _tensordict: expected a node, found a JSON value",
                                {"meta.json": {"_type": CLASS}, "_tensordict/meta.json": {"_type": DATA, "data": 1}}),
    "tensorclass-field-twice": ("corrupt", '/meta.json: field "x": stored twice: expected one value, found one in '
                                           "this file and one in the folder _tensordict",
                                {"meta.json": {"_type": CLASS, "x": 1}, "_tensordict/meta.json": td(x=leaf()),
                                 "_tensordict/x.memmap": GOOD}),
    "value-pickle": ("unsupported", '/v: value: stored in "other.pickle": expected JSON, found a pickle; '
                                    "nothing is ever unpickled",
                     {"meta.json": td(v={"type": "NonTensorData"}),
                      "v/meta.json": {"_type": DATA, "_metadata": None}, "v/other.pickle": b"cos\nsystem\n"}),
    "stack-pickle": ("unsupported", '/v: value: stored in "pickle.pkl": expected JSON, found a pickle; '
                                    "nothing is ever unpickled",
                     {"meta.json": td(v={"type": "NonTensorStack"}),
                      "v/meta.json": {"_type": STACK, "stack_dim": 0, "device": None, "data": "pickle.pkl"},
                      "v/pickle.pkl": b"."}),
    "stack-text": ("corrupt", '/v/meta.json: data: expected a list or "pickle.pkl", found "x"',
                   {"meta.json": td(v={"type": "NonTensorStack"}),
                    "v/meta.json": {"_type": STACK, "stack_dim": 0, "device": None, "data": "x"}}),
    "stack-number": ("corrupt", "/v/meta.json: data: expected a list, found int",
                     {"meta.json": td(v={"type": "NonTensorStack"}),
                      "v/meta.json": {"_type": STACK, "stack_dim": 0, "device": None, "data": 3}}),
    "stack-of-nodes": ("corrupt", "/v/meta.json: item 0: expected a JSON value, found a node",
                       {"meta.json": td(v={"type": "NonTensorStack"}), "v/meta.json": {"_type": STACK, "stack_dim": 0},
                        "v/0/meta.json": td()}),
    "view-sub": ("unsupported", "/v/meta.json: class <class 'tensordict._td._SubTensorDict'>: a view of another "
                                'TensorDict: expected a TensorDict that is not a view; open its folder "_source", or '
                                "save a copy of the view with tensordict",
                 {"meta.json": td(v={"type": "_SubTensorDict"}),
                  "v/meta.json": {"_type": "<class 'tensordict._td._SubTensorDict'>", "index": ["tuple", [0]]},
                  "v/_source/meta.json": td()}),
    "view-lazy": ("unsupported", "/meta.json: class <class 'tensordict._lazy._UnsqueezedTensorDict'>: a view of "
                                 'another TensorDict: expected a TensorDict that is not a view; open its folder '
                                 '"_source", or save a copy of the view with tensordict',
                  {"meta.json": {"shape": [], "device": "cpu",
                                 "_type": "<class 'tensordict._lazy._UnsqueezedTensorDict'>"}}),
    "root-value": ("unsupported", ": root: expected a node with keys, found one JSON value; open the folder above it",
                   {"meta.json": {"_type": DATA, "data": 1}}),
    "notes-not-json": ("corrupt", "/%notes.json: ", {"meta.json": td(), "%notes.json": b"{"}),
    "notes-version": ("unsupported", "/%notes.json: ", {"meta.json": td(), "%notes.json": {"version": 99}}),
}  # fmt: skip


def main():
    for folder in HERE.glob("bad-*"):
        shutil.rmtree(folder)
    for name, (code, message, files) in CASES.items():
        root = HERE / f"bad-{name}" / "tree"
        root.mkdir(parents=True)
        for path, content in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            file.resolve().write_bytes(data)
        expected = {"code": code, "message": message}
        (root.parent / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
