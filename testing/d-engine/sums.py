"""Exactly-once writes: each client has a session, adds one to counters, and asks again, wherever it can, until it is told the sum.

`sums.py HISTORY` checks what was written down. Every addition is answered in the end, so that the sums of a counter must be 1, 2, 3 … up to
what it has at last: one that is missing was done by somebody twice, one that comes twice was lost. That is also the only order in which they
can have happened, and what ended before something else began must not be behind it in that order, looks at the counter included."""

import time
from collections import defaultdict

from doors import Refused, Stream, Unknown, add
from workloads import Workload, judge

KEYS = 4
PREFIX = "sum/"
PATIENCE_SECONDS = 20


class Pending:
    """An addition that has no answer yet."""

    def __init__(self, client, key, session, sequence):
        self.client, self.key, self.session, self.sequence = client, key, session, sequence
        self.start_nanos = time.monotonic_ns()


class Sums(Workload):
    """Planted: who asks again does so without a word of the session."""

    PLANTED_READS = False
    DOORS = ("stream",)

    def __init__(self, history, is_planted):
        super().__init__(history, is_planted)
        # By the client's number; each is its client's alone until clients have ended.
        self.sessions, self.pending = {}, {}

    def turn(self, connection, actor):
        client = actor.number
        if self.pending.get(client) is None:
            key = str(actor.chance.randrange(KEYS))
            if actor.chance.random() < 0.5:
                self.read(actor, key, "look", lambda level: {"sum": int(connection.get(PREFIX + key, level) or 0)})
                return
            if client not in self.sessions:
                self.sessions[client] = (connection.open_session(), 0)
            session, sequence = self.sessions[client]
            self.sessions[client] = (session, sequence + 1)
            self.pending[client] = Pending(client, key, session, sequence + 1)
        self.ask(connection, self.pending[client])

    def ask(self, connection, pending):
        stamp = None if self.is_planted else (pending.session, pending.sequence)
        done = connection.transact([add(PREFIX + pending.key, 1)], stamp=stamp)
        line = {"client": pending.client, "key": pending.key, "start_nanos": pending.start_nanos}
        self.history.add("add", is_write=True, end_nanos=time.monotonic_ns(), sum=done.sum(0), **line)
        self.pending[pending.client] = None

    def finish(self, group):
        """What has no answer yet gets one; then everybody looks at what came of it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        wanted = [lambda connection, pending=pending: self.ask(connection, pending) for pending in self.pending.values() if pending]
        wanted += [lambda connection, key=str(key): self.look(connection, key) for key in range(KEYS)]
        for what in wanted:
            while True:
                assert time.monotonic() < deadline, "the last additions are not answered"
                connection = Stream(group.addresses[group.leader()])
                try:
                    what(connection)
                    break
                except (Refused, Unknown):
                    time.sleep(0.1)
                finally:
                    connection.close()

    def look(self, connection, key):
        start, found = time.monotonic_ns(), int(connection.get(PREFIX + key, "linearizable") or 0)
        self.history.add("last", client=0, key=key, sum=found, start_nanos=start, end_nanos=time.monotonic_ns())


def problems_of(lines):
    """What is wrong with what happened to one counter."""
    added = sorted(line["sum"] for line in lines if line["op"] == "add")
    last = max((line["sum"] for line in lines if line["op"] == "last"), default=None)
    if last is None:
        yield "nobody looked at it last"
        return
    twice = sorted({number for number, next_one in zip(added, added[1:]) if number == next_one})
    missing = sorted(set(range(1, last + 1)) - set(added))
    if twice:
        yield f"sums {twice[:5]} were told twice, {len(twice)} in all: an addition was lost"
    if missing:
        yield f"sums {missing[:5]} were told to nobody, {len(missing)} in all: an addition was done twice"
    # A look at a sum stands behind the addition that made it.
    order = sorted(lines, key=lambda line: (line["sum"], line["op"] != "add", line["start_nanos"]))
    latest = order[0]
    for line in order:
        if line["end_nanos"] < latest["start_nanos"]:
            yield (f"{line['op']} of {line['sum']} ended at {line['end_nanos']}, before {latest['op']} of {latest['sum']} began at "
                   f"{latest['start_nanos']}, which is in front of it")
        if line["start_nanos"] > latest["start_nanos"]:
            latest = line


def check(lines):
    """What is wrong, and how much was looked at."""
    by_key = defaultdict(list)
    for line in lines:
        by_key[line["key"]].append(line)
    found = [f"{key}: {problem}" for key, of_key in sorted(by_key.items()) for problem in problems_of(of_key)]
    adds = sum(1 for line in lines if line["op"] == "add")
    return found, f"{adds} additions to {len(by_key)} counters, and {len(lines) - adds} looks at them"


if __name__ == "__main__":
    judge(check, "each was done once, in an order that explains every answer")
