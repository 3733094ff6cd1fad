"""A group of d-engine servers on loopback, killed and stopped by their process identifiers, cut off from each other by relays between
them, and gone when the program ends."""

import itertools
import os
import signal
import socket
import subprocess
import time

import grpc

from links import Links
from wire import first

LEADER = "/d_engine.server.cluster.ClusterManagementService/DiscoverLeader"
PATIENCE_SECONDS = 30
# Each is tried once in ten thousand; another process begins elsewhere.
NEXT_PORT = (20_000 + (os.getpid() * 797 + number) % 10_000 for number in itertools.count())


def free_ports(count):
    """Below those that the system gives to connections: one of these could be taken before a server listens there."""
    ports = []
    for port in itertools.islice(NEXT_PORT, 10_000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError("no port from 20000 to 29999 is free")


def call(channel, path, request, timeout=5, metadata=None):
    """A unary call with bytes as messages."""
    return channel.unary_unary(path)(request, timeout=timeout, metadata=metadata)


class Group:
    """Members are numbered from 0, and have their data in folders named from 1. `flags` are those of single members."""

    def __init__(self, program, directory, size=3, flags=None):
        ports = free_ports(2 * size)
        self.program, self.directory, self.flags = program, directory, flags or {}
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:size]]
        self.peers = ports[size:]
        self.links = Links(self.peers)
        self.processes = [None] * size
        for at in range(size):
            self.start(at)

    def members(self, at):
        """The members as one of them is told: the others are behind relays."""
        ports = [self.peers[at] if other == at else self.links.port(at, other) for other in range(len(self.peers))]
        return " ".join(f"{other + 1}={address},127.0.0.1:{ports[other]}" for other, address in enumerate(self.addresses))

    def start(self, at):
        with open(os.path.join(self.directory, f"{at + 1}.log"), "ab") as log:
            self.processes[at] = subprocess.Popen(
                [self.program, "serve", "--log-level", "warn", "--node-id", str(at + 1)]
                + ["--db-root-dir", self.folder(at)]
                + self.flags.get(at, []),
                env={"D_ENGINE_MEMBERS": self.members(at)},
                stderr=log,
            )

    def folder(self, at):
        return os.path.join(self.directory, str(at + 1))

    def has_ended(self, at):
        return self.processes[at].poll() is not None

    def kill(self, at):
        self.processes[at].kill()
        self.processes[at].wait()

    def stop(self, at):
        self.processes[at].send_signal(signal.SIGSTOP)

    def go_on(self, at):
        self.processes[at].send_signal(signal.SIGCONT)

    def leader(self):
        """The number of the member that says that it leads, from 0."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for address in self.addresses:
                try:
                    with grpc.insecure_channel(address) as channel:
                        named = first(call(channel, LEADER, b"", timeout=1), 2, b"").decode()
                except grpc.RpcError:
                    continue
                if named == address:
                    return self.addresses.index(named)
            time.sleep(0.05)
        raise AssertionError(f"nobody leads within {PATIENCE_SECONDS} s; see {self.directory}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.links.close()
