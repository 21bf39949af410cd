#!/bin/bash
# What databases notice of the service: SQLite, and PostgreSQL with pgbench at a fixed rate and as fast as it can, on an aged volume
# in a loop device, in turn without and with the service.
# Usage: measure-databases.sh [SECONDS [TURNS [FILESYSTEM...]]]. LONGRUN names the program, WORK a directory with 10 GiB free.
set -euo pipefail

seconds=${1:-60} turns=${2:-3} filesystems=("${@:3}")
((${#filesystems[@]})) || filesystems=(ext4 xfs btrfs)
longrun=${LONGRUN:-longrun}
rate=100
((EUID == 0)) || { echo "measure-databases: loop devices and the service need root" >&2; exit 1; }
postgres=$(find /usr/lib/postgresql -maxdepth 2 -name bin | sort -V | tail -1)

work=$(mktemp -d "${WORK:-/var/tmp}/longrun-databases.XXXXXX")
chmod 755 "$work"
device='' service='' server=''
as_postgres() { (cd "$work" && setpriv --reuid postgres --regid postgres --clear-groups "$@"); }
stop_service() {
    [[ -z $service ]] || { kill "$service" 2>/dev/null && wait "$service" || true; }
    service=''
}
stop_server() {
    [[ -z $server ]] || as_postgres "$postgres/pg_ctl" -D "$server" -m fast -s stop || true
    server=''
}
close() {
    stop_service
    stop_server
    ! mountpoint -q "$work/volume" || umount "$work/volume"
    [[ -z $device ]] || losetup --detach "$device"
    device=''
}
trap 'close; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# A service that sees this volume only, with a state of its own.
start_service() {
    "$longrun" daemon --config "$work/longrun.toml" >"$work/service.log" 2>&1 &
    service=$!
    until grep -qs "is ready" "$work/service.log"; do
        kill -0 "$service" || { cat "$work/service.log" >&2; exit 1; }
        sleep 0.1
    done
}

# Each prints transactions a second, and the mean and the 99th percentile of their times in milliseconds.
sqlite() {
    python3 - "$work/volume/sqlite.db" "${1:-$seconds}" <<'PYTHON'
import os, random, sqlite3, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
fresh = not os.path.exists(path)
db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma journal_mode = wal")
db.execute("pragma synchronous = full")
if fresh:
    db.execute("create table t (id integer primary key, v blob)")
    db.execute("begin")
    db.executemany("insert into t values (?, ?)", ((n, os.urandom(400)) for n in range(200_000)))
    db.execute("commit")
times, end, pick = [], time.monotonic() + seconds, random.Random(1)
while time.monotonic() < end:
    start = time.monotonic()
    db.execute("begin immediate")
    for _ in range(5):
        db.execute("update t set v = ? where id = ?", (os.urandom(400), pick.randrange(200_000)))
    db.execute("insert into t (v) values (?)", (os.urandom(400),))
    db.execute("commit")
    times.append((time.monotonic() - start) * 1000)
times.sort()
print("%.0f %.2f %.2f" % (len(times) / seconds, sum(times) / len(times), times[len(times) * 99 // 100]))
PYTHON
}
pgbench() {
    rm -f "$work"/transactions.*
    as_postgres "$postgres/pgbench" -h "$work" -c 4 -T "$seconds" -n --log --log-prefix="$work/transactions" "$@" postgres \
        >"$work/pgbench.log" 2>&1 || { cat "$work/pgbench.log" >&2; exit 1; }
    cat "$work"/transactions.* | awk -v seconds="$seconds" '{ print $3 / 1000 }' | sort -n |
        awk -v seconds="$seconds" '{ time[NR] = $1; sum += $1 }
            END { printf "%.0f %.2f %.2f\n", NR / seconds, sum / NR, time[int(NR * 0.99) + 1] }'
}

printf '%-6s %-22s %4s  %26s  %26s  %s\n' 'on' workload turn 'off: tps, mean, p99 ms' 'on: tps, mean, p99 ms' 'service: core %'
for filesystem in "${filesystems[@]}"; do
    # pgbench without a limit writes more than 10 MB/s, and its log grows with it.
    truncate -s 8G "$work/image"
    options=()
    [[ $filesystem == ext4 ]] && options=(-F)
    "mkfs.$filesystem" -q "${options[@]}" "$work/image" >/dev/null
    device=$(losetup --find --show --direct-io=on "$work/image" 2>/dev/null || losetup --find --show "$work/image")
    mkdir -p "$work/volume"
    mount "$device" "$work/volume"
    "$longrun" fragment --volume "$work/volume" --recipe churn --force >/dev/null 2>&1
    # Room for the databases, all over the volume.
    find "$work/volume" -type f -print0 | awk 'BEGIN { RS = ORS = "\0" } NR % 3 == 0' | xargs -0 rm
    printf '[service]\nsocket = "%s"\nstate_directory = "%s"\n[defaults]\nenabled = false\n[[volume]]\nmount = "%s"\nenabled = true\n' \
        "$work/socket" "$work/state" "$work/volume" >"$work/longrun.toml"
    mkdir -p "$work/state"
    install -d -o postgres -g postgres "$work/volume/postgres"
    chown postgres "$work"
    as_postgres "$postgres/initdb" --auth trust -D "$work/volume/postgres" >/dev/null
    server="$work/volume/postgres"
    as_postgres "$postgres/pg_ctl" -D "$server" -s -w -l "$work/postgres.log" -o "-k $work -c listen_addresses=''" start
    as_postgres "$postgres/pgbench" -h "$work" -i -q -s 20 postgres >"$work/pgbench.log" 2>&1 ||
        { cat "$work/pgbench.log" "$work/postgres.log" >&2; exit 1; }
    sqlite 1 >/dev/null

    for workload in sqlite "pgbench -R $rate" pgbench; do
        for ((turn = 1; turn <= turns; turn++)); do
            for side in $( ((turn % 2)) && echo off on || echo on off); do
                sync
                if [[ $side == off ]]; then
                    off=$($workload)
                    continue
                fi
                start_service
                before=$(awk '{ print $14 + $15 }' "/proc/$service/stat")
                on=$($workload)
                after=$(awk '{ print $14 + $15 }' "/proc/$service/stat")
                "$longrun" status --socket "$work/socket" --json >"$work/status.json"
                stop_service
            done
            share=$(awk -v ticks=$((after - before)) -v seconds="$seconds" 'BEGIN { printf "%.1f", ticks / seconds }')
            printf '%-6s %-22s %4s  %26s  %26s  %s\n' "$filesystem" "$workload" "$turn" "$off" "$on" "$share"
        done
    done
    python3 - "$work/status.json" <<'PYTHON'
import json, sys
status = json.load(open(sys.argv[1]))
mending, volume = status["mending"], status["volumes"][0]
print("       at the end: %d files wait to be mended; prevented %s, mended %s; troubles: %s" % (
    mending["queued"], volume["prevented"], volume["mended"], status["troubles"]))
PYTHON
    close
    rm -f "$work/image"
done
