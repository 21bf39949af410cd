#!/bin/bash
# Runs as a unit in the machines of test-boot.sh, after multi-user.target: checks what became of the hook, and prepares the next boot.
set -uo pipefail

case=$(sed -n 's/.*test=\([^ ]*\).*/\1/p' /proc/cmdline)
lists=/var/lib/longrun/boot
kept=/var/lib/longrun/kept
verdict=passed
check() {
    local what=$1
    shift
    if "$@"; then echo "passed: $case: $what"; else
        echo "FAILED: $case: $what"
        verdict=failed
    fi
}
# A number of the state of the list of the boot.
state() { longrun boot status --json | sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" | head -1; }
has() { (($(state "$1") $2)); }
# The process that records, if there is one.
recorder() {
    local process
    for process in /proc/[0-9]*; do
        tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -E '^[^ ]*longrun boot record' >/dev/null && echo "${process#/proc/}"
    done
}
# When a line came into the kernel's log, in milliseconds.
when() { dmesg | sed -n "s/^\[ *\([0-9]*\)\.\([0-9]\{3\}\).*$1.*/\1\2/p" | head -1; }
# Not grep -q: it would end dmesg's pipe early.
said() { dmesg | grep "$1" >/dev/null; }
ended() {
    local tries
    for ((tries = 0; tries < $1; tries++)); do
        [[ -n $(recorder) ]] || return 0
        sleep 1
    done
    return 1
}
skipped() { [[ $(systemctl show --property=ConditionResult --value "$1") == no ]]; }
written_since_the_start() { [[ -n $(find $lists -type f -newermt "@$(sed -n 's/^btime //p' /proc/stat)") ]]; }
nothing_ahead() { said "longrun: boot preload: nothing is read ahead: .*$1"; }

dmesg | grep -E 'longrun: |test: ' | sed "s/^/told: $case: /"
before=$(when 'test: before the hook') after=$(when 'test: after the hook') system=$(when 'systemd\[1\]: systemd .* running in system mode')
reached=$(systemctl show --property=ActiveEnterTimestampMonotonic --value multi-user.target)
echo "told: $case: hook $before to $after ms, systemd at $system ms, multi-user.target at $((reached / 1000)) ms"
pid=$(recorder)
check "the boot lost no second by the hook" test $((after - before)) -le 1000
check "the units leave it to the initramfs" skipped longrun-boot-record.service
check "so does reading ahead" skipped longrun-boot-preload.service
if [[ $case == killed ]]; then
    check "it was killed" said 'test: killed'
    check "nothing records any more" test -z "$pid"
else
    began=$(cut -d' ' -f22 "/proc/${pid:-none}/stat")
    check "one process records, since before systemd" test "${began:-999999}0" -lt "$system"
fi
if [[ $case == first || $case == ahead ]]; then
    check "the recorder ends by itself" ended 150
else
    [[ -z $pid ]] || kill "$pid"
    check "the recorder ends when it is asked to" ended 60
fi
longrun boot status 2>&1 | sed 's/^/told: /'

case $case in
    first)
        check "nothing was read ahead" nothing_ahead 'there is nothing'
        check "the boot was recorded" has recordings '== 1'
        check "with the files that it read" has files '> 100'
        check "and will be read ahead" has next_data_bytes '> 1000000'
        ;;
    ahead)
        check "the list was read ahead" said 'boot preload: .* of files and .* of metadata in'
        # This kernel does not report which of that was used, so that it counts as no recording of its own.
        check "the boot was recorded, too" written_since_the_start
        check "the status knows of it" test -n "$(state median_seconds_with)"
        rm -rf $kept && cp -a $lists $kept
        ;;
    full-run)
        check "/run was full all the time" said 'test: /run is still full'
        check "the list was read ahead all the same" said 'boot preload: .* of files and .* of metadata in'
        check "and the boot recorded" written_since_the_start
        ;;
    killed) check "the list is as it was" has recordings '== 1' ;;
    forbidden)
        check "nothing was read ahead" nothing_ahead 'longrun.preload=0'
        check "the boot was recorded and merged" has recordings '== 2'
        ;;
    damaged)
        check "nothing was read ahead" nothing_ahead 'boot.plan: damaged'
        check "the list was made anew" has recordings '== 1'
        ;;
    missing)
        check "nothing was read ahead" nothing_ahead 'there is nothing'
        check "the list was made anew" has recordings '== 1'
        ;;
esac
# What the next boot finds.
case $case in
    forbidden) for file in "$lists"/*; do echo damaged >"$file"; done ;;
    damaged) rm -rf $lists ;;
    *) [[ ! -d $kept || $case == ahead ]] || { rm -rf $lists && cp -a $kept $lists; } ;;
esac
echo "verdict: $verdict"
