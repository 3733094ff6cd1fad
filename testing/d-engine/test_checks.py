"""The checks of locks and watches find what is wrong: histories written by hand, each with one error."""

import unittest

import locks
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


if __name__ == "__main__":
    unittest.main()
