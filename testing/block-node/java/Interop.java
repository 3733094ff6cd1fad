import com.hedera.hapi.block.stream.Block;
import com.hedera.hapi.block.stream.BlockItem;
import com.hedera.hapi.node.transaction.SignedTransaction;
import com.hedera.hapi.node.transaction.TransactionBody;
import com.hedera.pbj.runtime.UnknownField;
import com.hedera.pbj.runtime.io.buffer.Bytes;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.hiero.block.api.BlockRange;
import org.hiero.block.api.BlockRequest;
import org.hiero.block.api.BlockResponse;
import org.hiero.block.api.PublishStreamResponse;
import org.hiero.block.api.PublishStreamResponse.BehindPublisher;
import org.hiero.block.api.PublishStreamResponse.BlockAcknowledgement;
import org.hiero.block.api.PublishStreamResponse.EndOfStream;
import org.hiero.block.api.PublishStreamResponse.ResendBlock;
import org.hiero.block.api.PublishStreamResponse.SkipBlock;
import org.hiero.block.api.SubscribeStreamResponse;

/** What the consensus node's classes do with a block node, and what they must hear. Each check has a node of its own. */
final class Interop {
    private interface Check {
        void on(Node node, Client client) throws Exception;
    }

    private static final long CHECK_SECONDS = 60;

    private static int passed;
    private static int failed;

    private static void check(String what, Check check) throws Exception {
        try (var node = new Node(System.getenv("BLOCK_NODE"))) {
            var client = new Client(node);
            // Some calls wait for their answer without end.
            var checking = new FutureTask<>(() -> {
                check.on(node, client);
                return null;
            });
            Thread.startVirtualThread(checking);
            checking.get(CHECK_SECONDS, TimeUnit.SECONDS);
            passed++;
            IO.println("ok      " + what);
            client.close();
        } catch (ExecutionException | TimeoutException error) {
            failed++;
            IO.println("FAILED  " + what);
            error.printStackTrace(System.out);
        }
    }

