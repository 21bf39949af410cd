#!/bin/bash
# Boots a Debian with a database, a web server, PHP, Redis and ssh in a container on modelled disks, with reading ahead and without.
# Usage, as root: LAB=longrun-lab LONGRUN=longrun measure-boot.sh [ARGUMENTS OF longrun-lab boots]
# The system is made once by debootstrap and kept in ~/.cache/longrun.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/container.lib.sh

fail() {
    echo "measure-boot: $*" >&2
    exit 1
}

((EUID == 0)) || fail "run it as root"
system=$(debian_root boot-bench systemd,systemd-sysv,dbus,libelf1,zlib1g,e2fsprogs,passwd,mariadb-server,php-fpm,redis-server,nginx-light,openssh-server,rsyslog,cron)
export LONGRUN_BIN=$LONGRUN
"$LAB" boots --system "$system" "$@"
