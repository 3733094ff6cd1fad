"""The checks of locks, watches, transfers and sums find what is wrong: histories written by hand, each with one error."""

import unittest

import locks
import sums
import transfers
import watches


def take(token, start, at_millis, **more):
    return {"op": "take", "lock": "l", "client": 1, "token": token, "start_nanos": start, "end_nanos": start + 5,
            "at_millis": at_millis, "ends_millis": at_millis + 100, **more}


def act(what, token, index=None):
    return {"op": what, "lock": "l", "client": 1, "token": token, "start_nanos": 0} | ({"index": index} if index else {})


class Locks(unittest.TestCase):
    def check(self, expected, *lines):
        found, _ = locks.check(list(lines))
        self.assertEqual([expected] if expected else [], [problem.split(": ", 1)[1] for problem in found])

    def test_one_after_the_other(self):
        self.check(None, take(3, 10, 0), act("write", 3, 4), act("release", 3, 5), take(7, 20, 10), take(9, 30, 110))

    def test_whether_it_was_let_go_of_is_not_known(self):
        self.check(None, take(3, 10, 0), act("release", 3), take(7, 20, 10))

    def test_a_token_that_falls(self):
        self.check("token 3 was given after token 7", take(7, 10, 100), take(3, 20, 0))

    def test_a_token_that_is_given_twice(self):
        found, _ = locks.check([take(3, 10, 0), act("release", 3), take(3, 11, 10)])
        self.assertEqual(found, ["l: token 3 was given twice"])

    def test_two_at_once_by_the_log(self):
        self.check("holder 3 did something at 9, after holder 7 had come", take(3, 10, 0), take(7, 20, 110), act("write", 3, 9))

    def test_two_at_once_by_the_clock(self):
        self.check("holder 7 came 1 ms before the lease of holder 3 had ended", take(3, 10, 0), take(7, 20, 99))

    def test_locks_are_apart(self):
        self.check(None, take(3, 10, 0), take(7, 20, 10) | {"lock": "m"})


PUT = {"op": "put", "client": 1, "key": "k", "value": "a", "start_nanos": 0, "end_nanos": 1, "index": 5}
BEGIN = {"op": "begin", "watcher": 0, "index": 1}


def told(*events, index, watcher=0):
    return {"op": "told", "watcher": watcher, "events": [list(event) for event in events], "index": index}


class Watches(unittest.TestCase):
    A = ("put", "k", "a", 5)

    def check(self, expected, *lines):
        found, _ = watches.check([PUT, BEGIN, *lines])
        self.assertEqual([expected] if expected else [], [problem.split(": ", 1)[1] for problem in found])

    def test_what_was_done_is_told(self):
        self.check(None, told(self.A, index=5))

    def test_what_is_not_due_is_not_missed(self):
        self.check(None, told(index=4))

    def test_a_gap(self):
        self.check("put of k at 5 was not told", told(index=6))

    def test_a_gap_that_is_said(self):
        self.check(None, {"op": "gap", "watcher": 0, "index": 5}, told(index=6))

    def test_a_phantom(self):
        self.check("nobody put b to k at 6: None", told(self.A, ("put", "k", "b", 6), index=6))

    def test_another_place_than_where_it_was_done(self):
        found, _ = watches.check([PUT, BEGIN, told(("put", "k", "a", 4), index=4)])
        self.assertIn("nobody put a to k at 4", found[0])

    def test_out_of_order(self):
        delete = {"op": "delete", "client": 1, "key": "k", "start_nanos": 0, "end_nanos": 1, "index": 6}
        self.check("put of k at 5 was told after 6", delete, told(("delete", "k", "", 6), self.A, index=6))

    def test_what_was_told_already(self):
        found, _ = watches.check([PUT, BEGIN, told(self.A, index=5), told(self.A, index=6)])
        self.assertEqual(len(found), 2)

    def test_what_never_was_to_end(self):
        self.check("k expired at 6, and was never put for a time", told(self.A, ("expire", "k", "", 6), index=6))

    def test_watchers_that_are_told_different_things(self):
        timed = PUT | {"ttl_millis": 1, "value": "t", "index": 7}
        other = {"op": "begin", "watcher": 1, "index": 5}
        lines = [timed, told(self.A, ("expire", "k", "", 6), ("put", "k", "t", 7), index=7)]
        lines += [other, told(("put", "k", "t", 7), index=7, watcher=1)]
        self.check(None, *lines)
        lines[-1] = told(("delete", "k", "", 6), ("put", "k", "t", 7), index=7, watcher=1)
        self.check("of k at 6 is told ('delete', ''), and elsewhere ('expire', '')", *lines)


