"""Writes golden.tsv and the bad-* files beside this script. Python's json module is the reference.

golden.tsv has one document per line, in five columns separated by tabs:
  text     a JSON document, all ASCII
  value    what json.loads gives: "float <hex>", "int <decimal>", "str <hex of WTF-8>" or "other"
  python, compact, utf8
           what json.dumps gives: by default; with separators=(",", ":"); with these separators and
           ensure_ascii=False, or "-" if a lone surrogate cannot be written as UTF-8
"""

import json
import pathlib
import random
import struct

HERE = pathlib.Path(__file__).parent

NUMBERS = """
0 -0 1 -1 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
18446744073709551615 18446744073709551616 123456789012345678901234567890
0.0 -0.0 0e5 -0E-5 1.0 1e0 1E+0 0.1 -0.5 100.0 1e15 1e16 1e17 123456789012345680.0
9999999999999998.0 1e-4 1e-5 0.00012 0.000012 1e22 1e23 5e-324 4.9e-324 2e-324
2.4703282292062327e-324 2.4703282292062328e-324 2.2250738585072011e-308 2.2250738585072014e-308
1.7976931348623157e308 1.7976931348623159e308 1e308 1e309 -1e309 1e999 -1e999 1e-999 -1e-999
1e99999999999999999999 -1e-99999999999999999999 0.1e400 9007199254740993.0
123456789012345678901234567890.123456789 3.141592653589793 2.718281828459045e-10 NaN
Infinity -Infinity
""".split()  # noqa: SIM905

TEXTS = [
    "",
    "plain",
    'quote " backslash \\ slash /',
    "\b\f\n\r\t",
    "".join(map(chr, range(0x20))),
    "\x7f\x80\xff",
    "caf\u00e9 \u07ff \u0800 \ud7ff \ue000 \uffff",
    "\U00010000 \U0001f600 \U0010ffff",
    "\ud800",
    "\udc00\ud800",
    "a\ud83d",
    "\u2028\u2029</script>",
    "x" * 100 + "\u00e9" + "y" * 100,
]

DOCUMENTS = [
    "null",
    "true",
    "false",
    "[]",
    "{}",
    " [ ] ",
    "[[], [[]], {}]",
    '{"a": [1, 2.5, "x", null, true], "b": {"c": {}}}',
    '{"b": 1, "a": 2, "": 3, "A": 4}',
    '["\\u0041\\/\\u00E9\\uD83D\\uDE00\\ud83dx\\ud83d\\u0041"]',
    "[-0, -0.0, 1E5]",
]

BAD = {
    "empty": b"",
    "blank": b" \n\t ",
    "bom-only": b"\xef\xbb\xbf",
    "utf-16-le-bom": "\ufeff{}".encode("utf-16-le"),
    "utf-16-be": "{}".encode("utf-16-be"),
    "utf-32-le": '"x"'.encode("utf-32-le"),
    "nul": b"[1,\0]",
    "word": b"[nul]",
    "inf": b"[Inf]",
    "minus-inf": b"-Inf",
    "plus": b"+1",
    "leading-zero": b"[01]",
    "hex": b"0x10",
    "point-first": b".5",
    "point-last": b"[1.]",
    "exponent-empty": b"[1e+]",
    "minus-alone": b"-",
    "comma-last-array": b"[1,]",
    "comma-last-object": b'{"a":1,}',
    "comma-first": b"[,1]",
    "comma-missing": b"[1 2]",
    "colon-missing": b'{"a" 1}',
    "key-not-a-string": b"{a: 1}",
    "single-quotes": b"{'a': 1}",
    "brackets-crossed": b'{"a": [1}',
    "array-open": b"[1",
    "object-open": b'{"a": 1',
    "value-missing": b'{"a":}',
    "string-open": b'["abc',
    "string-newline": b'["a\nb"]',
    "string-nul": b'["a\0b"]',
    "escape-unknown": b'["\\x41"]',
    "escape-cut": b'["\\',
    "escape-short": b'["\\u12"]',
    "escape-not-hex": b'["\\u12g4"]',
    "escape-low-half-short": b'["\\ud83d\\ude0"]',
    "utf8-cut": b'["\xc3"]',
    "utf8-overlong": b'["\xc0\xaf"]',
    "utf8-surrogate": b'["\xed\xa0\x80"]',
    "utf8-too-large": b'["\xf4\x90\x80\x80"]',
    "utf8-lone-tail": b'["abcdefgh\x80"]',
    "utf8-outside-string": b"[\xc3\xa9]",
    "comment": b"[1] // one",
    "two-documents": b"{} {}",
    "trailing-text": b"null and more",
    "too-deep": b"[" * 513 + b"]" * 513,
    "duplicate-key": b'{"a": 1, "b": {"x": 1, "x": 2}}',
    "duplicate-key-escaped": b'{"ab": 1, "\\u0061b": 2}',
}


def value_column(value):
    if isinstance(value, bool) or value is None:
        return "other"
    if isinstance(value, float):
        return "float " + value.hex()
    if isinstance(value, int):
        return f"int {value}"
    if isinstance(value, str):
        return "str " + value.encode("utf-8", "surrogatepass").hex()
    return "other"


def row(text):
    value = json.loads(text)
    compact = {"separators": (",", ":")}
    utf8 = json.dumps(value, ensure_ascii=False, **compact)
    try:
        utf8.encode("utf-8")
    except UnicodeEncodeError:
        utf8 = "-"
    columns = [text, value_column(value), json.dumps(value), json.dumps(value, **compact), utf8]
    return "\t".join(columns)


def main():
    draw = random.Random(7)
    numbers = list(NUMBERS)
    for _ in range(300):
        value = struct.unpack("<d", draw.randbytes(8))[0]
        numbers.append(json.dumps(value))
        numbers.append(repr(round(draw.uniform(-1e6, 1e6), draw.randint(0, 12))))
    rows = [row(text) for text in numbers + [json.dumps(t) for t in TEXTS] + DOCUMENTS]
    (HERE / "golden.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    for name, data in BAD.items():
        (HERE / f"bad-{name}.json").write_bytes(data)


if __name__ == "__main__":
    main()
