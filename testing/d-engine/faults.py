"""Clients put and get at registers while members are killed, all killed, and stopped; what they saw is written down for the checker of
linearizability: faults.py PROGRAM HISTORY SECONDS [stream|dialect].

A put that has no answer, or a failed one, may have happened: it has no end in the history. A get without an answer says nothing, and is left
out. Values are never used twice. Keys change every few seconds, which bounds what the checker must try for each."""

import itertools
import json
import queue
import random
import sys
import tempfile
import threading
import time

import grpc

from group import Group, call
from wire import every, first, message

CLIENTS = 8
KEYS = 4
EPOCH_SECONDS = 2
ANSWER_SECONDS = 2
WRITE = "/d_engine.client.RaftClientService/HandleClientWrite"
READ = "/d_engine.client.RaftClientService/HandleClientRead"
OPERATE = "/storebench.dengine.v1.Store/Operate"


class Refused(Exception):
    """Surely nothing has happened."""


class Unknown(Exception):
    """Nobody knows."""


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
        policy = {"lease": 0, "linearizable": 1}[level]
        try:
            request = message((1, 1), (2, key), (3, policy))
            answer = call(self.channel, READ, request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise Unknown from error
        found = every(first(answer, 3, b""), 1)
        return first(found[0], 2, b"").decode() if found else None

    def close(self):
        self.channel.close()


class Stream:
    """Our own door: frames of requests, replies in any order."""

    CODES_WITHOUT_EFFECT = (1, 2, 3, 6)

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

    def put(self, key, value):
        operation = message((1, message((1, key), (2, value))))
        reply = self.ask((2, message((2, operation))))
        error = first(reply, 4)
        if error is not None:
            raise Refused if first(error, 1, 0) in self.CODES_WITHOUT_EFFECT else Unknown
        assert first(reply, 5) is not None, "a write is answered with what it came to"

    def get(self, key, level):
        reply = self.ask((3, message(({"linearizable": 1, "lease": 2}[level], b""), (6, key))))
        if first(reply, 4) is not None:
            raise Unknown
        items = every(first(reply, 6, b""), 1)
        return first(items[0], 2, b"").decode() if items else None

    def close(self):
        self.requests.put(None)
        self.replies.cancel()
        self.channel.close()


class History:
    def __init__(self, path):
        self.file, self.lock = open(path, "w", encoding="utf-8"), threading.Lock()
        self.counts = {"put": 0, "unknown": 0, "get": 0}

    def add(self, client, key, operation, value, level, start, end):
        line = {"client": client, "key": key, "op": operation, "start_nanos": start}
        line.update({"value": value} if value is not None else {})
        line.update({"level": level} if level else {})
        line.update({"end_nanos": end} if end else {})
        with self.lock:
            self.counts["unknown" if operation == "put" and not end else operation] += 1
            self.file.write(json.dumps(line) + "\n")


def client(number, door, addresses, history, over, began, problems):
    chance = random.Random(number)
    at, connection, values = number, None, itertools.count()
    try:
        while not over.is_set():
            if connection is None:
                connection = door(addresses[at % len(addresses)])
            key = f"{int((time.monotonic() - began) / EPOCH_SECONDS)}/{chance.randrange(KEYS)}"
            start = time.monotonic_ns()
            try:
                if chance.random() < 0.5:
                    value = f"{number}-{next(values)}"
                    try:
                        connection.put(key, value)
                    except Unknown:
                        history.add(number, key, "put", value, None, start, None)
                        # One that nobody knows of is as another client's from here on.
                        number += 1000
                        raise
                    history.add(number, key, "put", value, None, start, time.monotonic_ns())
                else:
                    level = chance.choice(["linearizable", "lease"])
                    found = connection.get(key, level)
                    history.add(number, key, "get", found, level, start, time.monotonic_ns())
            except (Refused, Unknown):
                connection.close()
                connection, at = None, at + 1
                time.sleep(0.02)
    except Exception as error:  # a client that ends early would be a history that proves nothing
        problems.append(error)
        over.set()


def faults(group, over, seconds):
    """By turns: the leader is killed, any member, all of them; the leader is stopped until others have gone on."""
    chance = random.Random(7)
    done = {"leader killed": 0, "member killed": 0, "all killed": 0, "leader stopped": 0}
    deadline = time.monotonic() + seconds
    for fault in itertools.cycle(done):
        if over.wait(1.5) or time.monotonic() > deadline:
            return done
        leader = group.leader()
        if fault == "leader stopped":
            group.stop(leader)
            over.wait(2.5)
            group.go_on(leader)
        else:
            killed = {"leader killed": [leader], "member killed": [chance.randrange(3)], "all killed": [0, 1, 2]}[fault]
            for at in killed:
                group.kill(at)
            over.wait(0.5)
            for at in killed:
                group.start(at)
        done[fault] += 1


def main():
    program, path, seconds, door = sys.argv[1], sys.argv[2], float(sys.argv[3]), {"stream": Stream, "dialect": Dialect}[sys.argv[4]]
    with tempfile.TemporaryDirectory() as directory, Group(program, directory) as group:
        group.leader()
        history, over, problems, began = History(path), threading.Event(), [], time.monotonic()
        arguments = (door, group.addresses, history, over, began, problems)
        clients = [threading.Thread(target=client, args=(number, *arguments)) for number in range(CLIENTS)]
        for one in clients:
            one.start()
        done = faults(group, over, seconds)
        time.sleep(2)
        over.set()
        for one in clients:
            one.join()
    history.file.close()
    assert not problems, problems
    counts = history.counts
    assert counts["put"] > 100 and counts["get"] > 100, f"too little to prove anything: {counts}"
    print(f"{sys.argv[4]}: {counts['put']} puts acknowledged, {counts['unknown']} of unknown outcome, {counts['get']} gets; "
          + ", ".join(f"{fault} {times}" for fault, times in done.items()))


if __name__ == "__main__":
    main()
