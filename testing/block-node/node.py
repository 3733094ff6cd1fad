"""A block node as a process on loopback, and its calls with bytes as messages. It is gone when the test ends."""

import queue
import re
import subprocess
import threading

import grpc

import tables
from blocks import joined

ANSWER_SECONDS = 20
START_SECONDS = 30
MESSAGE_BYTES_MAX = 64 << 20


class Node:
    def __init__(self, program, directory, *flags):
        self.program, self.directory, self.flags = program, directory, flags
        self.start()

    def start(self):
        common = ["--server-port", "0", "--accept-dummy-proofs", "--log-format", "json", "--data-dir", self.directory]
        # Nothing of the environment that says how it shall run.
        self.process = subprocess.Popen([self.program, *common, *self.flags], env={}, stderr=subprocess.PIPE, text=True)
        # One that never says that it is ready is killed, and ends what is read here.
        patience = threading.Timer(START_SECONDS, self.process.kill)
        patience.start()
        said = []
        for line in self.process.stderr:
            said.append(line)
            found = re.search(r'"address":"([^" ]+)', line)
            if found:
                break
        else:
            patience.cancel()
            self.process.wait()
            self.process.stderr.close()
            raise AssertionError(f"the node ended, or was killed after {START_SECONDS} s, before it was ready: {''.join(said)}")
        patience.cancel()
        # Nobody else reads what it says, and it must not wait for that.
        self.reading = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.reading.start()
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
        self.address = found[1]
        self.channel = grpc.insecure_channel(self.address, options)

    def stop(self):
        """As kill -9."""
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self.reading.join()
        self.process.stderr.close()

    def restart(self):
        self.stop()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def call(self, path, request):
        return self.channel.unary_unary(path)(request, timeout=ANSWER_SECONDS)

    def subscribe(self, start, end):
        """Messages of a subscription, as bytes."""
        request = tables.subscription(start, end)
        return self.channel.unary_stream(tables.SUBSCRIBE)(request, timeout=ANSWER_SECONDS)

    def publisher(self, **more):
        return Publisher(self.channel, **more)


class Publisher:
    """A stream of publishBlockStream: what is sent, and what it is told."""

    OVER = "the stream is over"

    def __init__(self, channel, compression=None):
        self.requests, self.told = queue.SimpleQueue(), queue.SimpleQueue()
        stream = channel.stream_stream(tables.PUBLISH)
        self.stream = stream(iter(self.requests.get, None), compression=compression)
        # From here on it hears of every block that is acknowledged.
        self.stream.initial_metadata()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for answer in self.stream:
                self.told.put(answer)
            self.told.put(self.OVER)
        except grpc.RpcError as error:
            self.told.put(error)

    def send(self, *messages):
        for one in messages:
            self.requests.put(one)

    def publish(self, era, block, sets=1):
        """A whole block, in so many sets of items."""
        size = -(-len(block.items) // sets)
        self.send(*(tables.items(joined(block.items[at : at + size])) for at in range(0, len(block.items), size)))
        if era.has_end_of_block:
            self.send(tables.end_of_block(block.number))

    def hears(self):
        """What it is told next; an error is one that names what was waited for."""
        try:
            return self.told.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise AssertionError(f"a publisher was told nothing for {ANSWER_SECONDS} s") from None

    def has_heard(self):
        return not self.told.empty()

    def close(self):
        """The client's side is over; what is under way is dropped."""
        self.requests.put(None)

    def cancel(self):
        """As when the connection breaks."""
        self.stream.cancel()
        self.requests.put(None)
