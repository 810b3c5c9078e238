"""Writes the ok-*.pkl and bad-*.pkl files beside this script, and golden.txt.

The ok files are pickles of plain values in every protocol, by Python. golden.txt has a line for
each: the result that tests/codecs/pickle/pickle_test.cpp expects. expected.txt describes the
problem of each bad file.
"""

import pathlib
import pickle
import struct

HERE = pathlib.Path(__file__).parent

VALUES = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "small": 255,
    "word": 65535,
    "int": -2147483648,
    "int-above": 2147483648,
    "long-most": 2**63 - 1,
    "long-least": -(2**63),
    "big": 2**63,
    "big-negative": -(2**63) - 1,
    "big-power": 2**1000,
    "big-power-negative": -(2**1000),
    "big-bytes": -(256**300) + 12345,
    "float": 0.1,
    "float-small": 5e-324,
    "float-negative-zero": -0.0,
    "float-inf": float("-inf"),
    "text": "plain",
    "text-empty": "",
    "text-escapes": "a\\b\\u0041\n\r\0\x1a'\"",
    "text-wide": "caf\u00e9 \u96ea \U0001f600",
    "text-surrogate": "\ud800x\udfff",
    "text-long": "x" * 300,
    "bytes": b"\x00\xff'\n",
    "bytes-empty": b"",
    "bytes-long": bytes(300),
    "bytearray": bytearray(b"ab\xff"),
    "list": [],
    "list-one": [1],
    "list-nested": [[], [1, [2.5]], "x"],
    "tuple": (),
    "tuple-one": (1,),
    "tuple-two": (1, 2),
    "tuple-three": (1, 2, 3),
    "tuple-four": (1, 2, 3, 4),
    "dict": {},
    "dict-one": {"a": 1},
    "dict-keys": {1: "x", (1, 2): None, "k": [True]},
    "set": {3},
    "frozenset": frozenset({"f"}),
}


def call(module, name, *arguments):
    inside = ", ".join(arguments)
    return f"call(global({module} {name}), ({inside}{',' if len(arguments) == 1 else ''}))"


def text(value):
    return f'"{value.encode("utf-8", "surrogatepass").hex()}"'


def describe(value, protocol):
    """Returns the graph of the pickle of `value` in that protocol, as text."""

    def inner(x):
        return describe(x, protocol)

    old = "__builtin__" if protocol < 3 else "builtins"
    match value:
        case None | bool():
            return repr(value)
        case int():
            return str(value) if -(2**63) <= value < 2**63 else f"big({value})"
        case float():
            return value.hex()
        case str():
            return text(value)
        case bytes() if protocol >= 3:
            return f"bytes({value.hex()})"
        case bytes() if not value:
            return call(old, "bytes")
        case bytes():
            return call("_codecs", "encode", text(value.decode("latin-1")), text("latin1"))
        case bytearray() if protocol >= 5:
            return f"bytearray({value.hex()})"
        case bytearray():
            return call(old, "bytearray", inner(bytes(value)))
        case list():
            return f"[{', '.join(map(inner, value))}]"
        case tuple():
            return f"({', '.join(map(inner, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return "{" + ", ".join(f"{inner(k)}: {inner(v)}" for k, v in value.items()) + "}"
        case set() if protocol >= 4:
            return f"set({', '.join(map(inner, value))})"
        case frozenset() if protocol >= 4:
            return f"frozenset({', '.join(map(inner, value))})"
        case set() | frozenset():
            return call(old, type(value).__name__, inner(list(value)))
    raise TypeError(type(value))


