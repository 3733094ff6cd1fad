import com.hedera.hapi.block.stream.Block;
import com.hedera.hapi.block.stream.BlockItem;
import com.hedera.hapi.block.stream.BlockProof;
import com.hedera.hapi.block.stream.TssSignedBlockProof;
import com.hedera.hapi.block.stream.input.EventHeader;
import com.hedera.hapi.block.stream.input.RoundHeader;
import com.hedera.hapi.block.stream.output.BlockFooter;
import com.hedera.hapi.block.stream.output.BlockHeader;
import com.hedera.hapi.block.stream.output.SingletonUpdateChange;
import com.hedera.hapi.block.stream.output.StateChange;
import com.hedera.hapi.block.stream.output.StateChanges;
import com.hedera.hapi.block.stream.output.TransactionResult;
import com.hedera.hapi.block.stream.trace.SubmitMessageTraceData;
import com.hedera.hapi.block.stream.trace.TraceData;
import com.hedera.hapi.node.base.AccountID;
import com.hedera.hapi.node.base.BlockHashAlgorithm;
import com.hedera.hapi.node.base.ResponseCodeEnum;
import com.hedera.hapi.node.base.SemanticVersion;
import com.hedera.hapi.node.base.Timestamp;
import com.hedera.hapi.node.base.TransactionID;
import com.hedera.hapi.node.transaction.SignedTransaction;
import com.hedera.hapi.node.transaction.TransactionBody;
import com.hedera.hapi.platform.event.EventCore;
import com.hedera.pbj.runtime.io.buffer.Bytes;
import java.util.ArrayList;
import java.util.List;

/** Blocks, one behind the other, built of the consensus node's own classes. What they say is made up; how they are hashed is not. */
final class Chain {
    /** The last version of which blocks have eight subtrees, that of the classes themselves. */
    static final SemanticVersion EIGHT_TREES = version(76, 1);
    /** The first one with sixteen. */
    static final SemanticVersion SIXTEEN_TREES = version(77, 0);

    /** A block and its root hash. */
    record Made(long number, Block block, Bytes root) {}

    private static final long GENESIS_SECONDS = 1_790_000_000;

    private final List<Bytes> roots = new ArrayList<>();
    private SemanticVersion version;

    Chain(SemanticVersion version) {
        this.version = version;
    }

    private static SemanticVersion version(int minor, int patch) {
        return SemanticVersion.newBuilder().minor(minor).patch(patch).build();
    }

    /** All later blocks are of this version. */
    void upgrade(SemanticVersion version) {
        this.version = version;
    }

    Made next() {
        return next(3, "");
    }

    /** With so many transactions, each with such a memo. */
    Made next(int transactions, String memo) {
        var number = roots.size();
        var time = time(number, 0);
        var items = new ArrayList<BlockItem>();
        items.add(BlockItem.newBuilder()
                .blockHeader(BlockHeader.newBuilder()
                        .hapiProtoVersion(version)
                        .softwareVersion(version)
                        .number(number)
                        .blockTimestamp(time)
                        .hashAlgorithm(BlockHashAlgorithm.SHA2_384)
                        .build())
                .build());
        items.add(BlockItem.newBuilder().roundHeader(new RoundHeader(number + 1)).build());
        var event = EventCore.newBuilder().creatorNodeId(number % 4).birthRound(number + 1).timeCreated(time).build();
        items.add(BlockItem.newBuilder().eventHeader(EventHeader.newBuilder().eventCore(event).build()).build());
        for (var place = 1; place <= transactions; place++) {
            addTransaction(items, time(number, place), "%s transaction %d of block %d".formatted(memo, place, number));
        }
        var footer = BlockFooter.newBuilder()
                .previousBlockRootHash(number == 0 ? Hashes.EMPTY : roots.getLast())
                .rootHashOfAllBlockHashesTree(Hashes.tree(roots))
                .startOfBlockStateRootHash(Hashes.leaf(Bytes.wrap("state before block " + number)))
                .build();
        items.add(BlockItem.newBuilder().blockFooter(footer).build());
        var root = Hashes.root(items);
        roots.add(root);
        // The dummy: the hash of the root hash in the place of a signature.
        items.add(BlockItem.newBuilder()
                .blockProof(BlockProof.newBuilder()
                        .block(number)
                        .signedBlockProof(new TssSignedBlockProof(Hashes.sha384(root)))
                        .build())
                .build());
        return new Made(number, new Block(items), root);
    }

    private static void addTransaction(List<BlockItem> items, Timestamp time, String memo) {
        var payer = AccountID.newBuilder().accountNum(1001).build();
        var body = TransactionBody.newBuilder()
                .transactionID(TransactionID.newBuilder().accountID(payer).transactionValidStart(time).build())
                .transactionFee(100_000)
                .memo(memo)
                .build();
        var signed = SignedTransaction.newBuilder().bodyBytes(TransactionBody.PROTOBUF.toBytes(body)).build();
        items.add(BlockItem.newBuilder().signedTransaction(SignedTransaction.PROTOBUF.toBytes(signed)).build());
        items.add(BlockItem.newBuilder()
                .transactionResult(TransactionResult.newBuilder()
                        .status(ResponseCodeEnum.SUCCESS)
                        .consensusTimestamp(time)
                        .transactionFeeCharged(90_000)
                        .build())
                .build());
        items.add(BlockItem.newBuilder()
                .traceData(TraceData.newBuilder().submitMessageTraceData(SubmitMessageTraceData.newBuilder().sequenceNumber(7)))
                .build());
        var change = SingletonUpdateChange.newBuilder().stringValue(memo).build();
        items.add(BlockItem.newBuilder()
                .stateChanges(new StateChanges(time, List.of(StateChange.newBuilder().stateId(1).singletonUpdate(change).build())))
                .build());
    }

    private static Timestamp time(long number, int nanos) {
        return new Timestamp(GENESIS_SECONDS + 2 * number, nanos);
    }
}
