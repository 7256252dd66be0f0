"""Philox4x32-10 as its authors print it, for what draws from FRED's streams."""

import hashlib


def plain_word(seed: int, purpose: str, entity: int, position: int) -> int:
    """One word of a stream, by the algorithm as its authors print it, one number after the other."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    keys = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")]
    x = [position // 4, entity, 0, 0]
    for _ in range(10):
        first, second = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [second // 2**32 ^ x[1] ^ keys[0], second % 2**32, first // 2**32 ^ x[3] ^ keys[1], first % 2**32]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return x[position % 4]
