"""What clients do at registers, lists and sets, and write down for the checker of linearizability. A write that has no answer, or a failed
one, may have happened: it has no end in the history. A read without an answer says nothing, and is left out. Keys change every few
seconds, which bounds what the checker must try for each.

Each workload can be planted with an error that its check must notice, so that it is known to look."""

import json
import sys
import threading
import time

from doors import Refused, Unknown, delete, has_revision, put

KEYS = 4
EPOCH_SECONDS = 2
LEVELS = ["linearizable", "lease"]
ATTEMPTS_MAX = 20


class History:
    """Lines of JSON, and how many of each operation."""

    def __init__(self, path):
        self.file, self.lock, self.counts = open(path, "w", encoding="utf-8"), threading.Lock(), {}
        self.newest_write = 0

    def add(self, what, is_write=False, **line):
        """`line` may have start_nanos and end_nanos; a write without an end is of unknown outcome."""
        is_known = line.get("end_nanos") is not None
        with self.lock:
            counted = what if is_known or not is_write else "of unknown outcome"
            self.counts[counted] = self.counts.get(counted, 0) + 1
            if is_write and is_known:
                self.newest_write = max(self.newest_write, line["start_nanos"])
            self.file.write(json.dumps({"op": what, **{name: value for name, value in line.items() if value is not None}}) + "\n")


class Workload:
    """What all clients share. `turn` is one operation of an actor over a connection to one member."""

    # Fewer prove nothing.
    OPERATIONS_MIN = 100

    def __init__(self, history, is_planted):
        self.history, self.is_planted, self.began = history, is_planted, time.monotonic()

    def key(self, actor):
        return f"{int((time.monotonic() - self.began) / EPOCH_SECONDS)}/{actor.chance.randrange(KEYS)}"

    def write(self, actor, key, what, value, attempt):
        """Makes a write, which may be refused without a harm, and writes down what came of it."""
        line = {"client": actor.number, "key": key, "value": value, "start_nanos": time.monotonic_ns()}
        try:
            attempt()
        except Unknown:
            self.history.add(what, is_write=True, **line)
            # What nobody knows of is as another client's from here on.
            actor.number += 1000
            raise
        self.history.add(what, is_write=True, end_nanos=time.monotonic_ns(), **line)

    def read(self, actor, key, what, look):
        """Reads by one of the strong levels; `look` is told which."""
        level, start = actor.chance.choice(LEVELS), time.monotonic_ns()
        found = look("eventual" if self.is_planted and self.PLANTED_READS else level)
        line = {"client": actor.number, "key": key, "level": level, "start_nanos": start, "end_nanos": time.monotonic_ns()}
        self.history.add(what, **line, **found)

    def begin(self, group):
        """Before the first turn."""

    def finish(self, group):
        """After the faults, when clients have ended."""


class Registers(Workload):
    """Values are put, each once. Planted: strong reads are eventual ones."""

    PLANTED_READS = True
    DOORS = ("stream", "dialect")

    def turn(self, connection, actor):
        key = self.key(actor)
        if actor.chance.random() < 0.5:
            value = f"{actor.number}-{next(actor.values)}"
            self.write(actor, key, "put", value, lambda: connection.put(key, value))
        else:
            self.read(actor, key, "get", lambda level: {"value": connection.get(key, level)})


class Lists(Workload):
    """Values are appended: a list is read, and written if it is still the same. Planted: whether it is, is not asked."""

    PLANTED_READS = False
    DOORS = ("stream",)

    def append(self, connection, key, value):
        for _ in range(ATTEMPTS_MAX):
            try:
                found, revision = connection.find(key, "linearizable")
            except Unknown as error:
                # Nothing was written yet.
                raise Refused from error
            compares = [] if self.is_planted else [has_revision(key, revision)]
            if connection.transact([put(key, f"{found},{value}" if found else value)], compares).succeeded:
                return
        raise Refused

    def items(self, value):
        return value.split(",") if value else []

    def turn(self, connection, actor):
        key = self.key(actor)
        if actor.chance.random() < 0.5:
            value = f"{actor.number}-{next(actor.values)}"
            self.write(actor, key, "append", value, lambda: self.append(connection, key, value))
        else:
            self.read(actor, key, "list", lambda level: {"items": self.items(connection.get(key, level))})


class Sets(Workload):
    """Elements are added and removed, each a key of its own; who they are is read by a scan. Planted: by an eventual one."""

    PLANTED_READS = True
    DOORS = ("stream",)
    ELEMENTS = 6

    def turn(self, connection, actor):
        key, choice = self.key(actor), actor.chance.random()
        element = f"e{actor.chance.randrange(self.ELEMENTS)}"
        where = f"set/{key}/{element}"
        if choice < 0.35:
            self.write(actor, key, "add", element, lambda: connection.transact([put(where, "")]))
        elif choice < 0.6:
            self.write(actor, key, "remove", element, lambda: connection.transact([delete(where)]))
        else:
            self.read(actor, key, "members", lambda level: {"items": connection.below(f"set/{key}/", level)})


def judge(check, well):
    """Checks the history that the command line names, prints what is wrong or that all is `well`, and exits with 1 or 0."""
    with open(sys.argv[1], encoding="utf-8") as file:
        found, looked = check([json.loads(line) for line in file])
    for problem in found[:10]:
        print(problem)
    print(f"{looked}; {len(found)} problems" if found else f"{looked}; {well}")
    sys.exit(1 if found else 0)
