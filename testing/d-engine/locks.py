"""Locks with fencing tokens: who takes a lock has a token, the revision at which it did; who writes under it says its token. Some let go of
it, others go away without a word, and the store ends their lease.

`locks.py HISTORY` checks what was written down:

- No token is given twice, and who asks after another one has got the lock gets a larger one.
- No two hold a lock at once by the log: nobody takes it between another one's taking it and the last thing that one did under it.
- Nor by the store's clock: who follows a holder that went away without a word does so after its lease has ended.
"""

import time
from collections import defaultdict

from doors import Refused, Unknown, attach, delete, grant, has_revision, is_missing, keep_alive, put
from workloads import Workload, judge

LOCKS = 2
TTL_MILLIS = 1500
PAUSE_SECONDS = 0.02


class Locks(Workload):
    """Planted: a lock is taken also from its holder, and written under without a look at the token."""

    DOORS = ("stream",)
    # Two locks of which two holders in five go away without a word, and whose leases must end, see some ten turns a second at most.
    OPERATIONS_MIN = 30

    def turn(self, connection, actor):
        if actor.lease is None:
            granted = connection.transact([grant(TTL_MILLIS)])
            actor.lease = granted.lease(0)[0]
        lock = f"lock/{actor.chance.randrange(LOCKS)}"
        try:
            token = self.take(connection, actor, lock)
        except (Refused, Unknown):
            actor.lease = None
            raise
        if token is None:
            time.sleep(PAUSE_SECONDS)
            return
        for _ in range(1 + actor.chance.randrange(4)):
            time.sleep(PAUSE_SECONDS)
            if not self.act(connection, actor, lock, token, "write", put(f"guarded/{lock}", str(token))):
                return
        if actor.chance.random() < 0.6:
            self.act(connection, actor, lock, token, "release", delete(lock))
        else:
            # Its lease is left behind.
            actor.lease = None

    def take(self, connection, actor, lock):
        """The token; None if another has it."""
        line = {"client": actor.number, "lock": lock, "start_nanos": time.monotonic_ns()}
        compares = [] if self.is_planted else [is_missing(lock)]
        then = [put(lock, str(actor.number)), attach(lock, actor.lease), keep_alive(actor.lease)]
        try:
            taken = connection.transact(then, compares)
        except Unknown:
            self.history.add("take", is_write=True, **line)
            raise
        if not taken.succeeded:
            return None
        ends_millis = taken.lease(2)[1]
        # The time of the entry: from then on the lease lasts as long as it was granted for.
        line |= {"token": taken.index, "at_millis": ends_millis - TTL_MILLIS, "ends_millis": ends_millis}
        self.history.add("take", is_write=True, end_nanos=time.monotonic_ns(), **line)
        return taken.index

    def act(self, connection, actor, lock, token, what, operation):
        """Does something that only the holder may do; whether it was."""
        line = {"client": actor.number, "lock": lock, "token": token, "start_nanos": time.monotonic_ns()}
        compares = [] if self.is_planted else [has_revision(lock, token)]
        try:
            done = connection.transact([operation], compares)
        except Unknown:
            self.history.add(what, is_write=True, **line)
            raise
        if done.succeeded:
            self.history.add(what, is_write=True, end_nanos=time.monotonic_ns(), index=done.index, **line)
        return done.succeeded


def problems_of(lines):
    """What is wrong with the history of one lock."""
    takes = sorted((line for line in lines if "at_millis" in line), key=lambda line: line["token"])
    found = []
    for one, next_one in zip(takes, takes[1:]):
        if one["token"] == next_one["token"]:
            found.append(f"token {one['token']} was given twice")
    by_end, newest = sorted(takes, key=lambda line: line["end_nanos"]), 0
    for take in sorted(takes, key=lambda line: line["start_nanos"]):
        while by_end and by_end[0]["end_nanos"] < take["start_nanos"]:
            newest = max(newest, by_end.pop(0)["token"])
        if take["token"] <= newest:
            found.append(f"token {take['token']} was given after token {newest}")
    last_act, let_go = defaultdict(int), set()
    for line in lines:
        if line["op"] in ("write", "release"):
            last_act[line["token"]] = max(last_act[line["token"]], line.get("index", 0))
        if line["op"] == "release":
            let_go.add(line["token"])
    for one, next_one in zip(takes, takes[1:]):
        if last_act[one["token"]] > next_one["token"]:
            found.append(f"holder {one['token']} did something at {last_act[one['token']]}, after holder {next_one['token']} had come")
        early = one["ends_millis"] - next_one["at_millis"]
        if one["token"] not in let_go and early > 0:
            found.append(f"holder {next_one['token']} came {early} ms before the lease of holder {one['token']} had ended")
    return found


def check(lines):
    """What is wrong, and how much was looked at."""
    by_lock = defaultdict(list)
    for line in lines:
        by_lock[line["lock"]].append(line)
    found = [f"{lock}: {problem}" for lock, of_lock in sorted(by_lock.items()) for problem in problems_of(of_lock)]
    takes = [line for line in lines if "at_millis" in line]
    released = {line["token"] for line in lines if line["op"] == "release"}
    left = sum(1 for line in takes if line["token"] not in released)
    return found, f"{len(takes)} holders of {len(by_lock)} locks, {left} of whom went away without a word"


if __name__ == "__main__":
    judge(check, "one at a time, and tokens rise")
