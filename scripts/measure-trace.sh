#!/bin/bash
# What `longrun trace` costs: fio on a loop device whose image is in memory, in turn without and with the trace.
# Usage: measure-trace.sh [ITERATIONS [SECONDS [IOPS]]]; IOPS 0 is as many as there can be. LONGRUN names the program.
set -euo pipefail

iterations=${1:-5} seconds=${2:-10} iops=${3:-20000}
longrun=${LONGRUN:-longrun}
((EUID == 0)) || { echo "measure-trace: loop devices and tracing need root" >&2; exit 1; }

work=$(mktemp -d /var/tmp/longrun-trace.XXXXXX)
device='' tracer='' stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
finish() {
    [[ -z $tracer ]] || kill "$tracer" 2>/dev/null || true
    [[ -z $device ]] || losetup --detach "$device"
    echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

dd if=/dev/zero of="$work/image" bs=1M count=256 status=none
device=$(losetup --find --show "$work/image")
rate=()
((iops == 0)) || rate=(--rate_iops="$iops")

# Prints IOPS, and the median and 99th percentile of latency in microseconds.
run_fio() {
    fio --name=x --filename="$device" --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=8 --time_based \
        --runtime="$seconds" --output-format=json "${rate[@]}" |
        python3 -c 'import json, sys
read = json.load(sys.stdin)["jobs"][0]["read"]
times = read["clat_ns"]["percentile"]
print(round(read["iops"]), round(times["50.000000"] / 1000, 1), round(times["99.000000"] / 1000, 1))'
}

printf '%-4s %10s %10s %8s %9s %9s %12s %10s\n' run 'IOPS off' 'IOPS on' ratio 'p50 off' 'p50 on' 'ns/request' 'core %'
for ((run = 1; run <= iterations; run++)); do
    # Which comes first alternates, so that a drift of the machine hits both.
    for side in $( ((run % 2)) && echo off on || echo on off); do
        if [[ $side == off ]]; then
            off=$(run_fio)
            continue
        fi
        # With the kernel's own account of the programs in every second pair of runs only: it costs something itself.
        echo $((run % 2)) >/proc/sys/kernel/bpf_stats_enabled
        "$longrun" trace "$device" --json >"$work/trace.json" 2>"$work/said" &
        tracer=$!
        until grep -q tracing "$work/said"; do sleep 0.1; done
        on=$(run_fio)
        # Not INT, which is ignored by what runs in the background of a script.
        kill -TERM "$tracer"
        wait "$tracer"
        tracer=''
        echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
    done
    OFF=$off ON=$on RUN=$run SECONDS_=$seconds python3 - "$work/trace.json" <<'PYTHON'
import json, os, sys
recording = json.load(open(sys.argv[1]))
off, on = os.environ["OFF"].split(), os.environ["ON"].split()
requests = recording["devices"][0]["all"]["reads"]["requests"]
cost = recording["cost"]
each = cost["seconds"] / requests * 1e9 if cost else None
share = cost["seconds"] / float(os.environ["SECONDS_"]) * 100 if cost else None
show = lambda number, form: "-" if number is None else form % number
print("%-4s %10s %10s %8.3f %9s %9s %12s %10s" % (os.environ["RUN"], off[0], on[0], float(on[0]) / float(off[0]),
      off[1], on[1], show(each, "%.0f"), show(share, "%.2f")))
PYTHON
done
