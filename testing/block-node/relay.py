"""Relays in front of a node: one counts what the node answers, one flips a bit of it."""

import socket
import threading


class Counting:
    """Bytes that the node has answered."""

    def __init__(self, address):
        self.host, port = address.rsplit(":", 1)
        self.port, self.answered = int(port), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                client = self.listener.accept()[0]
                node = socket.create_connection((self.host, self.port))
                for source, target, is_answer in ((client, node, False), (node, client, True)):
                    threading.Thread(target=self.pass_on, args=(source, target, is_answer), daemon=True).start()
        except OSError:
            # It was closed.
            pass

    def pass_on(self, source, target, is_answer):
        try:
            while data := source.recv(1 << 20):
                target.sendall(self.answer(data) if is_answer else data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # The other side has gone.
            pass

    def answer(self, data):
        self.answered += len(data)
        return data

    def close(self):
        self.listener.close()


class Flipping(Counting):
    """In these bytes, where they stand first."""

    def __init__(self, address, wanted):
        self.wanted, self.flipped = wanted, 0
        # The last bytes that were passed on: what is wanted may come in several parts.
        self.passed = b""
        super().__init__(address)

    def answer(self, data):
        if not self.flipped:
            at = (self.passed + data).find(self.wanted)
            if at >= 0:
                place = max(at - len(self.passed), 0)
                data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
                self.flipped += 1
            self.passed = (self.passed + data)[-(len(self.wanted) - 1) :]
        return super().answer(data)
