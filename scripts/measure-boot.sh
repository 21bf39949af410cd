#!/bin/bash
# Boots a Debian with a database, a web server, PHP, Redis and ssh in a container on modelled disks, with reading ahead and without.
# Usage, as root: LAB=longrun-lab LONGRUN=longrun measure-boot.sh [ARGUMENTS OF longrun-lab boots]
# The system is made once by debootstrap and kept in ~/.cache/longrun.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "measure-boot: $*" >&2
    exit 1
}

((EUID == 0)) || fail "run it as root"
base=$HOME/.cache/longrun/boot-bench
if [[ ! -e $base/complete ]]; then
    rm -rf "$base"
    mkdir -p "$base"
    echo "Making the system that is booted, once (a few minutes)"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,libelf1,zlib1g,e2fsprogs,passwd,mariadb-server,php-fpm,redis-server,nginx-light,openssh-server,rsyslog,cron \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$base/root" >"$base/log" 2>&1 || fail "debootstrap failed; see $base/log"
    rm -rf "$base"/root/var/cache/apt/archives/*.deb
    touch "$base/complete"
fi
export LONGRUN_BIN=$LONGRUN
"$LAB" boots --system "$base/root" "$@"
