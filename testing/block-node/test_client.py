"""Everything that a client does with a block node, in the words of each era: what the node answers is compared with the tables byte by byte,
and every block with what was published and by its hash. BLOCK_NODE names the program."""

import os
import socket
import sys
import tempfile
import time
import unittest

import grpc

import block_hash
import tables
from blocks import FOOTER, HEADER, PROOF, Block, Chain, Wrong, compare, number_of, root_of_proof, sha384, verify
from node import ANSWER_SECONDS, Node, Publisher
from relay import Counting, Flipping
from wire import every, fields, first, message

# Who is told nothing more is listened to for so long.
QUIET_SECONDS = 0.1


class Conversation:
    """In one era, with a node of its own for each test."""

    era = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        data = os.path.join(folder.name, "blocks")
        self.node = self.enterContext(Node(os.environ["BLOCK_NODE"], data, "--wire-era", self.era.name))
        self.chain = Chain(self.era.version)

    def publish(self, count, publisher=None, sets=1):
        """So many more blocks, all of them under way at once."""
        publisher = publisher or self.node.publisher()
        blocks = [self.chain.next() for _ in range(count)]
        for block in blocks:
            publisher.publish(self.era, block, sets)
        for block in blocks:
            self.is_acknowledged(publisher, block)
        return blocks

    def is_acknowledged(self, publisher, block):
        expected = tables.acknowledgement(self.era, block.number, block.root)
        self.assertEqual(publisher.hears(), expected, f"the acknowledgement of block {block.number}")

    def is_ended(self, publisher, code, last):
        self.assertEqual(publisher.hears(), tables.end_of_stream(self.era, code, last), code)
        self.assertEqual(publisher.hears(), Publisher.OVER, f"behind {code} comes nothing more")

    def received(self, stream):
        """Whole blocks of a subscription as bytes; at its end the message with the status."""
        block = b""
        for answer in stream:
            if first(answer, 1) is not None:
                self.assertEqual(block, b"", "a status stands behind a whole block")
                yield answer
                continue
            item_set = first(answer, 2)
            if item_set is not None:
                self.assertEqual(answer, message((2, item_set)), "a message has one field")
                is_first = number_of(every(item_set, 1)[0]) is not None
                self.assertEqual(is_first, not block, "a set begins with a header where a block begins, and nowhere else")
                block += item_set
                is_whole = not self.era.has_end_of_block and first(every(item_set, 1)[-1], PROOF) is not None
            else:
                self.assertTrue(self.era.has_end_of_block, f"{answer.hex()} in an era without ends of blocks")
                number = number_of(every(block, 1)[0])
                self.assertEqual(answer, message((3, tables.number(number))), f"the end of block {number}")
                is_whole = True
            if is_whole:
                yield block
                block = b""

    def is_sent(self, stream, blocks):
        for block in blocks:
            found = next(stream)
            compare(found, block)
            self.assertEqual(verify(found, block.number), block.root)

    def test_blocks_are_acknowledged_in_order_with_their_hashes(self):
        publisher = self.node.publisher()
        self.publish(20, publisher)
        self.publish(5, publisher, sets=4)
        self.publish(5, self.node.publisher(compression=grpc.Compression.Gzip))

    def test_history_flows_into_live_and_every_item_is_the_one_that_was_published(self):
        publisher = self.node.publisher()
        history = self.publish(6, publisher)
        answers = self.node.subscribe(0, tables.NONE)
        stream = self.received(answers)
        self.is_sent(stream, history)
        live = self.node.subscribe(tables.NONE, tables.NONE)
        live.initial_metadata()
        later = self.publish(6, publisher, sets=3)
        self.is_sent(stream, later)
        self.is_sent(self.received(live), later)
        success = tables.subscription_status(self.era, "SUCCESS")
        for start, end, blocks in ((2, 4, history[2:5]), (tables.NONE, 1, history[:2]), (11, 11, later[5:])):
            bounded = list(self.received(self.node.subscribe(start, end)))
            self.assertEqual(len(bounded), len(blocks) + 1, f"{start} to {end}")
            self.is_sent(iter(bounded), blocks)
            self.assertEqual(bounded[-1], success, f"{start} to {end}")
        for start, end, code in ((5, 4, "INVALID_END_BLOCK_NUMBER"), (9_999, tables.NONE, "NOT_AVAILABLE")):
            refused = list(self.node.subscribe(start, end))
            self.assertEqual(refused, [tables.subscription_status(self.era, code)], f"{start} to {end}")
        answers.cancel()
        live.cancel()

    def test_a_block_of_megabytes_comes_in_sets_of_whole_items(self):
        publisher = self.node.publisher()
        block = self.chain.next(transactions=30, transaction_bytes=100_000)
        publisher.publish(self.era, block, sets=5)
        self.is_acknowledged(publisher, block)
        messages = list(self.node.subscribe(0, 0))
        self.assertGreater(len(messages), 3, "several sets, and the status")
        self.is_sent(self.received(iter(messages)), [block])
        self.assertEqual(self.node.call(tables.GET_BLOCK, message((1, 0))), self.block_response("SUCCESS", block.bytes))

    def block_response(self, code, block=None):
        return tables.block_response(self.era, code, block)

    def test_who_compresses_its_requests_is_answered_with_compressed_blocks(self):
        # Half of what a transaction leaves repeats it.
        block = self.chain.next(transactions=300, transaction_bytes=60)
        publisher = self.node.publisher()
        publisher.publish(self.era, block, sets=5)
        self.is_acknowledged(publisher, block)
        taken = {}
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            relay = Counting(self.node.address)
            self.addCleanup(relay.close)
            with grpc.insecure_channel(relay.address, compression=compression) as channel:
                found = channel.unary_unary(tables.GET_BLOCK)(message((1, 0)), timeout=ANSWER_SECONDS)
                stream = channel.unary_stream(tables.SUBSCRIBE)(tables.subscription(0, 0), timeout=ANSWER_SECONDS)
                self.is_sent(self.received(stream), [block])
            self.assertEqual(found, self.block_response("SUCCESS", block.bytes))
            taken[compression] = relay.answered
        plain, compressed = taken.values()
        self.assertGreater(plain, 2 * len(block.bytes))
        self.assertLess(compressed, plain * 0.8, "bytes that the node has answered")

    def test_single_blocks_are_got_by_number_and_the_latest(self):
        get = lambda *fields: self.node.call(tables.GET_BLOCK, message(*fields))
        for nothing in ((1, 0), (2, 1)):
            self.assertEqual(get(nothing), self.block_response("NOT_AVAILABLE"), "an empty node has no block")
        blocks = self.publish(5)
        for block in blocks:
            self.assertEqual(get((1, block.number)), self.block_response("SUCCESS", block.bytes), block.number)
        for latest in ((2, 1), (1, tables.NONE)):
            self.assertEqual(get(latest), self.block_response("SUCCESS", blocks[-1].bytes), "the latest")
        self.assertEqual(get((1, 5)), self.block_response("NOT_AVAILABLE"))
        self.assertEqual(get(), self.block_response("INVALID_REQUEST"), "a request that names no block")

    def test_status_tells_the_first_block_the_last_and_what_the_era_had_besides(self):
        for first_block, last, following in ((tables.NONE, tables.NONE, 0), (0, 2, 3)):
            if following:
                self.publish(3)
            answer = self.node.call(tables.STATUS, b"")
            known = ((1, first_block or None), (2, last))
            if self.era.name == "today":
                self.assertEqual(answer, message(*known, (4, following or None)))
            elif self.era.name == "v0.13":
                versions = first(answer, 4)
                self.assertEqual(answer, message(*known, (4, versions)), "field 4 are the versions")
                self.assertEqual([number for number, _ in fields(versions)], [2, 3], "of the stream's protobufs, of the software")
            else:
                self.assertEqual(answer, message(*known), "field 4 was not the next block then")

    def test_a_wrong_hash_is_refused_and_the_block_asked_of_another_publisher(self):
        honest, wrong = self.node.publisher(), self.node.publisher()
        for block in self.publish(2, wrong):
            self.is_acknowledged(honest, block)
        block = self.chain.next()
        right = block.items[2]
        block.items[2] = right[:-1] + bytes([right[-1] ^ 1])
        self.assertRaises(Wrong, verify, block.bytes, 2)
        wrong.publish(self.era, block)
        self.is_ended(wrong, "BAD_BLOCK_PROOF", 1)
        self.assertEqual(honest.hears(), tables.resend(2), "who has not sent it is asked for it")
        block.items[2] = right
        honest.publish(self.era, block)
        self.is_acknowledged(honest, block)

    def test_a_block_of_another_history_is_refused_though_its_own_hash_is_right(self):
        self.publish(2)
        other = self.chain.block(previous=sha384(b"another"))
        self.assertEqual(verify(other.bytes, 2), other.root)
        publisher = self.node.publisher()
        publisher.publish(self.era, other)
        self.is_ended(publisher, "BAD_BLOCK_PROOF", 1)

    def test_who_is_ahead_is_told_what_the_node_has(self):
        self.publish(3)
        following, ahead = self.chain.next(), self.chain.next()
        publisher = self.node.publisher()
        publisher.publish(self.era, ahead)
        self.assertEqual(publisher.hears(), tables.behind(self.era, 2))
        if "BEHIND" in self.era.end:
            self.assertEqual(publisher.hears(), Publisher.OVER)
            publisher = self.node.publisher()
        for block in (following, ahead):
            publisher.publish(self.era, block)
            self.is_acknowledged(publisher, block)

    def test_a_duplicate_is_skipped_and_one_of_long_ago_ends_the_stream(self):
        blocks = self.publish(10)
        publisher = self.node.publisher()
        for number in (8, 4):
            publisher.publish(self.era, blocks[number])
            self.assertEqual(publisher.hears(), tables.skip(number))
        publisher.publish(self.era, blocks[3])
        self.is_ended(publisher, "DUPLICATE_BLOCK", 9)

    def test_what_no_hash_vouches_for_is_refused(self):
        """The root hash is the same with and without it."""
        (before,) = self.publish(1)
        block = self.chain.next()
        junk = message((77, b"junk"))
        with_junk = [message((FOOTER, first(item, FOOTER) + junk)) if first(item, FOOTER) else item for item in block.items]
        if with_junk == block.items:
            self.skipTest("blocks of this era have no footer")
        publisher = self.node.publisher()
        publisher.publish(self.era, Block(block.number, with_junk, block.root))
        self.is_ended(publisher, "BAD_BLOCK_PROOF", before.number)
        publisher = self.node.publisher()
        publisher.publish(self.era, block)
        self.is_acknowledged(publisher, block)

    def test_a_header_that_is_longer_than_any_is_refused_before_the_rest_of_its_block_comes(self):
        (before,) = self.publish(1)
        header = first(self.chain.next().items[0], HEADER) + message((99, bytes(100_000)))
        publisher = self.node.publisher()
        publisher.send(tables.items(message((1, message((HEADER, header))))))
        self.is_ended(publisher, "BAD_BLOCK_PROOF", before.number)

    def test_who_asks_for_more_kinds_of_items_than_there_are_makes_an_invalid_request(self):
        self.publish(1)
        kinds = message((2, tables.NONE), (3, message((1, 1), (2, bytes([4]) * 1_000_000))))
        code = "INVALID_REQUEST" if "INVALID_REQUEST" in self.era.subscribe else "NOT_AVAILABLE"
        answers = list(self.node.channel.unary_stream(tables.SUBSCRIBE)(kinds, timeout=ANSWER_SECONDS))
        self.assertEqual(answers, [tables.subscription_status(self.era, code)])

    def test_what_is_no_block_is_an_invalid_request(self):
        self.publish(1)
        for request in (tables.items(message((1, message((4, b"x"))))), b"", message((9, b""))):
            publisher = self.node.publisher()
            publisher.send(request)
            self.is_ended(publisher, "INVALID_REQUEST", 0)

    def race(self, publishers, block):
        """All begin the same block; the one that goes on with it, and those that were told to skip it."""
        for publisher in publishers:
            publisher.send(tables.items(message((1, block.items[0]))))
        waiting, deadline = list(publishers), time.monotonic() + ANSWER_SECONDS
        # All but one are told, and that one is not told a little later.
        while len(waiting) > 1:
            time.sleep(0.001)
            self.assertLess(time.monotonic(), deadline, f"{len(waiting)} publishers are not told to skip block {block.number}")
            told = [publisher for publisher in waiting if publisher.has_heard()]
            for publisher in told:
                self.assertEqual(publisher.hears(), tables.skip(block.number))
                waiting.remove(publisher)
        self.assertEqual(len(waiting), 1, f"all publishers are told to skip block {block.number}")
        self.is_quiet(waiting)
        return waiting[0], [publisher for publisher in publishers if publisher is not waiting[0]]

    def is_quiet(self, publishers, why="the one that goes on is told nothing"):
        """They are told nothing more, also for a while."""
        time.sleep(QUIET_SECONDS)
        for publisher in publishers:
            self.assertFalse(publisher.has_heard(), why)

    def finish(self, publisher, block):
        publisher.send(tables.items(message(*((1, item) for item in block.items[1:]))))
        if self.era.has_end_of_block:
            publisher.send(tables.end_of_block(block.number))

    def test_of_publishers_with_the_same_block_one_wins_and_all_are_acknowledged(self):
        publishers = [self.node.publisher() for _ in range(3)]
        for _ in range(5):
            block = self.chain.next()
            winner, _ = self.race(publishers, block)
            self.finish(winner, block)
            for publisher in publishers:
                self.is_acknowledged(publisher, block)
            self.is_quiet(publishers, "SkipBlock once, and the acknowledgement")

    def test_a_block_that_ends_in_the_middle_is_asked_of_another_publisher(self):
        ways = {
            "EndStream": lambda winner: winner.send(tables.end_stream(tables.RESET, 0, 9)),
            "the end of its stream": Publisher.close,
            "a broken connection": Publisher.cancel,
        }
        for what, leave in ways.items():
            with self.subTest(what):
                block = self.chain.next()
                winner, (other,) = self.race([self.node.publisher(), self.node.publisher()], block)
                winner.send(tables.items(message((1, block.items[1]))))
                leave(winner)
                self.assertEqual(other.hears(), tables.resend(block.number))
                other.publish(self.era, block)
                self.is_acknowledged(other, block)
                again = self.node.publisher()
                again.publish(self.era, block)
                self.assertEqual(again.hears(), tables.skip(block.number), "it comes back and sends what is stored")

    def test_what_was_acknowledged_is_there_after_kill_9(self):
        blocks = self.publish(8)
        self.node.restart()
        self.is_sent(self.received(self.node.subscribe(0, 7)), blocks)
        blocks += self.publish(2)
        self.is_sent(self.received(self.node.subscribe(0, 9)), blocks)

    def test_an_item_is_proven_to_be_part_of_its_block(self):
        blocks = self.publish(3)
        ask = lambda *arguments, **more: self.node.call(tables.CONTENTS_PROOF, tables.proof_request(*arguments, **more))
        refusal = lambda code: tables.proof_refusal(self.era, code)
        self.assertEqual(ask(7, index=1), refusal("NOT_AVAILABLE"), "a block that is not there")
        if "INVALID_REQUEST" in self.era.proof:
            self.assertEqual(ask(1), refusal("INVALID_REQUEST"), "no item is named")
        if self.era.name != "today":
            self.assertEqual(ask(1, index=1), refusal("NOT_AVAILABLE"), "blocks of that time have no such proofs")
            return
        for block in blocks:
            *hashed, footer, _ = block.items
            for index, item in enumerate(hashed):
                answer = ask(block.number, index=index)
                self.assertEqual(first(answer, 1), self.era.proof["SUCCESS"])
                proven, root, signature = root_of_proof(first(answer, 2))
                self.assertEqual((proven, root, signature), (item, block.root, sha384(block.root)), f"item {index}")
                by_others = ask(block.number, item=item), ask(block.number, item_hash=block_hash.leaf(item))
                self.assertEqual(by_others, (answer, answer), "by its bytes, and by its hash")
            for what, wanted in (("footer", {"item": footer}), ("none", {"index": 99}), ("another", {"item": b"x"})):
                self.assertEqual(ask(block.number, **wanted), refusal("ITEM_NOT_FOUND"), what)

    def test_whatever_byte_flips_is_found_by_hash_and_by_comparison(self):
        expected = self.publish(2)[1]
        received = next(self.received(self.node.subscribe(1, 1)))
        compare(received, expected)
        verify(received, 1)
        for place in range(len(received)):
            flipped = bytearray(received)
            flipped[place] ^= 1 << place % 8
            for check, other in ((compare, expected), (verify, expected.number)):
                with self.assertRaises(Wrong, msg=f"{check.__name__}: byte {place} of {len(received)}"):
                    check(bytes(flipped), other)

    def test_a_byte_that_flips_on_the_wire_is_found(self):
        block = self.publish(1)[0]
        # In the middle of a transaction.
        relay = Flipping(self.node.address, block.items[2][60:90])
        self.addCleanup(relay.close)
        with grpc.insecure_channel(relay.address) as channel:
            stream = channel.unary_stream(tables.SUBSCRIBE)(tables.subscription(0, 0), timeout=ANSWER_SECONDS)
            received = next(self.received(stream))
        self.assertEqual(relay.flipped, 1)
        with self.assertRaisesRegex(Wrong, "item 2 is another one"):
            compare(received, block)
        with self.assertRaisesRegex(Wrong, "do not have the hash"):
            verify(received, 0)