def accounts(**seen):
    """As a look sees them: those that are not given as they were opened, at revision 1."""
    return {str(number): [100, 1] for number in range(8)} | {name[1:]: list(one) for name, one in seen.items()}


def look(start, level="lease", **seen):
    return {"op": "look", "client": 2, "level": level, "start_nanos": start, "end_nanos": start + 5, "accounts": accounts(**seen)}


def transfer(index, start, **of):
    return {"op": "transfer", "client": 1, "index": index, "start_nanos": start, "end_nanos": start + 5,
            "of": {name[1:]: revision for name, revision in of.items()}}


class Transfers(unittest.TestCase):
    DONE = transfer(5, 10, a0=1, a1=1)
    AFTER = {"a0": (90, 5), "a1": (110, 5)}

    def check(self, expected, *lines):
        found, _ = transfers.check(list(lines))
        self.assertEqual(len(found), 1 if expected else 0, found)
        if expected:
            self.assertIn(expected, found[0])

    def test_a_transfer_is_seen_whole(self):
        self.check(None, look(0), self.DONE, look(20, **self.AFTER))

    def test_whether_it_was_made_is_not_known(self):
        unknown = {name: value for name, value in self.DONE.items() if name not in ("end_nanos", "index")}
        self.check(None, unknown, look(20), look(30, **self.AFTER))

    def test_money_that_comes_from_nowhere(self):
        self.check("saw 810 in all", self.DONE, look(20, a0=(100, 5), a1=(110, 5)))

    def test_an_account_that_is_overdrawn(self):
        self.check("overdrawn", look(20, a2=(-10, 3), a3=(210, 3)))

    def test_half_a_transfer(self):
        found, _ = transfers.check([self.DONE, look(12, a0=(90, 5), a2=(110, 3))])
        self.assertIn("account 0 was seen as of 5, and account 1, which changed then, as of 1", found[0])

    def test_a_stale_look(self):
        found, _ = transfers.check([self.DONE, look(20)])
        self.assertIn("level lease that began at 20 saw account 0 as of 1, and 5 was known before", found[0])

    def test_a_look_that_goes_back(self):
        found, _ = transfers.check([look(0, **self.AFTER), look(6)])
        self.assertEqual(len(found), 2)

    def test_two_transfers_of_the_same_state(self):
        self.check("account 1 as of 1 was given from or to by 2 transfers: [5, 6]", self.DONE, transfer(6, 12, a1=1, a2=1))


def added(number, start):
    return {"op": "add", "client": 1, "key": "k", "sum": number, "start_nanos": start, "end_nanos": start + 5}


class Sums(unittest.TestCase):
    def check(self, expected, *lines, last):
        found, _ = sums.check([*lines, {"op": "last", "client": 0, "key": "k", "sum": last, "start_nanos": 100, "end_nanos": 101}])
        self.assertEqual(len(found), 1 if expected else 0, found)
        if expected:
            self.assertIn(expected, found[0])

    def test_each_once(self):
        self.check(None, added(1, 0), added(2, 10), added(3, 12), last=3)

    def test_an_addition_that_is_done_twice(self):
        self.check("sums [2] were told to nobody", added(1, 0), added(3, 10), last=3)

    def test_the_last_addition_is_done_twice(self):
        self.check("sums [3] were told to nobody", added(1, 0), added(2, 10), last=3)

    def test_an_addition_that_is_lost(self):
        self.check("sums [1] were told twice", added(1, 0), added(1, 2), last=1)

    def test_an_addition_that_is_lost_at_last(self):
        self.check("add of 2 ended at 15, before last of 1 began at 100", added(1, 0), added(2, 10), last=1)

    def test_out_of_order(self):
        self.check("add of 2 ended at 5, before add of 1 began at 20", added(2, 0), added(1, 20), last=2)

    def test_a_stale_look(self):
        stale = added(1, 20) | {"op": "look", "level": "lease"}
        self.check("add of 2 ended at 15, before look of 1 began at 20", added(1, 0), added(2, 10), stale, last=2)


if __name__ == "__main__":
    unittest.main()
