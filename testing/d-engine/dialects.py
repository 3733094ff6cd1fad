"""Does everything that both dialects of the original have, against three members: dialects.py PROGRAM."""

import sys
import tempfile
import threading

import grpc

from group import Group, call
from wire import every, fields, first, message

OLD = "/raft.client.RaftClientService/"
OLD_CLUSTER = "/raft.cluster.ClusterManagementService/"
NEW = "/d_engine.client.RaftClientService/"
NEW_CLUSTER = "/d_engine.server.cluster.ClusterManagementService/"
LEASE, LINEARIZABLE, EVENTUAL = 0, 1, 2
NOT_LEADER = 4001


def insert(key, value, ttl_seconds=None):
    return message((1, message((1, key), (2, value), (3, ttl_seconds))))


def delete(key):
    return message((2, message((1, key))))


def swap(key, expected, new):
    return message((3, message((1, key), (2, expected), (3, new))))


def old_write(channel, *commands):
    answer = call(channel, OLD + "HandleClientWrite", message((1, 1), *((2, command) for command in commands)))
    return first(answer, 1, 0), first(answer, 2, 0), first(answer, 4, b"")


def new_write(channel, command):
    answer = call(channel, NEW + "HandleClientWrite", message((1, 1), (2, command)))
    assert first(answer, 1, 0) == 0, fields(answer)
    return bool(first(first(answer, 2, b""), 1, 0))


def read(channel, service, policy, *keys):
    """Keys and values that were found."""
    answer = call(channel, service + "HandleClientRead", message((1, 1), *((2, key) for key in keys), (3, policy)))
    assert first(answer, 1, 0) == 0, fields(answer)
    return [(first(one, 1), first(one, 2, b"")) for one in every(first(answer, 3, b""), 1)]


def check(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def old_dialect(leader, follower):
    check("a write", old_write(leader, insert("a", "1"), insert("b", "2"))[:2], (0, 1))
    for policy in (LEASE, LINEARIZABLE, EVENTUAL, None):
        check(f"a read by {policy}", read(leader, OLD, policy, "a", "none", "b"), [(b"a", b"1"), (b"b", b"2")])
    check("a strong read of a follower", read(follower, OLD, LINEARIZABLE, "a"), [(b"a", b"1")])
    check("several commands", old_write(leader, delete("a"), insert("c", ""))[:2], (0, 1))
    check("what they did", read(leader, OLD, LINEARIZABLE, "a", "b", "c"), [(b"b", b"2"), (b"c", b"")])
    error, _, metadata = old_write(follower, insert("a", "1"))
    check("a write at a follower", error, NOT_LEADER)
    named = first(metadata, 3, b"").decode()
    for service in (OLD_CLUSTER, NEW_CLUSTER):
        found = call(leader, service + "DiscoverLeader", message((1, 1), (2, "python")))
        check("who leads", first(found, 2).decode(), named)
    members = every(call(leader, OLD_CLUSTER + "GetClusterMetadata", b""), 2)
    check("members", sorted(first(member, 1) for member in members), [1, 2, 3])
    check("the leader's role", sorted(first(member, 3, 0) for member in members), [0, 0, 2])


def new_dialect(leader, follower):
    assert new_write(leader, insert("n", "1"))
    for policy in (LEASE, LINEARIZABLE, EVENTUAL, None):
        check(f"a read by {policy}", read(leader, NEW, policy, "n"), [(b"n", b"1")])
    check("a swap", new_write(leader, swap("n", "1", "2")), True)
    check("a swap of another value", new_write(leader, swap("n", "1", "3")), False)
    check("a swap of none", new_write(leader, swap("n", None, "3")), False)
    check("a swap of what is not there", new_write(leader, swap("m", None, "1")), True)
    check("an empty value is not none", (new_write(leader, insert("e", "")), new_write(leader, swap("e", None, "1"))), (True, False))
    check("and can be expected", new_write(leader, swap("e", "", "1")), True)
    assert new_write(leader, delete("e"))
    for at in ("p/1", "p/2", "q"):
        assert new_write(leader, insert(at, at))
    for member in (leader, follower):
        found = call(member, NEW + "HandleClientScan", message((1, 1), (2, "p/")))
        check("a scan", [first(one, 1) for one in every(found, 1)], [b"p/1", b"p/2"])
        assert first(found, 2) > 0
    members = call(follower, NEW_CLUSTER + "GetClusterMetadata", b"")
    check("members", sorted(first(member, 1) for member in every(members, 2)), [1, 2, 3])
    check("roles", sorted(first(member, 3, 0) for member in every(members, 2)), [1, 1, 3])
    assert first(members, 3) in (1, 2, 3)
    try:
        new_write(follower, insert("n", "9"))
        raise AssertionError("a follower has taken a write")
    except grpc.RpcError as error:
        check("the status", error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        headers = {key: value for key, value in (error.initial_metadata() or ()) + (error.trailing_metadata() or ())}
        assert "leader_id" in headers.get("x-raft-leader", ""), headers
    watches(leader, follower)


def watches(leader, follower):
    """Puts, a deletion and an expiry, in order, with what was before; and who the members are."""
    stream = follower.unary_stream(NEW + "Watch")(message((1, 1), (2, "/w/"), (3, 1), (4, 1)), timeout=30)
    stream.initial_metadata()
    events = []
    done = threading.Event()

    def follow():
        for event in stream:
            if first(event, 3, 0) != 3:
                events.append((first(event, 1, b""), first(event, 2, b""), first(event, 3, 0), first(event, 6, b"")))
            if len(events) == 4:
                done.set()
                return

    threading.Thread(target=follow, daemon=True).start()
    assert new_write(leader, insert("/w/1", "1"))
    assert new_write(leader, insert("/other", "1"))
    assert new_write(leader, insert("/w/1", "2", 1))
    assert new_write(leader, insert("/w/2", "3"))
    assert done.wait(30), events
    expected = [
        (b"/w/1", b"1", 0, b""),
        (b"/w/1", b"2", 0, b"1"),
        (b"/w/2", b"3", 0, b""),
        (b"/w/1", b"", 1, b"2"),
    ]
    check("events", events, expected)
    stream.cancel()
    bad = follower.unary_stream(NEW + "Watch")(message((1, 1), (2, "w"), (3, 1)), timeout=5)
    try:
        next(bad)
        raise AssertionError("a prefix without slashes was watched")
    except grpc.RpcError as error:
        check("a bad prefix", error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    told = next(follower.unary_stream(NEW + "WatchMembership")(message((1, 1)), timeout=5))
    # Packed, as proto3 has numbers in lists.
    check("members", sorted(first(told, 1)), [1, 2, 3])


def main():
    with tempfile.TemporaryDirectory() as directory, Group(sys.argv[1], directory) as group:
        leads = group.leader()
        with grpc.insecure_channel(group.addresses[leads]) as leader:
            with grpc.insecure_channel(group.addresses[(leads + 1) % 3]) as follower:
                old_dialect(leader, follower)
                new_dialect(leader, follower)
    print("both dialects, by their tables alone: as they are written down")


if __name__ == "__main__":
    main()
