import com.hedera.hapi.block.stream.Block;
import com.hedera.hapi.block.stream.BlockItem;
import com.hedera.pbj.grpc.client.helidon.PbjGrpcCall;
import com.hedera.pbj.grpc.client.helidon.PbjGrpcClient;
import com.hedera.pbj.grpc.client.helidon.PbjGrpcClientConfig;
import com.hedera.pbj.grpc.client.helidon.PbjGrpcNetworkBytesInspector;
import com.hedera.pbj.runtime.Codec;
import com.hedera.pbj.runtime.ParseException;
import com.hedera.pbj.runtime.grpc.GrpcClient;
import com.hedera.pbj.runtime.grpc.GrpcCall;
import com.hedera.pbj.runtime.grpc.GrpcCompression;
import com.hedera.pbj.runtime.grpc.Pipeline;
import com.hedera.pbj.runtime.grpc.ServiceInterface;
import com.hedera.pbj.runtime.io.ReadableSequentialData;
import com.hedera.pbj.runtime.io.WritableSequentialData;
import com.hedera.pbj.runtime.io.buffer.Bytes;
import io.helidon.common.tls.Tls;
import io.helidon.webclient.api.WebClient;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.hiero.block.api.BlockAccessServiceInterface.BlockAccessServiceClient;
import org.hiero.block.api.BlockEnd;
import org.hiero.block.api.BlockItemSet;
import org.hiero.block.api.BlockNodeServiceInterface.BlockNodeServiceClient;
import org.hiero.block.api.BlockRequest;
import org.hiero.block.api.BlockResponse;
import org.hiero.block.api.BlockStreamPublishServiceInterface.BlockStreamPublishServiceClient;
import org.hiero.block.api.BlockStreamSubscribeServiceInterface.BlockStreamSubscribeServiceClient;
import org.hiero.block.api.PublishStreamRequest;
import org.hiero.block.api.PublishStreamResponse;
import org.hiero.block.api.ServerStatusDetailResponse;
import org.hiero.block.api.ServerStatusRequest;
import org.hiero.block.api.ServerStatusResponse;
import org.hiero.block.api.SubscribeStreamRequest;
import org.hiero.block.api.SubscribeStreamResponse;

/**
 * The generated stubs over PBJ's gRPC client, set up as the consensus node does it: with an empty authority, and as "application/grpc".
 * Every answer must be known to the classes to its last field, and become the same bytes again.
 */
final class Client implements AutoCloseable {
    /** No block, the latest block, without end: 2^64 - 1, whose meaning depends on the field. */
    static final long NONE = -1;
    /** Behind this comes nothing more. */
    static final Object OVER = "the end of the stream";

    private static final long ANSWER_SECONDS = 20;
    /** So soon a client that hears nothing sends a ping. */
    private static final Duration PING_AFTER = Duration.ofMillis(200);

    private static final ServiceInterface.RequestOptions OPTIONS = new ServiceInterface.RequestOptions() {
        @Override
        public Optional<String> authority() {
            return Optional.empty();
        }

        @Override
        public String contentType() {
            return APPLICATION_GRPC;
        }
    };

    /** What has come on all connections, as it came, compressed or not. */
    static final LongAdder receivedBytes = new LongAdder();

    static {
        PbjGrpcCall.setNetworkBytesInspector(new PbjGrpcNetworkBytesInspector() {
            @Override
            public void received(Bytes message) {
                receivedBytes.add(message.length());
            }
        });
    }

    private final GrpcClient calls;

    Client(Node node) {
        this(node, GrpcCompression.IDENTITY);
    }

    Client(Node node, String encoding) {
        var tls = Tls.builder().enabled(false).build();
        var configuration = new PbjGrpcClientConfig(
                PING_AFTER, tls, Optional.of(""), "application/grpc", encoding, GrpcCompression.getDecompressorNames());
        calls = new Exact(new PbjGrpcClient(
                WebClient.builder().baseUri("http://" + node.address).tls(tls).build(), configuration));
    }

    @Override
    public void close() {
        calls.close();
    }

    ServerStatusResponse status() {
        return new BlockNodeServiceClient(calls, OPTIONS).serverStatus(new ServerStatusRequest());
    }

    ServerStatusDetailResponse detail() {
        return new BlockNodeServiceClient(calls, OPTIONS).serverStatusDetail(new ServerStatusRequest());
    }

    BlockResponse block(BlockRequest request) {
        return new BlockAccessServiceClient(calls, OPTIONS).getBlock(request);
    }

    BlockResponse block(long number) {
        return block(BlockRequest.newBuilder().blockNumber(number).build());
    }

    Subscription subscribe(long start, long end) {
        var answers = new Answers<SubscribeStreamResponse>();
        var service = new BlockStreamSubscribeServiceClient(calls, OPTIONS);
        // It returns when the stream has ended.
        Thread.startVirtualThread(() -> service.subscribeBlockStream(new SubscribeStreamRequest(start, end), answers));
        return new Subscription(answers);
    }

    Publisher publisher() {
        return new Publisher(new BlockStreamPublishServiceClient(calls, OPTIONS));
    }

