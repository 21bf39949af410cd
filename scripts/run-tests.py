#!/usr/bin/env python3
"""Runs the Rust tests with cargo-nextest, a process for each test: run-tests.py PROFILE... [-- NEXTEST ARGUMENT...]

The profiles are those of .config/nextest.toml: `default solid-state` is the gate, `campaign` the long forms. A run with `campaign` in
it draws the seeds of random tests and prints them; the gate has fixed ones. Prints the slowest tests. Fails if a test fails, or leaves a mount, a loop device or a process behind.
"""
import os
import secrets
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
RUNNER = f"""target.'cfg(unix)'.runner=["{ROOT}/scripts/test-process.sh"]"""
# Most tests wait for a device: more of them run at a time than there are processors.
THREADS = 2 * (os.cpu_count() or 1)
SEEDS = ["LONGRUN_SEED", "PROPTEST_RNG_SEED"]
# Volumes are in memory where there is room: the tests do not wait for the disk of this machine.
MEMORY, ROOM = Path("/dev/shm"), 8 << 30


def state():
    """The mounts and loop devices of this machine, and the processes of programs that were built here, by name."""
    found = {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {f"loop device {device.parent.name}" for device in Path("/sys/block").glob("loop*/loop")}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "exe").readlink()
        except OSError:
            continue
        if TARGET in program.parents:
            found.add(f"process {process.name} ({program.name})")
    return found


def left_behind(before):
    """What the tests left. The kernel detaches a loop device after its last user has closed it: this waits for it."""
    until = time.monotonic() + 60
    while (left := state() - before) and time.monotonic() < until:
        time.sleep(0.2)
    return sorted(left)


def run(profile, seed, arguments):
    """Runs the tests of a profile; returns whether all passed, and the cases of the report."""
    environment = dict(os.environ)
    environment["LONGRUN_LAB_MEDIUM"] = "solid-state" if profile == "solid-state" else "rotating"
    if MEMORY.is_dir() and os.statvfs(MEMORY).f_bavail * os.statvfs(MEMORY).f_frsize >= ROOM:
        environment.setdefault("LONGRUN_LAB_DIR", str(MEMORY))
    seeds = " ".join(f"{variable}={environment.setdefault(variable, seed)}" for variable in SEEDS)
    print(f"Profile {profile}, {THREADS} tests at a time, {seeds}:", flush=True)
    command = ["cargo", "nextest", "run", "--workspace", "--locked", "--config", RUNNER, "--profile", profile, "--test-threads", str(THREADS)]
    # A selection may match in one profile only.
    command += ["--no-tests", "pass", *arguments] if arguments else []
    begun = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode
    report = TARGET / "nextest" / profile / "junit.xml"
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    print(f"Profile {profile}: {len(cases)} tests in {time.monotonic() - begun:.0f} s", flush=True)
    return status == 0, cases


def main(profiles, arguments):
    before, passed, cases = state(), True, []
    seed = str(secrets.randbits(32)) if "campaign" in profiles else "1"
    for profile in profiles:
        (TARGET / "nextest" / profile / "junit.xml").unlink(missing_ok=True)
        all_passed, found = run(profile, seed, arguments)
        passed, cases = passed and all_passed, cases + found
    cases.sort(key=lambda case: -float(case.get("time")))
    print("The slowest tests:")
    for case in cases[:10]:
        print(f"{float(case.get('time')):7.1f} s  {case.get('classname')} {case.get('name')}")
    left = left_behind(before)
    for what in left:
        print(f"The tests left behind: {what}")
    return 0 if passed and not left else 1


if __name__ == "__main__":
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    if not words[:at]:
        sys.exit(__doc__)
    sys.exit(main(words[:at], words[at + 1 :]))
