import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** A block node as a process on loopback, in today's era, with a directory of its own. Both are gone when it is closed. */
final class Node implements AutoCloseable {
    private static final Pattern ADDRESS = Pattern.compile("\"address\":\"([^\" ]+)");

    private final Path directory;
    private final Process process;
    final String address;

    Node(String program) throws IOException {
        directory = Files.createTempDirectory("block-node-java");
        var command = new ProcessBuilder(
                program, "--server-port", "0", "--accept-dummy-proofs", "--log-format", "json", "--data-dir", directory + "/blocks");
        // Nothing of the environment says how it shall run.
        command.environment().clear();
        command.redirectOutput(ProcessBuilder.Redirect.DISCARD);
        process = command.start();
        var said = process.errorReader();
        address = addressIn(said);
        // Nobody else reads what it says, and it must not wait for that.
        Thread.ofPlatform().daemon().start(() -> said.lines().forEach(line -> {}));
    }

    private static String addressIn(BufferedReader said) throws IOException {
        var before = new StringBuilder();
        for (var line = said.readLine(); line != null; line = said.readLine()) {
            var found = ADDRESS.matcher(line);
            if (found.find()) {
                return found.group(1);
            }
            before.append(line).append('\n');
        }
        throw new IOException("the node ended before it was ready: " + before);
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.destroyForcibly().waitFor(20, TimeUnit.SECONDS);
        List<Path> files;
        try (var walked = Files.walk(directory)) {
            files = walked.sorted(Comparator.reverseOrder()).toList();
        }
        for (var file : files) {
            Files.delete(file);
        }
    }
}
