#!/bin/bash
# Runs inside the container of test-packages.sh, as a unit of its systemd.
set -uo pipefail

number=0
check() {
    number=$((number + 1))
    if eval "$2"; then
        echo "ok $number - $1"
    else
        echo "FAILED $number - $1: $2"
        systemctl --no-pager status longrun || true
        cat /test/writer.log
        longrun status --json || true
        journalctl --no-pager -u longrun -u longrun-web | tail -40
        exit 1
    fi
}
# Conditions that hold soon.
wait_for() {
    for _ in {1..300}; do
        if eval "$1"; then return 0; fi
        sleep 0.2
    done
    return 1
}
state() { systemctl is-active longrun; }
process() { systemctl show -P MainPID longrun; }
ask() { longrun status --json; }
volume() {
    ask | python3 -c 'import json, sys
found = [v for v in json.load(sys.stdin)["volumes"] if v["mount"] == "/srv"]
print(eval(sys.argv[1], {"v": found[0]}) if found else "none")' "$1"
}
settled() {
    for file in /srv/file-*; do
        # A file in many pieces takes a block to tell where they are.
        (($(stat -c '%b * 512 - %s' "$file") <= 4096)) || return 1
    done
}
export DEBIAN_FRONTEND=noninteractive
export VOLUME
VOLUME=$(tr '\0' '\n' </proc/1/environ | sed -n 's/^VOLUME=//p')

mkdir -p /srv
mount "$VOLUME" /srv
find / -xdev ! -path '/proc/*' ! -path '/sys/*' ! -path '/test/*' -print | sort >/test/before

check "the package installs" "dpkg -i /test/first.deb"
check "the group is there" "getent group longrun"
check "the service is enabled" "[[ $(systemctl is-enabled longrun) == enabled ]]"
check "the service runs" "wait_for '[[ \$(state) == active ]]'"
check "the manual page and the completions are there" \
    "[[ -e /usr/share/man/man1/longrun.1.gz && -e /usr/share/bash-completion/completions/longrun ]]"
check "the configuration is valid" "longrun config check"
check "the service sees the mounts of the host: it has no mount namespace of its own" \
    "[ \$(readlink /proc/\$(process)/ns/mnt) = \$(readlink /proc/1/ns/mnt) ]"
check "the volume is looked after" "wait_for '[[ \$(volume \"v[\\\"prevention\\\"]\") == True ]]'"
check "only root may enter the state directory" "[[ \$(stat -c %a /var/lib/longrun) == 700 ]]"

# Files that grow beside each other by direct writes, past the upgrade.
python3 - >/test/writer.log 2>&1 <<'PYTHON' &
import mmap, os, time
buffer = mmap.mmap(-1, 65536)
buffer.write(b"x" * 65536)
# Programs get no runway: without a mode, Python would make files that may be executed.
files = [os.open(f"/srv/file-{n}", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600) for n in range(4)]
while not os.path.exists("/test/enough"):
    for file in files:
        if os.lseek(file, 0, os.SEEK_CUR) < 160 << 20:
            os.write(file, buffer)
    time.sleep(0.005)
PYTHON
writer=$!
check "growing files get runways" "wait_for '((\$(volume \"v[\\\"prevented\\\"][\\\"grants\\\"]\") > 0))'"
check "the journal lists them" "wait_for '((\$(ask | python3 -c \"import json, sys; print(json.load(sys.stdin)[\\\"journal_files\\\"])\") > 0))'"

sed -i 's/^#: log_level = "info"/log_level = "debug"/; s/^#: \[service\]/[service]/' /etc/longrun/longrun.toml
before=$(process)
check "the upgrade installs in the middle of prevention" "dpkg -i --force-confdef --force-confold /test/next.deb"
check "the service runs again, as another process" "wait_for '[[ \$(state) == active && \$(process) != $before ]]'"
check "the edited configuration is kept" "grep -qx 'log_level = \"debug\"' /etc/longrun/longrun.toml"
check "files that grew through the upgrade get runways again" "wait_for '((\$(volume \"v[\\\"prevented\\\"][\\\"grants\\\"]\") > 0))'"
touch /test/enough
wait "$writer"
check "the writer met no error" "[[ ! -s /test/writer.log ]]"
check "all runways are given back after the files are closed, those from before the upgrade too" \
    "wait_for '[[ \$(volume \"v[\\\"prevented\\\"][\\\"runways\\\"]\") == 0 ]]'"
check "no block of a runway is left" "wait_for settled"
check "the history is there" "[[ -s /var/lib/longrun/ledger.db ]]"

check "the service can be disabled" "systemctl disable --now longrun"
check "an upgrade leaves it disabled" "dpkg -i --force-confold /test/first.deb && [[ \$(systemctl is-enabled longrun) == disabled ]]"
check "and does not start it" "[[ \$(state) == inactive ]]"

check "the service can be enabled again" "systemctl enable --now longrun && [[ \$(state) == active ]]"
check "the console installs" "dpkg -i /test/web.deb"
check "its socket is open, that of the metrics is not" \
    "[[ \$(systemctl is-active longrun-web.socket longrun-web-metrics.socket | tr '\n' ' ') == 'active inactive ' ]]"
# Nothing but the link in its journal opens it. The container has no name for itself.
console() { python3 - "$1" <<'PYTHON'
import sys, urllib.request, urllib.error, http.cookiejar
jar = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
def get(address):
    try:
        answer = jar.open(address, timeout=20)
        return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
if sys.argv[1]:
    get(sys.argv[1].replace("localhost", "127.0.0.1"))
print(get("http://127.0.0.1:9818/v1/session"))
PYTHON
}
link() { journalctl --no-pager -u longrun-web -o cat | grep -o 'http://[^ ]*' | tail -1; }
check "it lets nobody in without its link" "console '' | grep -q '^401\|^403'"
check "its link opens it for reading" "wait_for '[[ -n \$(link) ]]' && console \"\$(link)\" | grep -q '^200 .*viewer'"
user() { stat -c %u "/proc/$(systemctl show -P MainPID longrun-web)"; }
check "it does not run as root" "((\$(user) > 0))"
check "it can be purged" "dpkg -P longrun-web && ! getent group longrun-viewers"

check "the package can be removed" "dpkg -r longrun"
check "the service has ended" "[[ -z \$(pidof longrun) ]]"
check "removing keeps state and configuration" "[[ -s /var/lib/longrun/ledger.db && -s /etc/longrun/longrun.toml ]]"

touch /var/lib/longrun/ntfs-0000000000000001.longrun-journal
check "purging keeps the journal of an interrupted step, and says so" "dpkg -P longrun 2>&1 | grep -q 'interrupted steps'"
check "and nothing else" "[[ \$(ls -A /var/lib/longrun) == ntfs-0000000000000001.longrun-journal ]]"
check "it installs and purges without one" "rm -r /var/lib/longrun && dpkg -i /test/first.deb && dpkg -P longrun"
check "the group is gone" "! getent group longrun"
find / -xdev ! -path '/proc/*' ! -path '/sys/*' ! -path '/test/*' -print | sort >/test/after
# What dpkg, systemd and the journal keep for themselves.
check "purging leaves nothing" \
    "! diff /test/before /test/after | grep '^>' | grep -v ' /var/lib/dpkg/\| /var/log/\| /run/\| /tmp/\| /var/lib/systemd/\| /var/cache/\| /etc/group-\$\| /etc/gshadow-\$\| /var/tmp/\|/deb-systemd-helper-enabled\$'"
umount /srv
echo "$number passed, 0 failed"
echo passed >/test/result