    private static void same(Object expected, Object found, String what) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("%s: expected %s, found %s".formatted(what, expected, found));
        }
    }

    public static void main(String[] arguments) throws Exception {
        check("root hashes of 0.76.1 are those of the consensus node's own classes", Interop::hashes);
        check("an empty node has no first block, no last one, and none to get", Interop::emptyNode);
        check("a dozen blocks, all under way at once, are acknowledged in order; status and its detail tell them", Interop::publishing);
        check("history flows into live; every block is the one that was published, and has its hash", Interop::subscribing);
        check("subscriptions end with the status that is due", Interop::boundedSubscriptions);
        check("a subscription on which nothing comes outlasts the client's pings", Interop::pings);
        check("single blocks: by number, the latest, one that is not there, none that is named", Interop::singleBlocks);
        check("a block of three megabytes comes in messages that the client takes by default", Interop::largeBlock);
        check("a wrong hash is refused, and its block asked of another publisher", Interop::wrongHash);
        check("a block of another history is refused, though its own hash is right", Interop::otherHistory);
        check("duplicates are skipped, those of long ago end the stream, who is ahead is told", Interop::duplicates);
        check("a consensus node is upgraded: blocks of 0.77 follow those of 0.76.1", Interop::upgrade);
        check("who compresses its messages is understood, and answered so", Interop::compressed);
        IO.println("%d passed, %d failed".formatted(passed, failed));
        // Threads of clients whose streams have no end are still there.
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void hashes(Node node, Client client) throws Exception {
        var leaves = new ArrayList<Bytes>();
        for (var count = 0; count < 70; count++) {
            same(ConsensusNode.tree(leaves), Hashes.tree(leaves), "a tree of " + count);
            leaves.add(Hashes.leaf(Bytes.wrap("leaf " + count)));
        }
        var chain = new Chain(Chain.EIGHT_TREES);
        for (var transactions = 0; transactions < 20; transactions++) {
            var made = chain.next(transactions, "");
            same(ConsensusNode.root(made.block()), made.root(), "the root of a block of %d transactions".formatted(transactions));
        }
    }

    private static void emptyNode(Node node, Client client) throws Exception {
        isStatus(client, Client.NONE, Client.NONE);
        same(List.of(), client.detail().availableRanges(), "ranges");
        same(new BlockResponse(BlockResponse.Code.NOT_AVAILABLE, null), client.block(0), "block 0");
        var latest = client.block(BlockRequest.newBuilder().retrieveLatest(true).build());
        same(new BlockResponse(BlockResponse.Code.NOT_AVAILABLE, null), latest, "the latest");
    }

    /** Fields of an answer that came after these classes: numbers, and what is in them. */
    private static List<String> of(List<UnknownField> fields) {
        return fields.stream().map(field -> field.field() + " " + field.bytes().toHex()).toList();
    }

    private static void isStatus(Client client, long first, long last) {
        var status = client.status();
        same(first, status.firstAvailableBlock(), "the first block");
        same(last, status.lastAvailableBlock(), "the last block");
        same(false, status.onlyLatestState(), "only the latest state");
        // Field 4, the block that is expected next, is of block node 0.39, and these classes are older. As in proto3, 0 is not written.
        same(last == Client.NONE ? List.of() : List.of("4 %02x".formatted(last + 1)), of(status.getUnknownFields()), "newer fields");
    }

    private static void publishing(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var publisher = client.publisher();
        var blocks = publish(chain, publisher, 12);
        isStatus(client, 0, 11);
        var detail = client.detail();
        var range = new BlockRange(0, 11);
        same(List.of(range), detail.availableRanges(), "ranges");
        // Field 5, ranges that are stored, are younger than these classes.
        var stored = BlockRange.PROTOBUF.toBytes(range);
        same(List.of("5 %02x%s".formatted(stored.length(), stored.toHex())), of(detail.getUnknownFields()), "newer fields");
        var versions = detail.versionInformationOrThrow();
        same(Chain.EIGHT_TREES, versions.streamProtoVersion(), "the version of its messages, which is that of the classes");
        same(false, versions.blockNodeVersionOrThrow().equals(versions.streamProtoVersion()), "its own version is another");
        // Items one by one, as they come about.
        var next = chain.next();
        publisher.publish(next.block(), 1);
        isAcknowledged(publisher, blocks.size());
    }

    /** So many more blocks, all of them under way before an acknowledgement is waited for. */
    private static List<Chain.Made> publish(Chain chain, Client.Publisher publisher, int count) throws InterruptedException {
        var made = new ArrayList<Chain.Made>();
        for (var number = 0; number < count; number++) {
            made.add(chain.next());
            publisher.publish(made.getLast());
        }
        for (var block : made) {
            isAcknowledged(publisher, block.number());
        }
        return made;
    }

    private static void isAcknowledged(Client.Publisher publisher, long number) throws InterruptedException {
        var expected = PublishStreamResponse.newBuilder().acknowledgement(new BlockAcknowledgement(number)).build();
        same(expected, publisher.hears(), "the acknowledgement of block " + number);
    }

    private static void isEnded(Client.Publisher publisher, EndOfStream.Code code, long last) throws InterruptedException {
        var end = EndOfStream.newBuilder().status(code).blockNumber(last).build();
        same(PublishStreamResponse.newBuilder().endStream(end).build(), publisher.hears(), code.name());
        same(Client.OVER, publisher.hears(), "behind " + code);
    }

    /** The block as it was published, to the last byte, and its hash computed anew from what came. */
    private static void isPublished(Chain.Made expected, Object found) {
        same(expected.block(), found, "block " + expected.number());
        var block = (Block) found;
        same(Block.PROTOBUF.toBytes(expected.block()), Block.PROTOBUF.toBytes(block), "bytes of block " + expected.number());
        same(expected.root(), Hashes.root(block.items()), "the root hash of block " + expected.number());
    }

    private static SubscribeStreamResponse status(SubscribeStreamResponse.Code code) {
        return SubscribeStreamResponse.newBuilder().status(code).build();
    }

    private static void subscribing(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var publisher = client.publisher();
        var blocks = publish(chain, publisher, 6);
        var fromHistory = client.subscribe(0, Client.NONE);
        for (var block : blocks) {
            isPublished(block, fromHistory.next());
        }
        for (var block : publish(chain, publisher, 6)) {
            isPublished(block, fromHistory.next());
        }
        // What a transaction says has not suffered either.
        var signed = SignedTransaction.PROTOBUF.parseStrict(transaction((Block) client.block(11).blockOrThrow()));
        var body = TransactionBody.PROTOBUF.parseStrict(signed.bodyBytes());
        same(" transaction 1 of block 11", body.memo(), "the memo");
    }

    private static Bytes transaction(Block block) {
        return block.items().stream().filter(BlockItem::hasSignedTransaction).findFirst().orElseThrow().signedTransactionOrThrow();
    }

    private static void boundedSubscriptions(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var blocks = publish(chain, client.publisher(), 8);
        for (var range : List.of(blocks.subList(0, 8), blocks.subList(2, 5), blocks.subList(7, 8))) {
            var subscription = client.subscribe(range.getFirst().number(), range.getLast().number());
            for (var block : range) {
                isPublished(block, subscription.next());
            }
            same(status(SubscribeStreamResponse.Code.SUCCESS), subscription.next(), "behind the last block");
            same(Client.OVER, subscription.next(), "behind the status");
        }
        var backwards = client.subscribe(5, 4);
        same(status(SubscribeStreamResponse.Code.INVALID_END_BLOCK_NUMBER), backwards.next(), "from 5 to 4");
        var farAhead = client.subscribe(1_000_000, Client.NONE);
        same(status(SubscribeStreamResponse.Code.NOT_AVAILABLE), farAhead.next(), "from a million on");
    }

    private static void pings(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var publisher = client.publisher();
        var live = client.subscribe(0, Client.NONE);
        for (var block : publish(chain, publisher, 2)) {
            isPublished(block, live.next());
        }
        Thread.sleep(3_000);
        for (var block : publish(chain, publisher, 2)) {
            isPublished(block, live.next());
        }
    }

    private static void singleBlocks(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var blocks = publish(chain, client.publisher(), 5);
        for (var block : blocks) {
            isFound(block, client.block(block.number()));
        }
        isFound(blocks.getLast(), client.block(BlockRequest.newBuilder().retrieveLatest(true).build()));
        isFound(blocks.getLast(), client.block(Client.NONE));
        same(new BlockResponse(BlockResponse.Code.NOT_AVAILABLE, null), client.block(5), "block 5");
        same(new BlockResponse(BlockResponse.Code.INVALID_REQUEST, null), client.block(BlockRequest.DEFAULT), "no block at all");
    }

    private static void isFound(Chain.Made expected, BlockResponse found) {
        same(BlockResponse.Code.SUCCESS, found.status(), "block " + expected.number());
        isPublished(expected, found.block());
    }

    private static void largeBlock(Node node, Client client) throws Exception {
        var made = new Chain(Chain.SIXTEEN_TREES).next(150, "x".repeat(10_000));
        var publisher = client.publisher();
        publisher.publish(made.block(), 100);
        isAcknowledged(publisher, 0);
        var subscription = client.subscribe(0, 0);
        isPublished(made, subscription.next());
        same(true, Block.PROTOBUF.measureRecord(made.block()) > 3_000_000, "the block has more than 3 MB");
        same(true, subscription.largestBytes < 2 << 20, "no message has 2 MiB, but one " + subscription.largestBytes);
    }

    /** The block with another transaction, and everything else as it was. */
    private static Block altered(Block block) {
        var items = new ArrayList<>(block.items());
        var place = items.indexOf(items.stream().filter(BlockItem::hasSignedTransaction).findFirst().orElseThrow());
        items.set(place, BlockItem.newBuilder().signedTransaction(Bytes.wrap("another")).build());
        return new Block(items);
    }

    private static void wrongHash(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var wrong = client.publisher();
        publish(chain, wrong, 2);
        var honest = client.publisher();
        // It sends a block, too, so that it is known to be there.
        publish(chain, honest, 1);
        isAcknowledged(wrong, 2);
        var made = chain.next();
        wrong.publish(altered(made.block()), 100);
        isEnded(wrong, EndOfStream.Code.BAD_BLOCK_PROOF, 2);
        same(PublishStreamResponse.newBuilder().resendBlock(new ResendBlock(3)).build(), honest.hears(), "block 3 is asked for");
        honest.publish(made);
        isAcknowledged(honest, 3);
        isFound(made, client.block(3));
    }

    private static void otherHistory(Node node, Client client) throws Exception {
        var publisher = client.publisher();
        publish(new Chain(Chain.SIXTEEN_TREES), publisher, 1);
        var other = new Chain(Chain.SIXTEEN_TREES);
        other.next(1, "another");
        publisher.publish(other.next());
        isEnded(publisher, EndOfStream.Code.BAD_BLOCK_PROOF, 0);
    }

    private static void duplicates(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        var blocks = publish(chain, client.publisher(), 12);
        var publisher = client.publisher();
        publisher.publish(blocks.get(10));
        same(PublishStreamResponse.newBuilder().skipBlock(new SkipBlock(10)).build(), publisher.hears(), "block 10 again");
        chain.next();
        publisher.publish(chain.next());
        var behind = PublishStreamResponse.newBuilder().nodeBehindPublisher(new BehindPublisher(11)).build();
        same(behind, publisher.hears(), "block 13 before 12");
        publisher.publish(blocks.get(3));
        isEnded(publisher, EndOfStream.Code.DUPLICATE_BLOCK, 11);
    }

    private static void upgrade(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.EIGHT_TREES);
        var publisher = client.publisher();
        var blocks = publish(chain, publisher, 3);
        chain.upgrade(Chain.SIXTEEN_TREES);
        blocks.addAll(publish(chain, publisher, 3));
        var subscription = client.subscribe(0, 5);
        for (var block : blocks) {
            isPublished(block, subscription.next());
        }
    }

    private static void compressed(Node node, Client client) throws Exception {
        var chain = new Chain(Chain.SIXTEEN_TREES);
        for (var encoding : List.of("gzip", "zstd")) {
            var compressing = new Client(node, encoding);
            var publisher = compressing.publisher();
            var made = chain.next(100, "like all others");
            publisher.publish(made);
            isAcknowledged(publisher, made.number());
            var before = Client.receivedBytes.sum();
            isFound(made, compressing.block(made.number()));
            isPublished(made, compressing.subscribe(made.number(), made.number()).next());
            var came = Client.receivedBytes.sum() - before;
            same(true, came < Block.PROTOBUF.measureRecord(made.block()), "two of it in " + encoding + " are shorter than one");
            compressing.close();
        }
    }
}
