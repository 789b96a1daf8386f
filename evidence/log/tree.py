"""The Merkle tree of a log, as RFC 6962, section 2.1, defines it: roots, proofs of inclusion and of consistency.

A proof is a list of hashes. This module is pure; it holds hashes of leaves, never leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

HASH_BYTES = 32
EMPTY = sha256(b"").digest()
PROOF_HASHES_MAX = 63


def leaf_hash(leaf: bytes) -> bytes:
    """The hash of a leaf."""
    return sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node of the tree."""
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """A tree that only grows: its size, and the roots of the full subtrees of which it consists, the largest first.

    That is enough to append leaves and to compute the root.
    """

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size, self.peaks = size, list(peaks)
        if len(self.peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, not {len(self.peaks)}")

    def add(self, leaf: bytes) -> None:
        """Append the hash of a leaf."""
        at, size = leaf, self.size
        while size & 1:
            at, size = node_hash(self.peaks.pop(), at), size >> 1
        self.peaks.append(at)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return _joined(self.peaks)


def _joined(peaks: Sequence[bytes]) -> bytes:
    if not peaks:
        return EMPTY
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    """The root of the tree over these hashes of leaves."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.add(leaf)
    return frontier.root


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The proof that the leaf at ``index`` is in the tree over these hashes, the leaf's sibling first."""
    first, last, proof = 0, len(leaves), list[bytes]()
    while last - first > 1:
        middle = first + _split(last - first)
        if index < middle:
            proof.append(root_of(leaves[middle:last]))
            last = middle
        else:
            proof.append(root_of(leaves[first:middle]))
            first = middle
    return proof[::-1]


def consistency(leaves: Sequence[bytes], before: int) -> list[bytes]:
    """The proof that the tree over these hashes begins with its first ``before`` leaves."""
    if not 0 < before < len(leaves):
        return []
    return list(_consistency(leaves, 0, len(leaves), before, whole=True))[::-1]


def _consistency(leaves: Sequence[bytes], first: int, last: int, before: int, *, whole: bool) -> Iterator[bytes]:
    """The hashes of the proof, the last one first."""
    while first + before < last:
        middle = first + _split(last - first)
        if first + before <= middle:
            yield root_of(leaves[middle:last])
            last = middle
        else:
            yield root_of(leaves[first:middle])
            before, first, whole = before - (middle - first), middle, False
    if not whole:
        yield root_of(leaves[first:last])


def includes(root: bytes, size: int, index: int, leaf: bytes, proof: Sequence[bytes]) -> bool:
    """True if ``proof`` shows that the tree has this hash of a leaf at ``index`` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    number, last, found = index, size - 1, leaf
    for other in proof:
        if last == 0:
            return False
        if number & 1 or number == last:
            found = node_hash(other, found)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            found = node_hash(found, other)
        number, last = number >> 1, last >> 1
    return last == 0 and found == root


def consistent(before: int, root_before: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """True if ``proof`` shows that the tree of ``size`` begins with that of ``before`` (RFC 9162, 2.1.4.2)."""
    if before == 0 or before == size:
        return not proof and before <= size and (root == root_before if before == size else root_before == EMPTY)
    if not 0 < before < size or not proof:
        return False
    path = [root_before, *proof] if before & before - 1 == 0 else [*proof]
    number, last = before - 1, size - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    first = second = path[0]
    for other in path[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            first, second = node_hash(other, first), node_hash(other, second)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            second = node_hash(second, other)
        number, last = number >> 1, last >> 1
    return last == 0 and first == root_before and second == root
