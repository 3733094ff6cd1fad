"""kill -9 of walsync in the place of each system call by which it does something outside of itself. See README.md."""

import argparse
import collections
import http.client
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import os

HERE = pathlib.Path(__file__).parent
RETENTION = "{uploads-seconds: 0, merged-seconds: 0, hourly: 1, daily: 1, weekly: 1, monthly: 1, grace-seconds: 0}"
STEPS = [
    "INSERT INTO t(v) VALUES (randomblob(3000))",
    "UPDATE t SET v = randomblob(700) WHERE id % 2 = 1",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "INSERT INTO t(v) VALUES (randomblob(90000))",
    "VACUUM",
    "DELETE FROM t WHERE id = 2",
]
LONG_SECONDS = 60


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Scene:
    """A database that is watched, its replica in a folder, and all states that the database ever had."""

    def __init__(self, walsync):
        self.walsync = walsync
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
        self.database, self.store = self.folder / "app.db", self.folder / "store"
        self.url, self.port = f"file://{self.store}/app.db", free_port()
        self.states, self.durable = [], None
        self.configuration("walsync.yml", "interval-millis: 50\nlevels-millis: [60, 150]\nsnapshot-interval-seconds: 1\n")
        self.application = sqlite3.connect(self.database, isolation_level=None)
        self.application.execute("PRAGMA journal_mode=WAL")
        self.run("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
        self.log = open(self.folder / "log", "ab")

    def configuration(self, name, words):
        text = f"store: file://{self.store}\n{words}retention: {RETENTION}\ndatabases: [{{path: {self.database}}}]\n"
        (self.folder / name).write_text(text)

    def watch(self):
        return [self.walsync, "watch", "--config", f"{self.folder}/walsync.yml", f"--listen=http://127.0.0.1:{self.port}"]

    def content(self):
        """What the database holds. Copied by another process: one that closes a file of SQLite's gives its locks back."""
        copy = self.folder / "copy.db"
        for path in self.folder.glob("copy.db*"):
            path.unlink()
        subprocess.run(["cp", self.database, copy], check=True)
        if pathlib.Path(f"{self.database}-wal").exists():
            subprocess.run(["cp", f"{self.database}-wal", f"{copy}-wal"], check=True)
        connection = sqlite3.connect(copy)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        return copy.read_bytes()

    def run(self, sql):
        self.application.execute(sql).fetchall()
        state = self.content()
        if not self.states or self.states[-1] != state:
            self.states.append(state)

    def answers(self):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def sync(self):
        """Asks for everything to be durable; whether the answer, all of it, was that it is."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_SECONDS)
            connection.request("GET", f"/sync?database={self.database}")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return False
        assert answer.status == 200, body
        self.durable = len(self.states) - 1
        return True

    def restored(self, *words):
        """The state that a restore gives, and what it said."""
        output = self.folder / "restored.db"
        output.unlink(missing_ok=True)
        done = subprocess.run([self.walsync, "restore", self.url, "-o", output, *words], capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr
        states = [at for at, state in enumerate(self.states) if state == output.read_bytes()]
        assert states, f"restore {words} is no state that there was"
        return states[-1], ""

    def judge(self, when):
        """Every point of the replica is a state of the database, and the newest not older than what was called durable."""
        state, said = self.restored()
        if state is None:
            assert "there is no replica here" in said and self.durable is None, f"{when}: {said}"
            return
        assert self.durable is None or state >= self.durable, f"{when}: {self.durable} is durable, {state} is restored"
        listed = subprocess.run([self.walsync, "list", self.url], capture_output=True, text=True, check=True).stdout
        points = {line.split("\t")[2] for line in listed.splitlines() if line[:1].isdigit()}
        for point in points:
            state, said = self.restored("--txid", point)
            # A point whose files are merged, or whose first one is gone, is none; the error names the nearest.
            assert state is not None or "nearest points" in said, f"{when}, TXID {point}: {said}"

    def close(self):
        self.application.close()
        self.log.close()
        shutil.rmtree(self.folder)


class Traced:
    def __init__(self, program, place, calls, log):
        words = [sys.executable, HERE / "tracer.py", str(place), calls, *program]
        self.tracer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        self.program = int(self.tracer.stdout.readline().split()[1])

    def is_over(self):
        return self.tracer.poll() is not None

    def terminate(self):
        try:
            os.kill(self.program, signal.SIGTERM)
        except ProcessLookupError:
            pass

    def end(self):
        """("killed", CALL) or ("ended", CODE, CALLS)"""
        said = self.tracer.stdout.readline().split()
        self.tracer.wait()
        assert said, "the tracer has died"
        return said


def wait_until(holds):
    end = time.monotonic() + LONG_SECONDS
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def watch(walsync):
    def scene(place, calls):
        scene = Scene(walsync)
        traced = Traced(scene.watch(), place, calls, scene.log)
        wait_until(lambda: scene.answers() or traced.is_over())
        for step in STEPS:
            scene.run(step)
            if not scene.sync():
                break
        # Time for what is done behind the newest file.
        time.sleep(0.15)
        traced.terminate()
        end = traced.end()
        when = f"place {place}, {' '.join(end)}"
        if end[:2] == ["ended", "0"]:
            scene.durable = len(scene.states) - 1
        scene.judge(when)
        # What nobody saw: commits, and every other time a check point that copies and drops them.
        scene.run("INSERT INTO t(v) VALUES (randomblob(2000))")
        if place % 2 == 0:
            scene.run("PRAGMA wal_checkpoint(TRUNCATE)")
            scene.run("INSERT INTO t(v) VALUES (randomblob(50))")
        following = subprocess.Popen(scene.watch(), stderr=scene.log)
        try:
            wait_until(scene.answers)
            scene.run("UPDATE t SET v = randomblob(30) WHERE id = 1")
            assert scene.sync(), f"{when}: the next one does not answer"
            following.terminate()
            assert following.wait(LONG_SECONDS) == 0, f"{when}: the next one failed"
        finally:
            following.kill()
        scene.judge(f"{when}, in the end")
        assert scene.application.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        scene.close()
        return end

    return scene


def snapshots(walsync):
    """A replica of several snapshots, of which retention wants the newest alone."""
    scene = Scene(walsync)
    scene.configuration("compact.yml", "levels-millis: []\n")
    for step in STEPS:
        scene.run(step)
        words = [walsync, "snapshot", "--config", f"{scene.folder}/compact.yml"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=scene.log)
    scene.durable = len(scene.states) - 1
    return scene


def restore(walsync):
    source = snapshots(walsync)
    expected = source.content()

    def scene(place, calls):
        into = pathlib.Path(tempfile.mkdtemp(prefix="kills-"))
        output = into / "out.db"
        program = [walsync, "restore", source.url, "-o", str(output)]
        end = Traced(program, place, calls, source.log).end()
        if output.exists():
            assert output.read_bytes() == expected, f"place {place}: half of a database"
            output.unlink()
        else:
            assert end[0] == "killed", f"place {place}: {end}"
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=source.log)
        assert output.read_bytes() == expected, f"place {place}: the second time"
        assert [path.name for path in into.iterdir()] == ["out.db"], f"place {place}: something is left behind"
        shutil.rmtree(into)
        return end

    return scene


def compact(walsync):
    source = snapshots(walsync)
    whole = source.folder / "whole"
    source.store.rename(whole)

    def scene(place, calls):
        shutil.rmtree(source.store, ignore_errors=True)
        shutil.copytree(whole, source.store)
        program = [walsync, "compact", source.url, "--force", "--watched-by", f"{source.folder}/compact.yml"]
        end = Traced(program, place, calls, source.log).end()
        source.judge(f"place {place}, {' '.join(end)}")
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=source.log)
        source.judge(f"place {place}, the second time")
        return end

    return scene


SCENES = {"watch": watch, "restore": restore, "compact": compact}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walsync", help="the program")
    parser.add_argument("--kills", type=int, default=0, help="at most, spread over the run; 0: at each call, until a run is not hit")
    parser.add_argument("--calls", choices=["effects", "all"], default="effects", help="which calls count")
    parser.add_argument("--scene", choices=SCENES, action="append", help="which; all by default")
    parser.add_argument("--seconds", type=float, default=3600, help="for each scene; what it did not come to is told")
    arguments = parser.parse_args()
    for name in arguments.scene or SCENES:
        scene = SCENES[name](os.path.abspath(arguments.walsync))
        began = time.monotonic()
        end = scene(1 << 40, arguments.calls)
        assert end[:2] == ["ended", "0"], f"{name} fails by itself: {end}"
        count = int(end[2])
        stride = max(1, -(-count // arguments.kills)) if arguments.kills else 1
        tally, place = collections.Counter(), (stride + 1) // 2
        while True:
            end = scene(place, arguments.calls)
            if end[0] == "ended":
                assert end[1] == "0", f"{name}, place {place}: {end}"
                rest = "then a run was not hit"
                break
            tally[end[1]] += 1
            place += stride
            if time.monotonic() - began > arguments.seconds:
                rest = f"stopped by --seconds at place {place} of about {count}"
                break
        kinds = ", ".join(f"{call} {number}" for call, number in sorted(tally.items()))
        print(f"{name}: {sum(tally.values())} kills, {rest}: {kinds}", flush=True)
        assert tally, f"{name}: nothing was killed"


main()
