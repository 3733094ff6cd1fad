"""Clients do what a workload has them do while members are killed, all killed, and stopped, or cut off from each other, or their disks are
slow, fail or are full; what they saw is written down: faults.py PROGRAM HISTORY SECONDS WORKLOAD stream|dialect kills|cuts|disks [planted].

Who checks it: testing/linearizability for registers, lists and sets, and each of the others for its own. `disks` mounts, and is to be run in
a mount namespace of its own."""

import contextlib
import itertools
import random
import sys
import tempfile
import threading
import time

import disks
from doors import Dialect, Refused, Stream, Unknown
from group import Group
from locks import Locks
from sums import Sums
from transfers import Transfers
from watches import Watches
from workloads import History, Lists, Registers, Sets

CLIENTS = 8
RECOVERY_SECONDS_MAX = 20
DOORS = {"stream": Stream, "dialect": Dialect}
WORKLOADS = {"registers": Registers, "lists": Lists, "sets": Sets, "locks": Locks, "watches": Watches, "transfers": Transfers, "sums": Sums}
# Written by those who are told something, not by who asks.
TOLD = {"told", "begin", "gap"}


class Actor:
    """One client: after a write of unknown outcome it has another number."""

    def __init__(self, number):
        self.number, self.chance, self.values, self.lease = number, random.Random(number), itertools.count(), None


def client(number, workload, door, addresses, over, problems):
    actor, at, connection = Actor(number), number, None
    try:
        while not over.is_set():
            if connection is None:
                connection = door(addresses[at % len(addresses)])
            try:
                workload.turn(connection, actor)
            except (Refused, Unknown):
                connection.close()
                connection, at = None, at + 1
                time.sleep(0.02)
    except Exception as error:  # a client that ends early would be a history that proves nothing
        problems.append(error)
        over.set()


def wait_for_write_after(history, moment):
    """Seconds until a write was acknowledged that began after this moment."""
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while history.newest_write < moment:
        assert time.monotonic() < deadline, f"no write was acknowledged within {RECOVERY_SECONDS_MAX} s after the last fault"
        time.sleep(0.01)
    return (time.monotonic_ns() - moment) / 1e9


def kills(group, over, seconds):
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


def cuts(group, over, seconds):
    """By turns links are cut, and whole again: the leader's, both ways; only to the others; only from them; between it and one other; all of
    a follower's. Clients reach every member all the time, so that who is cut off is asked, too."""
    chance = random.Random(7)
    done = {"leader cut off": 0, "leader unheard": 0, "leader deaf": 0, "leader cut from one": 0, "follower cut off": 0}
    deadline = time.monotonic() + seconds
    for fault in itertools.cycle(done):
        if over.wait(1.5) or time.monotonic() > deadline:
            return done
        leader = group.leader()
        first_other, second_other = chance.sample([at for at in range(3) if at != leader], 2)
        outward = [(leader, first_other), (leader, second_other)]
        inward = [(target, source) for source, target in outward]
        group.links.cut({
            "leader cut off": outward + inward,
            "leader unheard": outward,
            "leader deaf": inward,
            "leader cut from one": [outward[0], inward[0]],
            "follower cut off": [(first_other, leader), (leader, first_other), (first_other, second_other), (second_other, first_other)],
        }[fault])
        # Longer than the others need to elect, and than clients wait.
        over.wait(3)
        group.links.heal()
        done[fault] += 1


def run(group, workload, door, faults, seconds, history):
    """Has clients work under faults; how often each fault was done, and seconds until a write was acknowledged after the last."""
    over, problems = threading.Event(), []
    group.leader()
    workload.begin(group)
    arguments = (workload, door, group.addresses, over, problems)
    clients = [threading.Thread(target=client, args=(number, *arguments)) for number in range(CLIENTS)]
    for one in clients:
        one.start()
    try:
        done = faults(group, over, seconds)
        recovered = wait_for_write_after(history, time.monotonic_ns())
        time.sleep(2)
    finally:
        over.set()
        for one in clients:
            one.join()
        assert not problems, problems
    workload.finish(group)
    return done, recovered


def main():
    program, path, seconds, name, door, faults_name, *planted = sys.argv[1:]
    faults = {"kills": kills, "cuts": cuts, "disks": disks.disks}[faults_name]
    history = History(path)
    workload = WORKLOADS[name](history, is_planted=planted == ["planted"])
    assert door in workload.DOORS, f"{name} are not spoken of in {door}"
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        flags = {}
        if faults_name == "disks":
            for number in range(1, 4):
                stack.enter_context(disks.mounted(f"{directory}/{number}"))
            # One of them has its state on disk, too.
            flags = {2: ["--storage", "disk"]}
        group = stack.enter_context(Group(program, directory, flags=flags))
        done, recovered = run(group, workload, DOORS[door], faults, float(seconds), history)
    history.file.close()
    counts = history.counts
    asked = sum(times for what, times in counts.items() if what not in TOLD)
    assert asked > workload.OPERATIONS_MIN, f"too little to prove anything: {counts}"
    print(f"{name}, {door}, {faults_name}: " + ", ".join(f"{times} {what}" for what, times in sorted(counts.items())) + "; "
          + ", ".join(f"{fault} {times}" for fault, times in done.items())
          + f"; a write {recovered:.2f} s after the last of them")


if __name__ == "__main__":
    main()
