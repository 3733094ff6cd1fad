import com.hedera.hapi.block.stream.Block;
import com.hedera.hapi.node.base.Timestamp;
import com.hedera.node.app.blocks.impl.BlockStreamManagerImpl;
import com.hedera.node.app.blocks.impl.IncrementalStreamingHasher;
import com.hedera.pbj.runtime.io.buffer.Bytes;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Root hashes as the consensus node's own code computes what it signs. */
final class ConsensusNode {
    private ConsensusNode() {}

    static Bytes tree(List<Bytes> leaves) throws Exception {
        var hasher = new IncrementalStreamingHasher(MessageDigest.getInstance("SHA-384"), List.of(), 0);
        leaves.forEach(leaf -> hasher.addNodeByHash(leaf.toByteArray()));
        return Bytes.wrap(hasher.computeRootHash());
    }

    /** Its method for that is private, and so is what it returns. */
    static Bytes root(Block block) throws Exception {
        var manager = BlockStreamManagerImpl.class;
        var lookup = MethodHandles.privateLookupIn(manager, MethodHandles.lookup());
        var rootAndSiblings = lookup.findClass(manager.getName() + "$RootAndSiblingHashes");
        var types = new ArrayList<Class<?>>(Collections.nCopies(8, Bytes.class));
        types.add(Timestamp.class);
        var combine = lookup.findStatic(manager, "combine", MethodType.methodType(rootAndSiblings, types));
        var root = lookup.findVirtual(rootAndSiblings, "blockRootHash", MethodType.methodType(Bytes.class));
        var arguments = new ArrayList<Object>(Hashes.branches(block.items()).subList(1, 9));
        arguments.add(block.items().getFirst().blockHeaderOrThrow().blockTimestamp());
        try {
            return (Bytes) root.invoke(combine.invokeWithArguments(arguments));
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }
}
