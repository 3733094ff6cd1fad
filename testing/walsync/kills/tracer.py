"""Runs a program, counts its system calls over all of its threads, and kills it with SIGKILL in the place of one of them.

    python3 tracer.py PLACE all|effects PROGRAM ARGUMENT...

Prints "program PID", then "killed CALL", or "ended CODE CALLS" where the program made fewer calls. Counted are those by which a
process does something outside of itself: a kill between two of them leaves behind what a kill in the place of the second does.
Not strace's inject=…:when=N, which counts for each thread: calls of one that makes few are never come to behind those of a busy one.
Linux on x86-64.
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
TRACEME, GETREGS, SYSCALL, SETOPTIONS = 0, 12, 24, 0x4200
# System calls marked, threads followed, all killed with the tracer.
OPTIONS = 0x1 | 0x8 | 0x100000
WALL = 0x40000000
ENOSYS = 38
EFFECTS = {
    1: "write", 3: "close", 18: "pwrite64", 20: "writev", 40: "sendfile", 41: "socket", 42: "connect", 44: "sendto", 45: "recvfrom",
    46: "sendmsg", 47: "recvmsg", 48: "shutdown", 49: "bind", 50: "listen", 73: "flock", 74: "fsync", 75: "fdatasync",
    77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 90: "chmod", 91: "fchmod", 231: "exit_group",
    258: "mkdirat", 263: "unlinkat", 264: "renameat", 265: "linkat", 268: "fchmodat", 280: "utimensat", 285: "fallocate",
    288: "accept4", 296: "pwritev", 316: "renameat2", 326: "copy_file_range",
}  # fmt: skip
OPENAT, FCNTL, MMAP = 257, 72, 9
CREATES = os.O_CREAT | os.O_TRUNC
LOCKS = {6, 7, 37, 38}


def effect(number, second, third, fourth):
    """The name of a call that does something outside of the process; None for others."""
    if number == OPENAT and third & CREATES:
        return "openat"
    if number == FCNTL and second in LOCKS:
        return "fcntl"
    if number == MMAP and third & 2 and fourth & 1:
        return "mmap"
    return EFFECTS.get(number)


def registers(thread):
    buffer = ctypes.create_string_buffer(27 * 8)
    if LIBC.ptrace(GETREGS, thread, None, buffer) != 0:
        return None
    return struct.unpack("27q", buffer.raw)


def trace(place, every, program):
    start = lambda: LIBC.ptrace(TRACEME, 0, None, None)
    child = subprocess.Popen(program, preexec_fn=start, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    os.waitpid(child.pid, WALL)
    LIBC.ptrace(SETOPTIONS, child.pid, None, OPTIONS)
    print("program", child.pid, flush=True)
    LIBC.ptrace(SYSCALL, child.pid, None, None)
    count, killed = 0, None
    while True:
        thread, status = os.waitpid(-1, WALL)
        if not os.WIFSTOPPED(status):
            if thread == child.pid:
                return f"killed {killed}" if killed else f"ended {os.waitstatus_to_exitcode(status)} {count}"
            continue
        stop, deliver = os.WSTOPSIG(status), None
        if stop == signal.SIGTRAP | 0x80:
            found = registers(thread)
            # r10 7, rax 10, rdx 12, rsi 13, orig_rax 15; before a call is done, its result is this error.
            if found and found[10] == -ENOSYS and not killed:
                call = effect(found[15], found[13], found[12], found[7])
                if call or every:
                    count += 1
                    if count == place:
                        killed = call or f"call {found[15]}"
                        os.kill(child.pid, signal.SIGKILL)
        elif stop not in (signal.SIGTRAP, signal.SIGSTOP):
            deliver = int(stop)
        LIBC.ptrace(SYSCALL, thread, None, deliver)


if __name__ == "__main__":
    print(trace(int(sys.argv[1]), sys.argv[2] == "all", sys.argv[3:]), flush=True)