class Relay(unittest.TestCase):
    def test_what_comes_in_parts_is_flipped_too(self):
        wanted = bytes(range(100, 130))
        said = b"a" * 50 + wanted[:7] + b"z" + wanted + b"end"
        for part in (1, 5, 31, len(said)):
            with socket.create_server(("127.0.0.1", 0)) as server:
                relay = Flipping("127.0.0.1:%d" % server.getsockname()[1], wanted)
                self.addCleanup(relay.close)
                host, port = relay.address.rsplit(":", 1)
                with socket.create_connection((host, int(port)), ANSWER_SECONDS) as client, server.accept()[0] as node:
                    heard = b""
                    for at in range(0, len(said), part):
                        node.sendall(said[at : at + part])
                        # Each part arrives by itself, and at once.
                        while len(heard) < min(at + part, len(said)):
                            heard += client.recv(100)
            different = [place for place in range(len(said)) if heard[place] != said[place]]
            self.assertEqual((relay.flipped, len(heard), len(different)), (1, len(said), 1), f"in parts of {part}")
            self.assertIn(different[0], range(58, 88), f"in parts of {part}")


class V013(Conversation, unittest.TestCase):
    era = tables.ERAS[0]


class V015(Conversation, unittest.TestCase):
    era = tables.ERAS[1]


