"""Disks that are slow, fail, and are full, as a member sees them: strace is attached to it from outside, and delays its syncs or has them
and its writes fail; its data lie on a file system of their own in memory, which is made as small as what is on it.

A member whose disk has failed must end by itself: it does not know what is on it any more. It is started again when the disk is sound."""

import contextlib
import itertools
import os
import random
import subprocess
import time

from doors import Refused, Stream, Unknown

SYNCS = "fdatasync,fsync"
SLOW_MICROS = 100_000
# Longer than the fault lasts: whatever is to be synced meanwhile waits for all of it.
HANGS_MICROS = 60_000_000
SLOW_SECONDS = 3
DISK_MIB = 1024
PATIENCE_SECONDS = 20
# Written while a disk is full, until that is noticed: the log has room ahead.
BALLAST_BYTES = 400_000


@contextlib.contextmanager
def mounted(folder):
    """A disk for a member's data."""
    os.makedirs(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=700", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def resize(folder, size):
    return subprocess.run(["mount", "-o", f"remount,size={size}", folder], stderr=subprocess.DEVNULL, check=False).returncode == 0


def fill(folder):
    """Leaves next to no room."""
    for _ in range(100):
        found = os.statvfs(folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        # What is written between the look and the change makes it fail.
        if resize(folder, used + (64 << 10)):
            return
    raise AssertionError(f"{folder} cannot be filled")


def free(folder):
    assert resize(folder, f"{DISK_MIB}m"), f"{folder} cannot be made larger"


class Injection:
    """Does something to system calls of a process until it is closed."""

    def __init__(self, process, calls, what):
        self.process = process
        self.strace = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(process.pid), "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.is_attached() and process.poll() is None:
            if self.strace.poll() is not None:
                raise AssertionError(f"strace cannot be attached: {self.strace.stderr.read().decode()}")
            assert time.monotonic() < deadline, "strace is not attached in time"
            time.sleep(0.01)

    def is_attached(self):
        """To every thread that there is."""
        try:
            threads = os.listdir(f"/proc/{self.process.pid}/task")
            return all(self.tracer(thread) == self.strace.pid for thread in threads)
        except (FileNotFoundError, ProcessLookupError):
            # One that has just ended.
            return False

    def tracer(self, thread):
        with open(f"/proc/{self.process.pid}/task/{thread}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("TracerPid:"))

    def close(self):
        # It lets go of the process, which goes on.
        self.strace.terminate()
        self.strace.wait()
        self.strace.stderr.close()


class Disks:
    """Faults of the disks of a group, whose members' folders were mounted."""

    KINDS = [
        "leader's sync fails", "leader's disk full", "leader's disk hangs", "all syncs fail", "member's write fails", "all disks full",
        "leader's disk slow", "all disks slow",
    ]

    def __init__(self, group, over):
        self.group, self.over, self.chance = group, over, random.Random(7)

    def inject(self, members, calls, what):
        return [Injection(self.group.processes[at], calls, what) for at in members]

    def wait(self, members, calls, what):
        """For a while, it is so."""
        injections = self.inject(members, calls, what)
        self.over.wait(SLOW_SECONDS)
        for injection in injections:
            injection.close()

    def fail(self, members, calls):
        """Calls fail until members have ended. Each thread's first one alone: what the kernel says after that must not be believed."""
        injections = self.inject(members, calls, "error=EIO:when=1")
        self.wait_for_end(members)
        for injection in injections:
            injection.close()
        for at in members:
            self.group.start(at)

    def full(self, members):
        for at in members:
            fill(self.group.folder(at))
        self.wait_for_end(members, self.write_ballast)
        for at in members:
            free(self.group.folder(at))
            self.group.start(at)

    def wait_for_end(self, members, meanwhile=lambda: time.sleep(0.01)):
        """By themselves, and with an error. Where all are struck, nothing is written any more once a majority has ended: the others are
        killed."""
        majority, deadline = len(self.group.processes) // 2 + 1, time.monotonic() + PATIENCE_SECONDS
        while sum(map(self.group.has_ended, members)) < min(len(members), majority):
            assert time.monotonic() < deadline, "a member goes on though its disk has failed"
            meanwhile()
        for at in members:
            if not self.group.has_ended(at):
                self.group.kill(at)
            elif self.group.processes[at].returncode <= 0:
                raise AssertionError(f"member {at + 1} ended with {self.group.processes[at].returncode}: a failed disk is an error")

    def write_ballast(self):
        for address in self.group.addresses:
            connection = Stream(address)
            try:
                return connection.put("ballast", "x" * BALLAST_BYTES)
            except (Refused, Unknown):
                time.sleep(0.01)
            finally:
                connection.close()

    def do(self, fault):
        leader, everybody = self.group.leader(), range(len(self.group.processes))
        members = {"leader's": [leader], "member's": [self.chance.choice(everybody)], "all": list(everybody)}[fault.split()[0]]
        match fault.split(maxsplit=1)[1]:
            case "sync fails" | "syncs fail":
                self.fail(members, SYNCS)
            case "write fails":
                self.fail(members, "pwrite64")
            case "disk full" | "disks full":
                self.full(members)
            case "disk hangs":
                self.wait(members, SYNCS, f"delay_enter={HANGS_MICROS}")
            case "disk slow" | "disks slow":
                self.wait(members, SYNCS, f"delay_enter={SLOW_MICROS}")


def disks(group, over, seconds):
    """By turns; how often each was done."""
    faults, done = Disks(group, over), dict.fromkeys(Disks.KINDS, 0)
    deadline = time.monotonic() + seconds
    for fault in itertools.cycle(done):
        if over.wait(1.5) or time.monotonic() > deadline:
            return done
        faults.do(fault)
        done[fault] += 1
