"""XXH3-64 in Python and NumPy, for tests that must not rely on tenfold's implementation.

Implements the xxHash specification, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

import struct

import numpy as np

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
MASK = 2**64 - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
STRIPE, STRIPES_PER_BLOCK = 64, 16
BLOCK = STRIPE * STRIPES_PER_BLOCK


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & MASK


def _avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def _avalanche_xxh64(h: int) -> int:
    h = (h ^ h >> 33) * P64[1] & MASK
    h = (h ^ h >> 29) * P64[2] & MASK
    return h ^ h >> 32


def _swap(value: int, size: int) -> int:
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def _mix16(data: bytes, at: int, secret: int, seed: int) -> int:
    low = _u64(data, at) ^ (_u64(SECRET, secret) + seed & MASK)
    return _fold(low, _u64(data, at + 8) ^ (_u64(SECRET, secret + 8) - seed & MASK))


def _up_to_16(data: bytes, seed: int) -> int:
    n = len(data)
    if n > 8:
        low = _u64(data, 0) ^ ((_u64(SECRET, 24) ^ _u64(SECRET, 32)) + seed & MASK)
        high = _u64(data, n - 8) ^ ((_u64(SECRET, 40) ^ _u64(SECRET, 48)) - seed & MASK)
        return _avalanche((n + _swap(low, 8) + high + _fold(low, high)) & MASK)
    if n >= 4:
        seed ^= _swap(seed & 0xFFFFFFFF, 4) << 32
        h = _u32(data, n - 4) + (_u32(data, 0) << 32)
        h ^= (_u64(SECRET, 8) ^ _u64(SECRET, 16)) - seed & MASK
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & MASK
        h = h * 0x9FB21C651E98DF25 & MASK
        h = (h ^ (h >> 35) + n) * 0x9FB21C651E98DF25 & MASK
        return h ^ h >> 28
    if n:
        h = data[0] << 16 | data[n >> 1] << 24 | data[-1] | n << 8
        return _avalanche_xxh64(h ^ ((_u32(SECRET, 0) ^ _u32(SECRET, 4)) + seed & MASK))
    return _avalanche_xxh64(seed ^ _u64(SECRET, 56) ^ _u64(SECRET, 64))


def _up_to_240(data: bytes, seed: int) -> int:
    n = len(data)
    h = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            h += _mix16(data, 16 * i, 32 * i, seed)
            h += _mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return _avalanche(h & MASK)
    h += sum(_mix16(data, 16 * i, 16 * i, seed) for i in range(8))
    h = _avalanche(h & MASK)
    h += sum(_mix16(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, n // 16))
    return _avalanche((h + _mix16(data, n - 16, 136 - 17, seed)) & MASK)


def _long(data: bytes, seed: int) -> int:
    words = struct.unpack("<24Q", SECRET)
    secret = struct.pack(
        "<24Q", *((w + (seed if i % 2 == 0 else -seed)) & MASK for i, w in enumerate(words))
    )

    def keys(at: int, stripes: int) -> np.ndarray:
        rows = [np.frombuffer(secret, "<u8", 8, at + 8 * i) for i in range(stripes)]
        return np.stack(rows) if rows else np.empty((0, 8), "<u8")

    def accumulate(at: int, key: np.ndarray) -> None:
        values = np.frombuffer(data, "<u8", key.size, at).reshape(-1, 8)
        mixed = values ^ key
        products = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
        acc[:] += products.sum(0, dtype="<u8")
        acc[:] += values.sum(0, dtype="<u8").reshape(4, 2)[:, ::-1].reshape(8)

    acc = np.array([P32[2], *P64[:4], P32[1], P64[4], P32[0]], "<u8")
    block_keys, scramble = keys(0, STRIPES_PER_BLOCK), keys(len(secret) - STRIPE, 1)[0]
    num_blocks = (len(data) - 1) // BLOCK
    for block in range(num_blocks):
        accumulate(block * BLOCK, block_keys)
        acc[:] = (acc ^ acc >> np.uint64(47) ^ scramble) * np.uint64(P32[0])
    rest = (len(data) - 1 - num_blocks * BLOCK) // STRIPE
    accumulate(num_blocks * BLOCK, keys(0, rest))
    accumulate(len(data) - STRIPE, keys(len(secret) - STRIPE - 7, 1))
    h = len(data) * P64[0]
    for i in range(4):
        low = int(acc[2 * i]) ^ _u64(secret, 11 + 16 * i)
        h += _fold(low, int(acc[2 * i + 1]) ^ _u64(secret, 19 + 16 * i))
    return _avalanche(h & MASK)


def xxh3(data: bytes, seed: int = 0) -> int:
    """Returns the XXH3-64 of the bytes as an unsigned integer."""
    data = bytes(data)
    if len(data) <= 16:
        return _up_to_16(data, seed)
    return _up_to_240(data, seed) if len(data) <= 240 else _long(data, seed)
