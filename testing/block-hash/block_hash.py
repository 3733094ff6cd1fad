#!/usr/bin/env python3
"""Root hashes of blocks, a second time: written from the rules alone, without any code of services/block-node.

Reads blocks from standard input, each as its length (4 bytes, big endian) and its `Block` message, and prints one line for each: the
root hash in hexadecimal, or `refused: ` and why. Standard library only.

With `--filtered` items may be filtered (field 8), as subscribers who filter get them.
With `--self-test` it checks its own Merkle tree against the definition by halves, and ends.
"""

import hashlib
import sys


def sha384(data):
    return hashlib.sha384(data).digest()


def leaf(content):
    return sha384(b"\x00" + content)


def one_child(child):
    return sha384(b"\x01" + child)


def two_children(left, right):
    return sha384(b"\x02" + left + right)


EMPTY = leaf(b"")
NOTHING = sha384(b"")


def padded(contents):
    """The root of the tree of the time of two trees: no prefixes, empty leaves up to a power of two."""
    level = [sha384(content) for content in contents] or [NOTHING]
    while len(level) & (len(level) - 1):
        level.append(NOTHING)
    while len(level) > 1:
        level = [sha384(left + right) for left, right in zip(level[::2], level[1::2])]
    return level[0]


def merkle(leaves):
    """The root of a tree whose left part is the largest complete one that is smaller than all of it."""
    if not leaves:
        return EMPTY
    if len(leaves) == 1:
        return leaves[0]
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    return two_children(merkle(leaves[:left]), merkle(leaves[left:]))


class Refused(Exception):
    pass


def varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data):
            raise Refused("the message ends within a varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise Refused("a varint has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise Refused("a varint has more than 64 bits")


def fields(data):
    """All fields of a message: number, wire type, value."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise Refused("no field number")
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise Refused("wire type %d" % kind)
        if at > len(data):
            raise Refused("the message ends within a field")
        yield number, kind, value


def subtree(number):
    """The place of a subtree among the leaves below the root; None: the item is not hashed."""
    known = {1: 5, 2: 3, 3: 3, 4: 4, 5: 5, 6: 5, 7: 6, 9: None, 10: 5, 11: 7, 12: None}
    if number in known:
        return known[number]
    if number < 20:
        raise Refused("unknown item %d" % number)
    rest = number % 20
    if rest in (0, 19):
        return None
    if 3 <= rest <= 7:
        return rest
    if 8 <= rest <= 15:
        return rest
    raise Refused("unknown item %d" % number)


def two_trees(items):
    """Block node 0.13 and 0.14: the proof says what a footer says later, and its signature is the root's hash."""
    inputs, outputs, proof = [], [], None
    for number, item, content in items:
        if proof is not None:
            raise Refused("an item behind the proof")
        if number in (2, 3, 4):
            inputs.append(item)
        elif number in (1, 5, 6, 7):
            outputs.append(item)
        elif number == 9:
            proof = {field: value for field, _, value in fields(content)}
        else:
            raise Refused("unknown item %d" % number)
    if proof is None or len(proof.get(2, b"")) != 48 or len(proof.get(3, b"")) != 48:
        raise Refused("no proof, or one without its hashes")
    left = sha384(proof[2] + padded(inputs))
    right = sha384(padded(outputs) + proof[3])
    return sha384(left + right)


def only_items(block):
    for field, kind, item in fields(block):
        if field != 1 or kind != 2:
            raise Refused("a block has items only")
        only = list(fields(item))
        if len(only) != 1 or only[0][1] != 2:
            raise Refused("an item has one field")
        yield only[0][0], item, only[0][2]


def root(block, takes_filtered=False):
    items = list(only_items(block))
    header = {number: value for number, _, value in fields(items[0][2])} if items and items[0][0] == 1 else {}
    version = {number: value for number, _, value in fields(header.get(1, b""))}
    if (0, 62) <= (version.get(1, 0), version.get(2, 0)) < (0, 64):
        return two_trees(items)
    return prefixed(items, takes_filtered)


def prefixed(items, takes_filtered):
    header = footer = None
    below = {place: [] for place in range(3, 16)}
    for number, item, content in items:
        if number == 1:
            header = content
        if number == 12:
            footer = content
        if number == 8 and takes_filtered:
            hidden = {field: value for field, _, value in fields(content)}
            place = hidden.get(2, 0) - 1
            if place not in below or len(hidden.get(1, b"")) != 48:
                raise Refused("a filtered item without its hash or its tree")
            below[place].append(hidden[1])
            continue
        place = subtree(number)
        if place is not None:
            below[place].append(leaf(item))
    if header is None or footer is None:
        raise Refused("no header or no footer")
    header = {number: value for number, _, value in fields(header)}
    version = {number: value for number, _, value in fields(header.get(1, b""))}
    version = (version.get(1, 0), version.get(2, 0))
    footer = {number: value for number, _, value in fields(footer)}
    if version < (0, 71):
        raise Refused("a version whose rules are not known")
    is_today = version >= (0, 77)
    state = footer.get(3, b"") or (EMPTY if is_today else bytes(48))
    places = range(3, 16 if is_today else 8)
    if any(below[place] for place in range(3, 16) if place not in places):
        raise Refused("an extension in a block of a time that had none")
    leaves = [footer[1], footer[2], state] + [merkle(below[place]) for place in places]
    tree = merkle(leaves)
    return two_children(leaf(header[4]), tree if is_today else one_child(tree))


def self_test():
    assert EMPTY.hex().startswith("bec021b4f368e306")
    leaves = [leaf(bytes([number])) for number in range(7)]
    four = two_children(two_children(leaves[0], leaves[1]), two_children(leaves[2], leaves[3]))
    three = two_children(two_children(leaves[4], leaves[5]), leaves[6])
    assert merkle(leaves) == two_children(four, three)
    one, two, three = (sha384(content) for content in (b"a", b"b", b"c"))
    assert padded([b"a", b"b", b"c"]) == sha384(sha384(one + two) + sha384(three + NOTHING))
    assert padded([]) == NOTHING and padded([b"a"]) == one


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    while True:
        size = sys.stdin.buffer.read(4)
        if not size:
            return
        block = sys.stdin.buffer.read(int.from_bytes(size, "big"))
        try:
            print(root(block, sys.argv[1:] == ["--filtered"]).hex())
        except Refused as refused:
            print("refused: %s" % refused)


if __name__ == "__main__":
    main()
