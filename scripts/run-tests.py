#!/usr/bin/env python3
"""Runs the tests of the workspace: run-tests.py rotating|solid-state...

On rotating disks all of them; on disks that do not rotate those of engines, mending and prevention once more, because ext4 and
btrfs allocate otherwise there. Cargo starts one test program after the other. Most of them wait: for modelled disks, for files to be
quiet, for the days of a simulated week. Here several run at a time; what a program prints is shown in one piece when it has ended.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
# Crate and program of what is done on both media.
ON_BOTH_MEDIA = """lab:ext4_mover lab:xfs lab:btrfs lab:mend lab:full lab:pressure lab:reclaim prevention:loop_hints
    prevention:loop_preallocated prevention:loop_runways prevention:sensor service:loop_mending""".split()
# They begin first, longest first, so that no processor is idle at the end.
LONGEST = """lab:ageing lab:torture lab:btrfs lab:fleet lab:ntfs_fixture lab:crash cli:loop_daemon lab:plans lab:hostile lab:reclaim
    lab:full lab:xfs lab:inside service:loop_space lab:pressure lab:mend""".split()
# They measure what a disk, modelled or real, does beside them: what others ask of the machine's disk would count. They run last, one by one.
ALONE = "lab:boot lab:disk cli:loop_pace".split()
# Each program has mounts of its own, which no other sees. A process that takes copies of all mounts with it, as containers do, holds volumes
# that are unmounted: for it there are none of ours. Copies that a program itself makes follow what is unmounted, as on a machine with systemd.
OWN_MOUNTS = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", 'mount --make-rshared / && exec "$0" "$@"']
# What an image takes of the disk below counts there.
ON_DISK = ["lab:reclaim"]
# Volumes on disks that do not rotate are in memory where there is room for them: their tests do not wait for the machine's disk.
MEMORY = Path("/dev/shm")
ROOM = 8 << 30
PROCESSORS = os.cpu_count() or 1
PROGRAMS = 2 * PROCESSORS


def artifacts():
    """What cargo builds: tests as (crate, directory, program), and the other programs by name."""
    told = subprocess.run(CARGO, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    tests, programs = [], {}
    for message in map(json.loads, told.stdout.splitlines()):
        if not message.get("executable"):
            continue
        directory = Path(message["manifest_path"]).parent
        if message["profile"]["test"]:
            tests.append((f"{directory.name}:{message['target']['name']}", directory, message["executable"]))
        else:
            programs[message["target"]["name"]] = message["executable"]
    return tests, programs


def environment(programs):
    """What cargo sets from its configuration, and the programs that tests would build once more without it."""
    result = dict(os.environ)
    for name, value in tomllib.loads((ROOT / ".cargo/config.toml").read_text())["env"].items():
        result[name] = str(ROOT / value["value"]) if isinstance(value, dict) else value
    result.setdefault("RUST_TEST_THREADS", str(PROCESSORS))
    for variable, name in [("LONGRUN_BIN", "longrun"), ("LONGRUN_FLEET_BIN", "longrun-fleet"), ("LONGRUN_LAB_BIN", "longrun-lab")]:
        result.setdefault(variable, programs[name])
    return result


def in_memory():
    """Where volumes lie in memory; nothing without room for them."""
    available = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    room = min(int(available[1]) << 10 if available else 0, shutil.disk_usage(MEMORY).free if MEMORY.is_dir() else 0)
    return {"LONGRUN_LAB_DIR": str(MEMORY)} if room >= ROOM else {}


def why(output):
    """What a test program says of its failures, without backtraces; without failures its last words."""
    text = re.sub(r"^ +(\d+: |at ).*\n|^[Ss]tack backtrace:\n|^note: (Some details|run with).*\n", "", output.decode(errors="replace"), flags=re.MULTILINE)
    _, found, failures = text.partition("\nfailures:\n")
    return failures if found else text[-4_000:]


def in_short(reason):
    """Where its tests failed, and the first words why: a short line for each."""
    return [" ".join(found) for found in re.findall(r"panicked at (\S+:\d+):\d+:\n(.{0,200})", reason)]


def main(media):
    tests, programs = artifacts()
    shared = environment(programs)
    places = {"rotating": {}, "solid-state": in_memory()}
    as_root = [] if os.geteuid() == 0 else ["sudo", "-E"]
    to_do = [(test, medium) for test in tests for medium in media if medium == "rotating" or test[0] in ON_BOTH_MEDIA]
    to_do.sort(key=lambda item: LONGEST.index(item[0][0]) if item[0][0] in LONGEST else len(LONGEST))
    screen, failed = threading.Lock(), []

    def run(item):
        (name, directory, program), medium = item
        # On the second medium only what makes volumes.
        command = [*as_root, *OWN_MOUNTS, program, "--show-output", *(["loop_"] if medium != "rotating" else [])]
        variables = {**shared, **(places[medium] if name not in ON_DISK else {}), "CARGO_MANIFEST_DIR": str(directory), "LONGRUN_LAB_MEDIUM": medium}
        begun = time.monotonic()
        done = subprocess.run(command, cwd=directory, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with screen:
            print(f"\n     Ran {name} on {medium} disks in {time.monotonic() - begun:.0f} s", flush=True)
            sys.stdout.buffer.write(done.stdout)
            sys.stdout.flush()
            if done.returncode != 0:
                failed.append((f"{name} on {medium} disks (status {done.returncode})", why(done.stdout)))

    def run_all(items, at_a_time):
        with ThreadPoolExecutor(at_a_time) as pool:
            try:
                list(pool.map(run, items))
            except KeyboardInterrupt:
                # Those that run have got the signal, too, and clean up.
                pool.shutdown(cancel_futures=True)
                raise

    print(f"{len(to_do)} test programs, {PROGRAMS} of them at a time:", flush=True)
    run_all([item for item in to_do if item[0][0] not in ALONE], PROGRAMS)
    run_all([item for item in to_do if item[0][0] in ALONE], 1)
    # Once more at the end: who looks at a long log, or at what is kept of it, looks there.
    for line, reason in failed:
        print(f"\nFAILED: {line}\n{reason[:16_000]}")
    # And in short: of a long log that is cut, the last lines stay.
    for line, reason in failed:
        print("\n".join([f"FAILED: {line}", *in_short(reason)]))
    return 1 if failed else 0


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - {"rotating", "solid-state"}:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
