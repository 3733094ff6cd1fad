"""Transfers between accounts: a transaction takes from one and gives to another if both are as they were read, and all accounts are read by
one scan.

`transfers.py HISTORY` checks what was written down:

- The total is the same in every look, and no account is overdrawn: nobody sees half a transfer.
- Who sees an account as a transfer left it, sees the other one as it was left then, or later.
- No look is stale: what was acknowledged, or seen by another look, before it began is there.
- No two transfers are made of the same state of an account."""

import time
from collections import defaultdict

from doors import Refused, Stream, Unknown, has_revision, put
from workloads import ATTEMPTS_MAX, Workload, judge

ACCOUNTS = 8
BALANCE = 100
PREFIX = "account/"
PATIENCE_SECONDS = 20


class Transfers(Workload):
    """Planted: whether accounts are as they were read, is not asked."""

    PLANTED_READS = False
    DOORS = ("stream",)

    def begin(self, group):
        """Everybody has the same."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            connection = Stream(group.addresses[group.leader()])
            try:
                return connection.transact([put(f"{PREFIX}{number}", str(BALANCE)) for number in range(ACCOUNTS)])
            except (Refused, Unknown):
                assert time.monotonic() < deadline, "accounts cannot be opened"
            finally:
                connection.close()

    def turn(self, connection, actor):
        if actor.chance.random() < 0.5:
            source, target = actor.chance.sample(range(ACCOUNTS), 2)
            self.transfer(connection, actor, str(source), str(target), 1 + actor.chance.randrange(BALANCE // 4))
        else:
            self.read(actor, None, "look", lambda level: {"accounts": self.accounts(connection, level)})

    def accounts(self, connection, level):
        """Balance and revision of each."""
        return {name: [int(balance), revision] for name, (balance, revision) in connection.rows(PREFIX, level).items()}

    def transfer(self, connection, actor, source, target, amount):
        for _ in range(ATTEMPTS_MAX):
            try:
                accounts = self.accounts(connection, "linearizable")
            except Unknown as error:
                # Nothing was written yet.
                raise Refused from error
            names = (source, target)
            (gives, _), (takes, _) = accounts[source], accounts[target]
            if gives < amount:
                return
            compares = [] if self.is_planted else [has_revision(PREFIX + name, accounts[name][1]) for name in names]
            then = [put(PREFIX + source, str(gives - amount)), put(PREFIX + target, str(takes + amount))]
            line = {"client": actor.number, "of": {name: accounts[name][1] for name in names}, "start_nanos": time.monotonic_ns()}
            try:
                done = connection.transact(then, compares)
            except Unknown:
                self.history.add("transfer", is_write=True, **line)
                raise
            if done.succeeded:
                self.history.add("transfer", is_write=True, end_nanos=time.monotonic_ns(), index=done.index, **line)
                return
        raise Refused


def problems_of_look(look, transfers):
    """What is wrong with a look by itself."""
    accounts = look["accounts"]
    total = sum(balance for balance, _ in accounts.values())
    if total != ACCOUNTS * BALANCE:
        yield f"a look that began at {look['start_nanos']} saw {total} in all, and there are {ACCOUNTS * BALANCE}: {accounts}"
    if any(balance < 0 for balance, _ in accounts.values()):
        yield f"a look that began at {look['start_nanos']} saw an account that is overdrawn: {accounts}"
    for name, (_, revision) in accounts.items():
        for other in transfers.get(revision, {}).get("of", {}):
            if accounts[other][1] < revision:
                yield f"account {name} was seen as of {revision}, and account {other}, which changed then, as of {accounts[other][1]}"


def stale_looks(looks, transfers):
    """Looks that miss what was known when they began."""
    known = [(line["end_nanos"], {name: index for name in line["of"]}) for index, line in transfers.items()]
    known += [(look["end_nanos"], {name: seen[1] for name, seen in look["accounts"].items()}) for look in looks]
    known.sort(key=lambda one: one[0])
    newest, at = defaultdict(int), 0
    for look in sorted(looks, key=lambda look: look["start_nanos"]):
        while at < len(known) and known[at][0] < look["start_nanos"]:
            for name, revision in known[at][1].items():
                newest[name] = max(newest[name], revision)
            at += 1
        for name, (_, revision) in look["accounts"].items():
            if revision < newest[name]:
                yield (f"a look at level {look['level']} that began at {look['start_nanos']} saw account {name} as of {revision}, "
                       f"and {newest[name]} was known before")


def check(lines):
    """What is wrong, and how much was looked at."""
    looks = [line for line in lines if line["op"] == "look"]
    transfers = {line["index"]: line for line in lines if line["op"] == "transfer" and "index" in line}
    found = [problem for look in looks for problem in problems_of_look(look, transfers)]
    found += stale_looks(looks, transfers)
    made_of = defaultdict(list)
    for index, line in transfers.items():
        for of in line["of"].items():
            made_of[of].append(index)
    found += [f"account {name} as of {revision} was given from or to by {len(by)} transfers: {by}"
              for (name, revision), by in made_of.items() if len(by) > 1]
    return found, f"{len(looks)} looks at {ACCOUNTS} accounts, {len(transfers)} transfers"


if __name__ == "__main__":
    judge(check, "the total is the same in all of them, none is stale, and no transfer is lost")
