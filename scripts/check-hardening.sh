#!/bin/bash
# The units are not less hardened than they were: systemd's own measure of exposure, from 0 (none) to 10.
# Usage: check-hardening.sh [UNIT TENTHS]   (the units of packaging/ with their limits by default)
set -euo pipefail
cd "$(dirname "$0")/.."

# What makes the service blind or slow without an error message. The unit says why.
if grep -nE '^(RestrictSUIDSGID|RestrictRealtime|PrivateNetwork|PrivateTmp|PrivateMounts|PrivateDevices|Protect(System|Home|Proc|KernelTunables))=' \
    packaging/longrun.service; then
    echo "packaging/longrun.service: the service cannot work with these settings" >&2
    exit 1
fi

if ! systemd-analyze security --help 2>/dev/null | grep -q -- --offline; then
    echo "check-hardening: skipped: systemd-analyze is missing, or older than version 250 (it has no --offline)"
    exit 0
fi

check() {
    [[ -e $1 ]] || return 0
    local report
    report=$(systemd-analyze security --offline=true --no-pager --threshold="$2" "$1") || {
        printf '%s\n' "$report" | grep '^✗' >&2
        echo "$1: the exposure is above ${2%?}.${2: -1}; either the unit lost a restriction, or the limit here is to be argued anew" >&2
        exit 1
    }
    printf '%s\n' "$report" | sed -n 's/^→ //p'
}

if (($#)); then
    check "$@"
else
    check packaging/longrun.service 44
    check packaging/longrun-web.service 5
    check packaging/longrun-fleet.service 12
    # It sees the users of the machine, since it decides by who asks.
    check packaging/longrun-fleet-console.service 14
    check packaging/boot/longrun-boot-preload.service 45
    check packaging/boot/longrun-boot-record.service 47
    check packaging/boot/longrun-preload@.service 47
fi
