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
        journalctl --no-pager -u longrun -u 'longrun-*' -u nats-server | tail -40
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
console() { python3 - "$@" <<'PYTHON'
import json, sys, urllib.request, urllib.error
SITE = "http://127.0.0.1:9818"
headers = {"origin": SITE}
def ask(path, body=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(SITE + path, body, headers), timeout=20) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
if sys.argv[1]:
    entered = ask("/session", sys.argv[1].partition("token=")[2].encode())
    headers["longrun-session"] = json.loads(entered.partition(" ")[2]).get("session", "")
print(ask(sys.argv[2]))
PYTHON
}
link() { journalctl --no-pager -u longrun-web -o cat | grep -o 'http://[^ ]*' | tail -1; }
check "it lets nobody in without its link" "console '' /v1/session | grep -q '^401\|^403'"
check "its link opens it for reading" "wait_for '[[ -n \$(link) ]]' && console \"\$(link)\" /v1/session | grep -q '^200 .*viewer'"
user() { stat -c %u "/proc/$(systemctl show -P MainPID "$1")"; }
check "it does not run as root" "((\$(user longrun-web) > 0))"

# A fleet from nothing, by the words of docs/fleet-hosts.md.
check "the fleet installs, and its broker" "dpkg -i /test/broker/*.deb /test/fleet.deb"
check "without a configuration there is neither an agent nor a console of the fleet" \
    "[[ \$(systemctl is-active longrun-fleet longrun-fleet-console | tr '\n' ' ') == 'inactive inactive ' ]]"
echo 127.0.0.1 nats.example.com >>/etc/hosts
mkdir /etc/nats
install -m 644 /test/keys/server.pem /etc/nats/ && install -o nats -g nats -m 600 /test/keys/server.key /etc/nats/
install -d -o nats -g nats -m 700 /var/lib/nats
init() { longrun fleet init /etc/longrun-fleet --server tls://nats.example.com:4222 --ca /test/keys/ca.pem; }
check "the administrator's directory is made" init
cat >/etc/nats-server.conf <<'CONFIG'
listen: "0.0.0.0:4222"
server_name: fleet
jetstream { store_dir: "/var/lib/nats", max_mem: 0, max_file: 1G }
tls { cert_file: "/etc/nats/server.pem", key_file: "/etc/nats/server.key" }
accounts { include "longrun-fleet/accounts.conf" }
CONFIG
systemctl restart nats-server
fleet() { longrun fleet --config /etc/longrun-fleet/fleet.toml "$@"; }
check "the broker answers, and gets its buckets" "wait_for 'init && fleet status'"
check "a host is enrolled" "fleet enroll db-1 --group san1 --label role=database && systemctl reload nats-server && systemctl reload nats-server"
(cd /etc/longrun-fleet/hosts/db-1 && install -m 644 fleet.toml fleet-ca.pem /etc/longrun/ && install -m 640 -g longrun-fleet fleet.nk /etc/longrun/)
rm -r /etc/longrun-fleet/hosts/db-1
sed -i 's/^\[service\]/[service]\nfleet = "rest"/' /etc/longrun/longrun.toml
printf '[[volume]]\nmount = "/srv"\nstorage_group = "san1"\n' >>/etc/longrun/longrun.toml
check "the configuration is valid" "longrun config check && systemctl reload longrun"
in_touch() { python3 - <<'PYTHON'
import json, socket, sys
service = socket.socket(socket.AF_UNIX)
service.connect("/run/longrun/longrun.sock")
service.sendall(b"GET /v1/fleet HTTP/1.0\r\n\r\n")
answer = service.makefile("rb").read()
sys.exit(not json.loads(answer.partition(b"\r\n\r\n")[2])["in_touch"])
PYTHON
}
check "the agent runs" "systemctl start longrun-fleet"
check "it has no privilege" "((\$(user longrun-fleet) == \$(id -u longrun-fleet)))"
check "the host tells its state" "wait_for 'fleet hosts --json | grep -q db-1'"
check "and gets a lease for a pass" "timeout 240 longrun optimize --pace fast /srv && fleet leases --json | grep -q san1"
check "the console of the fleet starts" "systemctl enable --now longrun-fleet-console"
check "without privilege" "((\$(user longrun-fleet-console) > 0))"
check "the console shows the fleet" "wait_for 'console \"\$(link)\" /fleet/v1/hosts | grep \"^200 .*db-1\"'"
before=$(systemctl show -P MainPID longrun-fleet-console)
check "an upgrade restarts agent and console" "dpkg -i /test/fleet.deb && [[ \$(systemctl is-active longrun-fleet longrun-fleet-console | tr '\n' ' ') == 'active active ' && \
    \$(systemctl show -P MainPID longrun-fleet-console) != $before ]]"
check "the service keeps in touch" "wait_for in_touch"
check "a host that is revoked loses touch, and does not come back" \
    "fleet revoke db-1 && systemctl reload nats-server && { wait_for '! in_touch' || wait_for '! in_touch'; } && systemctl restart longrun-fleet && sleep 20 && ! in_touch"
check "the fleet can be purged" "dpkg -P longrun-fleet && ! pidof longrun-fleet && ! getent passwd longrun-fleet && [[ ! -e /etc/longrun/fleet.nk ]]"
check "the keys of the administrator are kept" "[[ -e /etc/longrun-fleet/fleet.nk ]]"
dpkg -P nats-server >/test/purge.log 2>&1
sed -i '/nats.example.com/d' /etc/hosts
rm -rf /etc/longrun-fleet /etc/nats /var/lib/nats

check "the console can be purged" "dpkg -P longrun-web && ! getent group longrun-viewers"

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
