import com.hedera.hapi.block.stream.BlockItem;
import com.hedera.hapi.node.base.SemanticVersion;
import com.hedera.hapi.node.base.Timestamp;
import com.hedera.pbj.runtime.io.buffer.Bytes;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Root hashes of blocks by their rules alone: those of 0.71 to 0.76, with a node that has one child, and of 0.77, with eight more trees. */
final class Hashes {
    /** Of a tree without leaves. */
    static final Bytes EMPTY = leaf(Bytes.EMPTY);

    private Hashes() {}

    static Bytes sha384(Bytes... parts) {
        try {
            var digest = MessageDigest.getInstance("SHA-384");
            for (var part : parts) {
                digest.update(part.toByteArray());
            }
            return Bytes.wrap(digest.digest());
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);
        }
    }

    private static Bytes prefixed(int prefix, Bytes... parts) {
        var all = new ArrayList<>(List.of(parts));
        all.addFirst(Bytes.wrap(new byte[] {(byte) prefix}));
        return sha384(all.toArray(Bytes[]::new));
    }

    static Bytes leaf(Bytes content) {
        return prefixed(0, content);
    }

    static Bytes onlyChild(Bytes child) {
        return prefixed(1, child);
    }

    static Bytes inner(Bytes left, Bytes right) {
        return prefixed(2, left, right);
    }

    /** Of a tree whose left part is the largest complete one that is smaller than all of it. */
    static Bytes tree(List<Bytes> leaves) {
        if (leaves.isEmpty()) {
            return EMPTY;
        }
        if (leaves.size() == 1) {
            return leaves.getFirst();
        }
        var left = Integer.highestOneBit(leaves.size() - 1);
        return inner(tree(leaves.subList(0, left)), tree(leaves.subList(left, leaves.size())));
    }

    /** What stands below the root of the block of these items: the timestamp's leaf, then the roots of eight trees. */
    static List<Bytes> branches(List<BlockItem> items) {
        var footer = items.stream().filter(BlockItem::hasBlockFooter).findFirst().orElseThrow().blockFooterOrThrow();
        var below = new ArrayList<List<Bytes>>();
        for (var subtree = 0; subtree < 5; subtree++) {
            below.add(new ArrayList<>());
        }
        for (var item : items) {
            var subtree = switch (item.item().kind()) {
                case EVENT_HEADER, ROUND_HEADER -> 0;
                case SIGNED_TRANSACTION -> 1;
                case BLOCK_HEADER, TRANSACTION_RESULT, TRANSACTION_OUTPUT, RECORD_FILE -> 2;
                case STATE_CHANGES -> 3;
                case TRACE_DATA -> 4;
                case BLOCK_FOOTER, BLOCK_PROOF -> -1;
                case UNSET, FILTERED_SINGLE_ITEM, REDACTED_ITEM -> throw new IllegalArgumentException("a whole block has no " + item);
            };
            if (subtree >= 0) {
                below.get(subtree).add(leaf(BlockItem.PROTOBUF.toBytes(item)));
            }
        }
        var branches = new ArrayList<Bytes>();
        branches.add(leaf(Timestamp.PROTOBUF.toBytes(items.getFirst().blockHeaderOrThrow().blockTimestampOrThrow())));
        branches.add(footer.previousBlockRootHash());
        branches.add(footer.rootHashOfAllBlockHashesTree());
        branches.add(footer.startOfBlockStateRootHash());
        below.forEach(leaves -> branches.add(tree(leaves)));
        return branches;
    }

    static Bytes root(List<BlockItem> items) {
        var branches = branches(items);
        var trees = new ArrayList<>(branches.subList(1, 9));
        var version = items.getFirst().blockHeaderOrThrow().hapiProtoVersionOrThrow();
        if (isBefore(version, Chain.SIXTEEN_TREES)) {
            return inner(branches.getFirst(), onlyChild(tree(trees)));
        }
        trees.addAll(Collections.nCopies(8, EMPTY));
        return inner(branches.getFirst(), tree(trees));
    }

    private static boolean isBefore(SemanticVersion one, SemanticVersion other) {
        return one.major() == other.major() ? one.minor() < other.minor() : one.major() < other.major();
    }
}