class V020(Conversation, unittest.TestCase):
    era = tables.ERAS[2]


class Today(Conversation, unittest.TestCase):
    era = tables.TODAY

    def test_detail_tells_ranges_and_what_is_not_checked(self):
        self.publish(4)
        detail = self.node.call(tables.STATUS_DETAIL, b"")
        whole = message((2, 3))
        self.assertEqual((every(detail, 2), every(detail, 5)), ([whole], [whole]), "available and stored ranges")
        versions = first(detail, 1)
        self.assertEqual(first(versions, 1), message((2, 76), (3, 1)), "the protobufs of the stream")
        features = [feature for plugin in every(versions, 3) for feature in every(plugin, 3)]
        self.assertIn(b"hash verified, signature unchecked", features)
        self.assertIn(b"dummy proofs accepted", features)

    def test_a_client_that_knows_nothing_finds_services_methods_and_fields(self):
        paths = [path for name, path in vars(tables).items() if isinstance(path, str) and path.startswith("/org.")]
        self.assertEqual(len(paths), 6)
        for version in ("v1", "v1alpha"):
            ask = self.node.channel.stream_stream(tables.REFLECTION.format(version))
            requests = [message((7, ""))] + [message((4, path[1:].split("/")[0])) for path in paths]
            listed, *described = ask(iter(requests), timeout=ANSWER_SECONDS)
            services = [first(service, 1).decode() for service in every(first(listed, 6), 1)]
            for path, answer in zip(paths, described, strict=True):
                service, method = path[1:].split("/")
                self.assertIn(service, services)
                # FileDescriptorProto: message_type 4, service 6; of each the name 1, fields and methods 2.
                (file,) = every(first(answer, 4), 1)
                named = {first(one, 1).decode(): one for one in every(file, 6)}
                self.assertEqual(first(file, 2), service.rsplit(".", 1)[0].encode(), "the package")
                self.assertIn(method.encode(), [first(one, 1) for one in every(named[service.rsplit(".", 1)[1]], 2)])
            messages = {first(one, 1).decode(): one for one in every(file, 4)}
            for name, expected in tables.FIELDS.items():
                found = {first(field, 1).decode(): first(field, 3) for field in every(messages[name], 2)}
                self.assertEqual({field: found.get(field) for field in expected}, expected, name)
        for path in paths:
            health = self.node.call(tables.HEALTH, message((1, path[1:].split("/")[0])))
            self.assertEqual(health, message((1, 1)), "SERVING")


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    # Python says so itself from 3.12 on.
    if not result.testsRun:
        sys.exit("no test has such a name")
    sys.exit(not result.wasSuccessful())
