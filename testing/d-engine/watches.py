"""Watches: clients put values, each once, some for a short time, and delete keys, while others watch all of it and go on elsewhere when
their member is lost.

`watches.py HISTORY` checks what was written down:

- In order: no event is of a revision that was told already, and none is told twice.
- No phantom: every event is of something that a client did, where it was done; what expires was put for a time.
- No gap: whatever was acknowledged is told to everybody, unless they were told that it is not kept any more.
- Everybody is told the same of a revision.
"""

import threading
import time
from collections import defaultdict

from doors import Stream, Refused, TooOld, Unknown, Watch, delete, put
from workloads import Workload, judge

PREFIX = "watched/"
KEYS = 12
TIMED_KEYS = 1000
WATCHERS = 3
TTL_MILLIS = 300
PATIENCE_SECONDS = 20


class Watches(Workload):
    """Planted: who goes on elsewhere does so from then on, not from where it was."""

    DOORS = ("stream",)

    def __init__(self, history, is_planted):
        super().__init__(history, is_planted)
        self.is_over, self.watchers, self.told = threading.Event(), [], [0] * WATCHERS

    def begin(self, group):
        for number in range(WATCHERS):
            watcher = threading.Thread(target=self.watch, args=(number, group.addresses), daemon=True)
            self.watchers.append(watcher)
            watcher.start()

    def turn(self, connection, actor):
        choice = actor.chance.random()
        value = None if choice < 0.2 else f"{actor.number}-{next(actor.values)}"
        ttl = TTL_MILLIS if value and choice < 0.4 else None
        # Keys that are to end are many, so that they are not put again before that.
        key = f"{PREFIX}timed-{actor.chance.randrange(TIMED_KEYS)}" if ttl else f"{PREFIX}{actor.chance.randrange(KEYS)}"
        self.change(connection, actor.number, key, value, ttl)

    def change(self, connection, client, key, value, ttl):
        """A put, or a delete where there is no value; its index."""
        line = {"client": client, "key": key, "value": value, "ttl_millis": ttl, "start_nanos": time.monotonic_ns()}
        what = "put" if value else "delete"
        try:
            done = connection.transact([put(key, value, ttl) if value else delete(key)])
        except Unknown:
            self.history.add(what, is_write=True, **line)
            raise
        self.history.add(what, is_write=True, end_nanos=time.monotonic_ns(), index=done.index, **line)
        return done.index

    def watch(self, number, addresses):
        at = number
        while not self.is_over.is_set():
            from_revision = self.told[number] + 1 if self.told[number] and not self.is_planted else 0
            watch = Watch(addresses[at % len(addresses)], PREFIX, from_revision)
            at += 1
            # Nobody tells anything while a member is stopped: then it is waited for, as a client would that knows no better.
            try:
                for events, index in watch:
                    if not self.told[number]:
                        self.history.add("begin", watcher=number, index=index)
                    self.history.add("told", watcher=number, events=events, index=index)
                    self.told[number] = max(self.told[number], index)
                    if self.is_over.is_set():
                        break
            except TooOld as error:
                self.history.add("gap", watcher=number, index=error.args[0] - 1)
                self.told[number] = max(self.told[number], error.args[0] - 1)
            finally:
                watch.close()
            time.sleep(0.02)

    def finish(self, group):
        """One more write, and then everybody must hear of it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        index = None
        while index is None:
            assert time.monotonic() < deadline, "the last write is not acknowledged"
            connection = Stream(group.addresses[group.leader()])
            try:
                index = self.change(connection, 0, f"{PREFIX}last", f"last-{time.monotonic_ns()}", None)
            except (Refused, Unknown):
                time.sleep(0.1)
            finally:
                connection.close()
        while min(self.told) < index:
            assert time.monotonic() < deadline, f"told up to {self.told}, and {index} was acknowledged"
            time.sleep(0.05)
        self.is_over.set()
        # A watcher that hears nothing more would wait for ever.
        for watcher in self.watchers:
            watcher.join(timeout=1)


def told_to(lines, changes, ttl_keys):
    """What is wrong with what one watcher was told, and what it was told: by revision and key. Also from where on, and what it was told that it
    misses."""
    found, told, gaps, begin, upto = [], {}, [], None, 0
    for line in lines:
        if line["op"] == "begin":
            begin = upto = line["index"]
            continue
        if line["op"] == "gap":
            gaps.append((upto, line["index"]))
            upto = max(upto, line["index"])
            continue
        last = upto
        for kind, key, value, revision in line["events"]:
            if revision <= upto or revision < last:
                found.append(f"{kind} of {key} at {revision} was told after {max(upto, last)}")
            last = max(last, revision)
            if (revision, key) in told:
                found.append(f"{key} at {revision} was told twice")
            told[revision, key] = (kind, value)
            if kind == "put":
                change = changes.get(value)
                if change is None or change["key"] != key or change.get("index", revision) != revision:
                    found.append(f"nobody put {value} to {key} at {revision}: {change}")
            if kind == "expire" and key not in ttl_keys:
                found.append(f"{key} expired at {revision}, and was never put for a time")
        upto = max(upto, line["index"], last)
    return found, told, gaps, begin, upto


def check(lines):
    """What is wrong, and how much was looked at."""
    changes = {line["value"]: line for line in lines if line["op"] == "put"}
    ttl_keys = {line["key"] for line in lines if line.get("ttl_millis")}
    acknowledged = [line for line in lines if line["op"] in ("put", "delete") and "index" in line]
    by_watcher = defaultdict(list)
    for line in lines:
        if "watcher" in line:
            by_watcher[line["watcher"]].append(line)
    found, known, events, said_gaps = [], {}, 0, 0
    for watcher, of_watcher in sorted(by_watcher.items()):
        problems, told, gaps, begin, upto = told_to(of_watcher, changes, ttl_keys)
        events, said_gaps = events + len(told), said_gaps + len(gaps)
        found += [f"watcher {watcher}: {problem}" for problem in problems]
        for change in acknowledged:
            revision = change["index"]
            is_due = begin is not None and begin < revision <= upto and not any(low < revision <= high for low, high in gaps)
            expected = ("put", change["value"]) if change["op"] == "put" else ("delete", "")
            if is_due and told.get((revision, change["key"])) != expected:
                found.append(f"watcher {watcher}: {change['op']} of {change['key']} at {revision} was not told")
        for at, event in told.items():
            if known.setdefault(at, event) != event:
                found.append(f"watcher {watcher}: of {at[1]} at {at[0]} is told {event}, and elsewhere {known[at]}")
    expired = sum(1 for kind, _ in known.values() if kind == "expire")
    return found, f"{events} events to {len(by_watcher)} watchers, {expired} keys expired, {said_gaps} gaps that were said"


if __name__ == "__main__":
    judge(check, "no gap, no phantom, in order")
