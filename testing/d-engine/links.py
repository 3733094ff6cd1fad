"""The network between members: each member finds every other one behind a relay of its own, which can keep back what goes one way.

A link is one way from a member to another. What is sent over a link that is cut waits, as it would where packets are lost and sent again, and
arrives when the link is whole; who waits too long gives its connection up. New connections over a cut link are accepted and say nothing.
A connection goes both ways: what comes back on one that a member opened takes the link from the other."""

import socket
import threading

CHUNK_BYTES = 1 << 16


class Links:
    """Relays between so many members; `ports` are where the members listen for each other, from 0."""

    def __init__(self, ports):
        self.ports, self.changed, self.cuts, self.is_over = ports, threading.Condition(), set(), False
        self.listeners = {}
        for source in range(len(ports)):
            for target in range(len(ports)):
                if source != target:
                    listener = socket.create_server(("127.0.0.1", 0))
                    self.listeners[source, target] = listener
                    threading.Thread(target=self.accept, args=(listener, source, target), daemon=True).start()

    def port(self, source, target):
        """Where one member finds another."""
        return self.listeners[source, target].getsockname()[1]

    def cut(self, links):
        with self.changed:
            self.cuts |= set(links)

    def heal(self):
        with self.changed:
            self.cuts.clear()
            self.changed.notify_all()

    def wait_until_whole(self, link):
        with self.changed:
            self.changed.wait_for(lambda: link not in self.cuts or self.is_over)

    def accept(self, listener, source, target):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(near, source, target), daemon=True).start()

    def connect(self, near, source, target):
        self.wait_until_whole((source, target))
        try:
            far = socket.create_connection(("127.0.0.1", self.ports[target]), timeout=5)
        except OSError:
            near.close()
            return
        for one in (near, far):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self.carry, args=(near, far, (source, target)), daemon=True).start()
        self.carry(far, near, (target, source))

    def carry(self, from_socket, to_socket, link):
        try:
            while chunk := from_socket.recv(CHUNK_BYTES):
                self.wait_until_whole(link)
                to_socket.sendall(chunk)
        except OSError:
            pass
        # That a connection has ended is not heard over a cut link, either.
        self.wait_until_whole(link)
        for one in (from_socket, to_socket):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def close(self):
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        for listener in self.listeners.values():
            listener.close()
