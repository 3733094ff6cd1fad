"""A relay in front of a node that flips one bit of what the node answers, in these bytes where they stand first."""

import socket
import threading


class Flipping:
    def __init__(self, address, wanted):
        self.host, port = address.rsplit(":", 1)
        self.port, self.wanted, self.flipped = int(port), wanted, 0
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
        # The last bytes that were passed on: what is wanted may come in several parts.
        passed = b""
        try:
            while data := source.recv(1 << 20):
                if is_answer and not self.flipped:
                    at = (passed + data).find(self.wanted)
                    if at >= 0:
                        place = max(at - len(passed), 0)
                        data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
                        self.flipped += 1
                    passed = (passed + data)[-(len(self.wanted) - 1) :]
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # The other side has gone.
            pass

    def close(self):
        self.listener.close()