    /** What comes on a stream: answers, then {@link #OVER} or what went wrong. */
    static final class Answers<T> implements Pipeline<T> {
        private final LinkedBlockingQueue<Object> come = new LinkedBlockingQueue<>();

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            subscription.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(T answer) {
            come.add(answer);
        }

        @Override
        public void onError(Throwable error) {
            come.add(error);
        }

        @Override
        public void onComplete() {
            come.add(OVER);
        }

        Object next() throws InterruptedException {
            var next = come.poll(ANSWER_SECONDS, TimeUnit.SECONDS);
            return next == null ? "no answer within " + ANSWER_SECONDS + " s" : next;
        }
    }

    /** A stream of publishBlockStream. */
    static final class Publisher {
        private final Answers<PublishStreamResponse> answers = new Answers<>();
        private final Pipeline<? super PublishStreamRequest> requests;

        private Publisher(BlockStreamPublishServiceClient service) {
            requests = service.publishBlockStream(answers);
        }

        /** In sets of so many items. */
        void publish(Block block, int itemsOfSet) {
            var items = block.items();
            for (var first = 0; first < items.size(); first += itemsOfSet) {
                var set = items.subList(first, Math.min(first + itemsOfSet, items.size()));
                requests.onNext(PublishStreamRequest.newBuilder().blockItems(new BlockItemSet(set)).build());
            }
            var number = items.getFirst().blockHeaderOrThrow().number();
            requests.onNext(PublishStreamRequest.newBuilder().endOfBlock(new BlockEnd(number)).build());
        }

        void publish(Chain.Made made) {
            publish(made.block(), Integer.MAX_VALUE / 2);
        }

        Object hears() throws InterruptedException {
            return answers.next();
        }
    }

    /** A stream of subscribeBlockStream. */
    static final class Subscription {
        private final Answers<SubscribeStreamResponse> answers;
        /** The largest message so far, encoded. */
        int largestBytes;

        private Subscription(Answers<SubscribeStreamResponse> answers) {
            this.answers = answers;
        }

        /** A whole block, or what comes in place of one. Sets begin with a header where a block begins, and nowhere else. */
        Object next() throws InterruptedException {
            var items = new ArrayList<BlockItem>();
            while (true) {
                var answer = answers.next();
                if (!(answer instanceof SubscribeStreamResponse response) || response.hasStatus()) {
                    return items.isEmpty() ? answer : "in the middle of a block: " + answer;
                }
                largestBytes = Math.max(largestBytes, SubscribeStreamResponse.PROTOBUF.measureRecord(response));
                if (response.hasEndOfBlock()) {
                    var number = response.endOfBlockOrThrow().blockNumber();
                    var isWhole = !items.isEmpty() && items.getFirst().blockHeaderOrThrow().number() == number;
                    return isWhole ? new Block(items) : "the end of another block: " + number;
                }
                var set = response.blockItemsOrThrow().blockItems();
                var headers = set.stream().filter(BlockItem::hasBlockHeader).count();
                if (headers != (items.isEmpty() ? 1 : 0) || set.getFirst().hasBlockHeader() != items.isEmpty()) {
                    return "a set that begins where no block does, or has two: " + set;
                }
                items.addAll(set);
            }
        }
    }

    /** Calls whose answers are decoded to the last field, and compared with what the classes make of them. */
    private record Exact(GrpcClient calls) implements GrpcClient {
        @Override
        public <Request, Reply> GrpcCall<Request, Reply> createCall(
                String method, Codec<Request> request, Codec<Reply> reply, Pipeline<Reply> answers, Map<String, String> metadata) {
            return calls.createCall(method, request, new ExactCodec<>(reply), answers, metadata);
        }

        @Override
        public void close() {
            calls.close();
        }
    }

    private record ExactCodec<T>(Codec<T> codec) implements Codec<T> {
        @Override
        public T parse(ReadableSequentialData input, boolean strict, boolean keepsUnknown, int depth, int size) throws ParseException {
            var bytes = input.readBytes(Math.toIntExact(input.remaining()));
            // The answers that have fields which these classes are too old for; they are kept, and looked at.
            var isNewer = codec == ServerStatusResponse.PROTOBUF || codec == ServerStatusDetailResponse.PROTOBUF;
            var message = codec.parse(bytes.toReadableSequentialData(), !isNewer, isNewer, depth, size);
            var again = codec.toBytes(message);
            if (!again.equals(bytes)) {
                throw new ParseException("it came as " + bytes.toHex() + " and is " + again.toHex() + " encoded by the classes");
            }
            return message;
        }

        @Override
        public void write(T message, WritableSequentialData output) throws IOException {
            codec.write(message, output);
        }

        @Override
        public int measure(ReadableSequentialData input) throws ParseException {
            return codec.measure(input);
        }

        @Override
        public int measureRecord(T message) {
            return codec.measureRecord(message);
        }

        @Override
        public boolean fastEquals(T message, ReadableSequentialData input) throws ParseException {
            return codec.fastEquals(message, input);
        }

        @Override
        public T getDefaultInstance() {
            return codec.getDefaultInstance();
        }
    }
}
