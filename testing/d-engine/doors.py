"""What clients speak: unary calls of the dialect of 0.2.4, and our own streaming door. Values and keys are text."""

import itertools
import queue
import threading

import grpc

from group import call
from wire import every, first, message

ANSWER_SECONDS = 2
WRITE = "/d_engine.client.RaftClientService/HandleClientWrite"
READ = "/d_engine.client.RaftClientService/HandleClientRead"
OPERATE = "/storebench.dengine.v1.Store/Operate"
WATCH = "/storebench.dengine.v1.Store/Watch"
TOO_OLD = 7


class Refused(Exception):
    """Surely nothing has happened."""


class Unknown(Exception):
    """Nobody knows."""


class NoSession(Exception):
    """The session is not there, and whether what was asked before has happened is not to be found out any more."""


class TooOld(Exception):
    """What is watched is kept from a later revision on: the argument."""


def failed(error):
    """What an error says of a write. Without a connection nothing was sent."""
    return Refused() if (error.details() or "").startswith("failed to connect") else Unknown()


class Dialect:
    """Unary calls of release 0.2.4."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)

    def put(self, key, value):
        command = message((1, message((1, key), (2, value))))
        try:
            answer = call(self.channel, WRITE, message((1, 1), (2, command)), timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise Refused from error
            raise failed(error) from error
        if first(answer, 1, 0) != 0:
            raise Unknown

    def get(self, key, level):
        policy = {"lease": 0, "linearizable": 1, "eventual": 2}[level]
        try:
            request = message((1, 1), (2, key), (3, policy))
            answer = call(self.channel, READ, request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise Unknown from error
        found = every(first(answer, 3, b""), 1)
        return first(found[0], 2, b"").decode() if found else None

    def close(self):
        self.channel.close()


# Operations and compares of a transaction, as bytes.


def put(key, value, ttl_millis=None):
    return message((1, message((1, key), (2, value), (3, ttl_millis))))


def delete(key):
    return message((2, key))


def add(key, delta):
    """`delta` is a sint64: 0, -1, 1, -2 … are 0, 1, 2, 3 …"""
    return message((4, message((1, key), (2, 2 * delta if delta >= 0 else -2 * delta - 1))))


def attach(key, lease):
    return message((5, message((1, key), (2, lease))))


def grant(ttl_millis):
    return message((6, ttl_millis))


def keep_alive(lease):
    return message((7, lease))


def is_missing(key):
    return message((1, key), (3, False))


def has_revision(key, revision):
    return message((1, key), (4, revision))


class Written:
    """What a transaction came to: where in the log it stands, whether its compares were true, and what each operation was answered with."""

    def __init__(self, reply):
        written = first(reply, 5)
        assert written is not None, "a write is answered with what it came to"
        self.index = first(reply, 2, 0)
        self.succeeded = bool(first(written, 1, 0))
        self.results = every(written, 2)

    def sum(self, at):
        """What an `add` came to."""
        number = first(self.results[at], 4, 0)
        return number >> 1 if number % 2 == 0 else -(number + 1 >> 1)

    def lease(self, at):
        """Of a grant or a keep-alive: number and end by the clock of the log; None: there is no such lease."""
        lease = first(first(self.results[at], 6, b""), 1)
        return (first(lease, 1, 0), first(lease, 3, 0)) if lease is not None else None


class Stream:
    """Our own door: frames of requests, replies in any order."""

    CODES_WITHOUT_EFFECT = (1, 2, 3)
    NO_SESSION = 6
    LEVELS = {"linearizable": (1, b""), "lease": (2, b""), "eventual": (4, b"")}

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.requests = queue.SimpleQueue()
        self.ids = itertools.count(1)
        self.replies = self.channel.stream_stream(OPERATE)(iter(self.requests.get, None))

    def ask(self, body):
        """One request, and its reply; who waits too long closes the stream."""
        number = next(self.ids)
        self.requests.put(message((1, message((1, number), body))))
        timer = threading.Timer(ANSWER_SECONDS, self.replies.cancel)
        timer.start()
        try:
            for frame in self.replies:
                for reply in every(frame, 1):
                    if first(reply, 1) == number:
                        return reply
            raise Unknown
        except grpc.RpcError as error:
            raise failed(error) from error
        finally:
            timer.cancel()

    def answered(self, body):
        """The reply to a write, if it is no error."""
        reply = self.ask(body)
        error = first(reply, 4)
        if error is None:
            return reply
        code = first(error, 1, 0)
        if code == self.NO_SESSION:
            raise NoSession(first(error, 2, b"").decode())
        raise Refused if code in self.CODES_WITHOUT_EFFECT else Unknown

    def transact(self, then, compares=(), stamp=None):
        """All of these operations, if all compares are true. With a stamp of session and sequence, once, however often it is asked for."""
        fields = [*((1, compare) for compare in compares), *((2, operation) for operation in then)]
        if stamp is not None:
            session, sequence = stamp
            fields.append((4, message((1, session), (2, sequence), (3, sequence))))
        return Written(self.answered((2, message(*fields))))

    def open_session(self):
        """Its number."""
        return first(self.answered((4, b"")), 7)

    def put(self, key, value):
        self.transact([put(key, value)])

    def read(self, level, what):
        reply = self.ask((3, message(self.LEVELS[level], what)))
        if first(reply, 4) is not None:
            raise Unknown
        found = first(reply, 6, b"")
        assert not first(found, 2, 0), "no page of these histories is that long"
        return every(found, 1)

    def find(self, key, level):
        """A key's value and revision; None and 0 if it is not there."""
        items = self.read(level, (6, key))
        return (first(items[0], 2, b"").decode(), first(items[0], 3, 0)) if items else (None, 0)

    def get(self, key, level):
        return self.find(key, level)[0]

    def rows(self, prefix, level):
        """What stands behind a prefix in all keys that begin with it, with values and revisions, as of one moment."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        items = self.read(level, (8, message((1, prefix), (2, end))))
        return {first(item, 1).decode()[len(prefix):]: (first(item, 2, b"").decode(), first(item, 3, 0)) for item in items}

    def below(self, prefix, level):
        """What stands behind a prefix in all keys that begin with it."""
        return list(self.rows(prefix, level))

    def close(self):
        self.requests.put(None)
        self.replies.cancel()
        self.channel.close()


class Watch:
    """What happens to all keys with a prefix, from a revision on; 0: from now on."""

    KINDS = {0: "put", 1: "delete", 2: "expire"}

    def __init__(self, address, prefix, from_revision):
        self.channel = grpc.insecure_channel(address)
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        request = message((1, prefix), (2, end), (3, from_revision or None))
        self.frames = self.channel.unary_stream(WATCH)(request)

    def __iter__(self):
        """Frames: events, each of kind, key, value and revision, and the index up to which all was told."""
        try:
            for frame in self.frames:
                error = first(frame, 3)
                if error is not None and first(error, 1, 0) == TOO_OLD:
                    raise TooOld(first(error, 5, 0))
                if error is not None:
                    return
                yield [self.event(event) for event in every(frame, 1)], first(frame, 2, 0)
        except grpc.RpcError:
            return

    def event(self, event):
        text = [first(event, number, b"").decode() for number in (2, 3)]
        return self.KINDS[first(event, 1, 0)], *text, first(event, 4, 0)

    def close(self):
        self.frames.cancel()
        self.channel.close()
