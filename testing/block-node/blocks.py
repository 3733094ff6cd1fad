"""Blocks that verify, put together from the tables of field numbers; their hashes are those of testing/block-hash. And the same the other way
round: what a client must check of a block that it was given."""

import hashlib

import block_hash
from wire import every, first, message

HEADER, EVENT, TRANSACTION, RESULT, STATE, PROOF, FOOTER = 1, 2, 4, 5, 7, 9, 12
# Nothing that has a meaning: two seconds from block to block.
GENESIS_SECONDS = 1_700_000_000
TWO_TREES = ((0, 62), (0, 64))


def sha384(data):
    return hashlib.sha384(data).digest()


def version_of(version):
    return message(*((place, part or None) for place, part in enumerate(version, 1)))


def noise(seed, count):
    """Bytes that look random, and are the same each time."""
    made = b"".join(sha384(seed + place.to_bytes(4, "big")) for place in range(-(-count // 48)))
    return made[:count]


class Block:
    """A number, items, and the root hash over them."""

    def __init__(self, number, items, root):
        self.number, self.items, self.root = number, items, root

    @property
    def bytes(self):
        return joined(self.items)


def joined(items):
    """Items as a Block, or as a BlockItemSet: both have them in field 1."""
    return message(*((1, item) for item in items))


class Chain:
    """Makes one block behind the other. Another seed is another chain."""

    def __init__(self, version, seed=b"one"):
        self.version, self.seed, self.roots = version, seed, []
        self.has_footer = not TWO_TREES[0] <= version[:2] < TWO_TREES[1]

    def next(self, transactions=3, transaction_bytes=200):
        block = self.block(transactions, transaction_bytes)
        self.roots.append(block.root)
        return block

    def block(self, transactions=3, transaction_bytes=200, previous=None):
        """What would come next; `previous` is named as the root hash of the block before in place of the right one."""
        number = len(self.roots)
        time = message((1, GENESIS_SECONDS + 2 * number), (2, 7))
        header = message((1, version_of(self.version)), (2, version_of(self.version)), (3, number or None), (4, time))
        items = [message((HEADER, header)), message((EVENT, noise(self.seed + b"event%d" % number, 16)))]
        for place in range(transactions):
            content = noise(self.seed + b"%d %d" % (number, place), transaction_bytes)
            items += [message((TRANSACTION, content)), message((RESULT, content[:50])), message((STATE, content[:20]))]
        if self.has_footer:
            before = self.roots[-1] if self.roots else block_hash.EMPTY
            all_before = block_hash.merkle(self.roots)
            items.append(message((FOOTER, message((1, previous or before), (2, all_before)))))
            root = block_hash.root(joined(items))
            proof = message((1, number or None), (2, message((1, sha384(root)))))
        else:
            # What a footer says later stands in the proof; before the first block was nothing but zeros.
            before = self.roots[-1] if self.roots else bytes(48)
            named = ((1, number or None), (2, previous or before), (3, bytes(48)))
            root = block_hash.root(joined([*items, message((PROOF, message(*named)))]))
            proof = message(*named, (4, sha384(root)))
        items.append(message((PROOF, proof)))
        return Block(number, items, root)


class Wrong(Exception):
    """A block that is not what it says: the argument tells."""


def number_of(item):
    """The number of the block that begins with this item; None: no block begins with it."""
    header = first(item, HEADER)
    return first(header, 3, 0) if header is not None else None


def verify(received, expected_number):
    """The root hash of a `Block` message whose proof is the dummy, computed by own code. It needs nothing but the block."""
    try:
        root = block_hash.root(received)
        last = every(received, 1)[-1]
        proof = first(last, PROOF)
        if proof is None:
            raise Wrong(f"block {expected_number} does not end with a proof")
        if number_of(every(received, 1)[0]) != expected_number or first(proof, 1, 0) != expected_number:
            raise Wrong(f"block {expected_number}: header or proof has another number")
        signed = first(proof, 2, b"")
        signature = first(proof, 4) if len(signed) == 48 else first(signed, 1)
    # Whatever a byte that flips makes of a message: none of these is a block.
    except (block_hash.Refused, AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Wrong(f"block {expected_number}: {error!r}") from error
    if signature != sha384(root):
        raise Wrong(f"block {expected_number}: its items do not have the hash that its proof says")
    return root


def compare(received, expected):
    """Every item with what was published."""
    if received == expected.bytes:
        return
    try:
        found = every(received, 1)
    except (AssertionError, IndexError, ValueError) as error:
        raise Wrong(f"block {expected.number} is no message: {error!r}") from error
    for place, (one, other) in enumerate(zip(found, expected.items)):
        if one != other:
            raise Wrong(f"block {expected.number}: item {place} is another one")
    raise Wrong(f"block {expected.number}: {len(found)} items in {len(received)} bytes, not {len(expected.items)} in {len(expected.bytes)}")


def root_of_proof(proof):
    """The item of a BlockContentsProof, the root hash that its siblings lead to, and the signature."""
    item = first(proof, 1, b"")
    reached = block_hash.leaf(item)
    for sibling in every(proof, 2):
        beside = first(sibling, 2, b"")
        pair = (beside, reached) if first(sibling, 1, 0) else (reached, beside)
        reached = block_hash.two_children(*pair)
    return item, reached, first(proof, 3, b"")