MANY_MARKS = b"(" * 1001 + b"."
DEEP_LIST = b"\x80\x02]" + b"]" * 1001 + b"a" * 1001 + b"."
DEEP_TUPLE = b"\x80\x02)" + b"\x85" * 1000 + b"."
BAD = {
    "empty": b"",
    "no-stop": b"N",
    "stop-alone": b".",
    "stop-two": b"NN.",
    "stop-mark": b"(N.",
    "opcode-zero": b"\x00.",
    "opcode-unknown": b"\xff.",
    "protocol-six": b"\x80\x06N.",
    "protocol-cut": b"\x80",
    "frame-cut": b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.",
    "frame-huge": b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    "text-cut": b"X\x05\x00\x00\x00abcd",
    "text-huge": b"\x8d" + b"\xff" * 8 + b"a.",
    "text-not-utf8": b"X\x02\x00\x00\x00\xff\xfe.",
    "text-overlong": b"X\x02\x00\x00\x00\xc0\x80.",
    "string-negative": b"T\xff\xff\xff\xffabc.",
    "string-no-quote": b"Sabc\n.",
    "string-one-quote": b"S'\n.",
    "string-escape": b"S'\\xg0'\n.",
    "string-backslash": b"S'\\'\n.",
    "unicode-escape": b"V\\u00g0\n.",
    "unicode-too-large": b"V\\U00110000\n.",
    "line-open": b"Sabc",
    "int-empty": b"I\n.",
    "int-letters": b"I12x\n.",
    "int-sign": b"I-\n.",
    "long-empty": b"LL\n.",
    "long-digits": b"L" + b"9" * 3000 + b"L\n.",
    "long-negative-size": b"\x8b\xff\xff\xff\xff.",
    "long-cut": b"\x8a\x05abc",
    "long-huge": b"\x8b" + struct.pack("<i", 5000) + bytes(5000) + b".",
    "float-empty": b"F\n.",
    "float-letters": b"F1.5x\n.",
    "float-cut": b"G1234567",
    "memo-none": b"h\x00.",
    "memo-other": b"Nq\x01h\x02.",
    "memo-negative": b"Np-1\n.",
    "memo-letters": b"Ng1x\n.",
    "put-nothing": b"q\x00N.",
    "pop-nothing": b"0N.",
    "dup-nothing": b"2.",
    "no-mark": b"Nt.",
    "pop-mark-none": b"N1.",
    "tuple-short": b"N\x86.",
    "tuple-below-mark": b"NN(\x86.",
    "append-to-none": b"NNa.",
    "append-to-tuple": b")Na.",
    "append-to-dict": b"}Na.",
    "add-to-list": b"](N\x90.",
    "set-item-of-list": b"]NNs.",
    "set-items-odd": b"}(NNNu.",
    "dict-odd": b"(Nd.",
    "call-text": b"X\x01\x00\x00\x00a)R.",
    "call-list-arguments": b"cos\nsystem\n]R.",
    "call-nothing": b"cos\nsystem\nR.",
    "named-arguments": b"cos\nsystem\n)]\x92.",
    "object-no-class": b"(o.",
    "object-of-text": b"(X\x01\x00\x00\x00ao.",
    "build-list": b"]}b.",
    "build-global": b"cos\nsystem\n}b.",
    "global-empty": b"c\n\n.",
    "global-cut": b"cos\nsystem",
    "stack-global-numbers": b"K\x01K\x02\x93.",
    "stack-global-empty": b"\x8c\x00\x8c\x00\x93.",
    "buffer": b"\x80\x05\x97.",
    "buffer-readonly": b"\x80\x05N\x98.",
    "extension-negative": b"\x84\xff\xff\xff\xff.",
    "persistent-nothing": b"Q.",
    "deep-marks": MANY_MARKS,
    "deep-list": DEEP_LIST,
    "deep-tuple": DEEP_TUPLE,
}


def main():
    for old in HERE.glob("*.pkl"):
        old.unlink()
    lines = []
    for name, value in VALUES.items():
        for protocol in range(6):
            file = f"ok-{name}-{protocol}.pkl"
            (HERE / file).write_bytes(pickle.dumps(value, protocol))
            lines.append(f"{file} {describe(value, protocol)}\n")
    (HERE / "golden.txt").write_text("".join(sorted(lines, key=lambda x: x.split()[0])))
    for name, data in BAD.items():
        (HERE / f"bad-{name}.pkl").write_bytes(data)


if __name__ == "__main__":
    main()
