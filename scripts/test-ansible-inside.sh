#!/bin/bash
# Runs in the name spaces that test-ansible.sh made: starts the containers and the web server, and tries the plays.
set -uo pipefail
. scripts/container.lib.sh

number=0
check() {
    number=$((number + 1))
    if eval "$2"; then
        echo "ok $number - $1 ($((SECONDS / 60)) min)"
    else
        echo "FAILED $number - $1: $2"
        tail -60 "$SCRATCH/play" 2>/dev/null
        for host in "${hosts[@]}"; do
            on "$host" 'systemctl --no-pager status longrun writer | head -30; longrun status' 2>&1 | sed "s/^/$host: /"
        done
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

hosts=()
ssh_options=(-i "$SCRATCH/ssh-key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5)
declare -A address_of
on() { ssh "${ssh_options[@]}" "root@${address_of[$1]}" "${@:2}"; }
# A condition that holds on every host, soon.
everywhere() {
    local host
    for host in "${hosts[@]}"; do
        wait_for "on $host '$1'" || { echo "not on $host: $1"; return 1; }
    done
}

# Each container is in a control group of its own; two in one would take each other's processes for theirs.
start() {
    local host=$1 loop=$2 controllers path hierarchy
    (
        while IFS=: read -r _ controllers path; do
            case $controllers in
                name=systemd) hierarchy=/sys/fs/cgroup/systemd ;;
                "") hierarchy=/sys/fs/cgroup/unified && [[ -d $hierarchy ]] || hierarchy=/sys/fs/cgroup ;;
                *) continue ;;
            esac
            mkdir -p "$hierarchy$path/$CGROUP-$host" && echo "$BASHPID" >"$hierarchy$path/$CGROUP-$host/cgroup.procs"
        done </proc/self/cgroup
        boot_container "$SCRATCH/$host" --machine="$host" --network-bridge=fleet --bind="$loop"
    ) >"$SCRATCH/$host.console" 2>&1 &
}

ip link set lo up
ip link add fleet type bridge
ip address add 192.0.2.1/24 dev fleet
ip link set fleet up
python3 -m http.server --bind 192.0.2.1 --directory "$SCRATCH/repository" 8000 >/dev/null 2>&1 &
{
    echo "longrun:"
    echo "  hosts:"
} >"$SCRATCH/inventory.yml"
while read -r host last loop; do
    hosts+=("$host")
    address_of[$host]=192.0.2.$last
    start "$host" "$loop"
    echo "    $host: {ansible_host: 192.0.2.$last, longrun_site: $([[ $host =~ ^(alpha|beta|gamma)$ ]] && echo berlin || echo paris)}" >>"$SCRATCH/inventory.yml"
done <"$SCRATCH/hosts"
cat >>"$SCRATCH/inventory.yml" <<VARS
  vars:
    ansible_user: root
    ansible_python_interpreter: /usr/bin/python3
    longrun_repository: http://192.0.2.1:8000
    longrun_repository_key: $SCRATCH/repository/longrun.asc
    longrun_packages: [longrun, longrun-web]
    longrun_metrics: true
    longrun_operators: [anna, otto]
    longrun_config:
      defaults: {mending_quiet: 1s, mending_patience: 0s, pace: fast}
      volume:
        - {mount: "/nowhere \"ö\"", enabled: false}
prometheus:
  hosts:
    monitor: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3}
  vars:
    ansible_become: false
    longrun_prometheus_targets: $SCRATCH/targets.json
    longrun_prometheus_rules: $SCRATCH/rules
VARS
export ANSIBLE_SSH_ARGS="${ssh_options[*]} -o ControlMaster=auto -o ControlPersist=60s" ANSIBLE_SSH_CONTROL_PATH_DIR=$SCRATCH/c ANSIBLE_PIPELINING=1
export ANSIBLE_LOCAL_TEMP=$SCRATCH/tmp ANSIBLE_HOME=$SCRATCH/home ANSIBLE_FORKS=5 ANSIBLE_NOCOLOR=1 ANSIBLE_CONFIG=$SCRATCH/ansible.cfg LC_ALL=C.UTF-8
touch "$ANSIBLE_CONFIG"
play() { ansible-playbook -i "$SCRATCH/inventory.yml" "packaging/ansible/$1.yml" "${@:2}" >"$SCRATCH/play" 2>&1; }
# A play that fails must fail for this reason.
fails() { if play "${@:2}"; then return 1; fi; grep -qE "$1" "$SCRATCH/play"; }
# What the recap says of all hosts.
unchanged() { grep -q 'changed=' "$SCRATCH/play" && ! grep -E 'changed=[1-9]|failed=[1-9]|unreachable=[1-9]' "$SCRATCH/play"; }

check "the containers boot" "everywhere true"
for host in "${hosts[@]}"; do
    device=$(sed -n "s/^$host [0-9]* //p" "$SCRATCH/hosts")
    on "$host" "useradd anna; useradd otto; useradd vera; mount $device /srv; echo $device >/test/device" || exit 1
done

check "a repository whose key is another is refused" "fails NO_PUBKEY site --limit alpha -e longrun_repository_key=$SCRATCH/wrong.asc"
check "and nothing is installed" "! on alpha 'test -e /usr/bin/longrun'"
check "without a key nothing is installed unless that is said" "fails 'Set either longrun_repository' site --limit alpha -e longrun_repository_key="

check "the play installs and configures" "play site"
check "the service runs" "everywhere 'longrun status --json | grep -q \"\\\"healthy\\\": *true\"'"
check "from the repository, with its signature" "everywhere 'apt-cache policy longrun | grep -q http://192.0.2.1:8000/apt && ! grep -q Trusted /etc/apt/sources.list.d/longrun.sources'"
check "with the configuration that was set, from its first start on" \
    "everywhere 'longrun config check && longrun config show | grep -q \"mending_quiet = \\\"1s\\\"\" && [ \$(journalctl -u longrun -o cat | grep -c ^Started) = 1 ]'"
check "the operators are in the group" "everywhere 'getent group longrun | grep -q :anna,otto\$'"
check "an operator may use the API, others may not" \
    "everywhere 'setpriv --reuid=anna --regid=anna --init-groups longrun status >/dev/null && ! setpriv --reuid=vera --regid=vera --init-groups longrun status >/dev/null 2>&1'"
check "a second run succeeds" "play site"
check "and changes nothing" unchanged

check "the targets are those of all hosts" "[[ \$(grep -c '\"192.0.2.1[1-5]:9817\"' $SCRATCH/targets.json) == 5 ]]"
metrics() { curl -sf --max-time 5 "http://$1/metrics"; }
check "each of them answers" \
    "for target in \$(grep -o '192[0-9.:]*' $SCRATCH/targets.json); do wait_for \"metrics \$target | grep -qx 'longrun_healthy 1'\" || exit 1; done"
check "the rules are there" "$PROMTOOL check rules $SCRATCH/rules/*.yml >/dev/null"

# The configuration of docs/fleet-without-a-server.md, with shorter times.
cat >"$SCRATCH/prometheus.yml" <<CONFIG
global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [$SCRATCH/rules/*.yml]
scrape_configs:
  - job_name: longrun
    file_sd_configs:
      - files: [$SCRATCH/targets.json]
CONFIG
"$PROMETHEUS" --config.file="$SCRATCH/prometheus.yml" --storage.tsdb.path="$SCRATCH/tsdb" --web.listen-address=127.0.0.1:9090 >"$SCRATCH/prometheus.log" 2>&1 &
# The series of an expression, as "host value" or "site value".
query() { curl -sf 'http://127.0.0.1:9090/api/v1/query' --data-urlencode "query=$1" | python3 -c 'import json, sys
for series in json.load(sys.stdin)["data"]["result"]:
    print(series["metric"].get("host", series["metric"].get("site")), series["value"][1])' 2>/dev/null | sort; }
lasting() { wait_for "$1" || wait_for "$1"; }
check "Prometheus records that all hosts are well" \
    "lasting '[[ \$(query host:longrun_not_well | xargs) == \"alpha 0 beta 0 delta 0 epsilon 0 gamma 0\" ]]'"
check "and counts them by site" "lasting '[[ \$(query site:longrun_hosts:count | xargs) == \"berlin 3 paris 2\" ]]'"
on gamma systemctl stop longrun
check "an alert is pending for a host whose service has ended, and for no other" \
    "lasting '[[ \$(query \"ALERTS{alertname=~\\\"LongrunIsDown|LongrunIsNotWell\\\"}\" | xargs) == \"gamma 1\" ]]'"
on gamma systemctl start longrun

check "a dry run changes nothing" "play site --check && unchanged"
check "a configuration that is wrong is refused" "fails 'unknown key .*mendin' site -e '{\"longrun_config\": {\"defaults\": {\"mendin\": true}}}'"
check "and the one before stays" "everywhere 'longrun config check && grep -q mending_quiet /etc/longrun/longrun.toml'"
process() { on "$1" systemctl show -P MainPID longrun; }
before=$(process alpha)
check "a setting that a reload applies is applied by a reload" \
    "play site --limit alpha -e '{\"longrun_operators\": [\"vera\"], \"longrun_config\": {\"defaults\": {\"mending_budget\": \"1GiB\"}}}' && [[ \$(process alpha) == $before ]]"
check "members are exactly those that are named" "on alpha 'getent group longrun | grep -q :vera\$'"
check "a setting that takes a restart is applied by a restart" \
    "play site --limit alpha -e '{\"longrun_config\": {\"service\": {\"settle_after\": \"600ms\"}}}' && [[ \$(process alpha) != $before ]]"
check "and back" "play site --limit alpha"

check "the work begins" "everywhere 'systemd-run --quiet --unit=writer /test/writer.py'"
figure() { echo "longrun status --json | python3 -c \"import json, sys; v = [v for v in json.load(sys.stdin)[\\\"volumes\\\"] if v[\\\"mount\\\"] == \\\"/srv\\\"][0]; sys.exit(not ($1))\""; }
check "growing files have runways" "everywhere '$(figure 'v[\"prevented\"][\"runways\"] > 0')'"
check "files are mended" "everywhere '$(figure 'v[\"mended\"][\"files\"] > 0')'"

sums() { for host in "${hosts[@]}"; do on "$host" 'sha256sum /proc/$(systemctl show -P MainPID longrun)/exe'; done | cut -d' ' -f1 | sort | uniq -c | tr -s ' '; }
sum_in() { dpkg-deb --fsys-tarfile "$SCRATCH/$1"/longrun_*.deb | tar -x -O ./usr/bin/longrun | sha256sum | cut -d' ' -f1; }
first=$(sum_in first) next=$(sum_in next)
check "the old version runs everywhere" "[[ \$(sums) == ' 5 $first' ]]"
scripts/repo.sh "$SCRATCH/next" "$SCRATCH/repository" right@longrun.example >/dev/null || exit 1
check "an ordinary run does not upgrade" "play site && [[ \$(sums) == ' 5 $first' ]]"
check "the rolling upgrade succeeds" "play upgrade -e longrun_serial=2"
check "two hosts at a time" "[[ \$(grep -c '^PLAY \\[Rolling' $SCRATCH/play) == 3 ]]"
check "the new version runs everywhere" "[[ \$(sums) == ' 5 $next' ]]"
check "the writers were not disturbed" "everywhere 'systemctl is-active --quiet writer'"
check "the metrics are served again" "everywhere 'systemctl is-active --quiet longrun-web-metrics.socket' && metrics 192.0.2.11:9817 | grep -qx 'longrun_healthy 1'"
check "growing files get runways again" "everywhere '$(figure 'v[\"prevented\"][\"grants\"] > 0')'"
check "a second rolling upgrade changes nothing" "play upgrade -e longrun_serial=2 && unchanged"

scripts/repo.sh "$SCRATCH/broken" "$SCRATCH/repository" right@longrun.example >/dev/null || exit 1
check "a version that does not work stops the rolling upgrade" "fails 'FAILED.*Wait until|FAILED! =' upgrade -e longrun_serial=2 -e longrun_healthy_within=5"
check "at the first two hosts" "[[ \$(for host in \${hosts[@]}; do on \$host dpkg-query -W -f '\\\${Version}_' longrun; done) == \
    ${VERSION}+next2_${VERSION}+next2_${VERSION}+next_${VERSION}+next_${VERSION}+next_ ]]"
check "the version before comes back by its number" "play upgrade -e longrun_serial=2 -e longrun_version=$VERSION+next && [[ \$(sums) == ' 5 $next' ]]"

check "the work ends" "everywhere 'touch /test/enough; test -e /test/sums'"
check "no writer met an error" "everywhere '! systemctl is-failed --quiet writer'"
check "all runways are returned" "everywhere '$(figure 'v[\"prevented\"][\"runways\"] == 0')'"
check "no block lies beyond the end of a file" \
    "everywhere 'for file in /srv/*; do (( \$(stat -c \"%b * 512 - %s\" \$file) <= 4096 )) || exit 1; done'"
check "nothing was lost: every file has the SHA-256 of what was written, read from the device" \
    "everywhere 'umount /srv && mount \$(cat /test/device) /srv && sha256sum --quiet --check /test/sums'"
echo "written: $(on alpha 'du -sm /srv | cut -f1') MB in $(on alpha 'wc -l </test/sums') files on alpha"

# A fleet from nothing to five hosts, by the words of docs/fleet-hosts.md: the broker and the administrator are on this machine.
broker_from_nothing() (
    set -e
    mkdir -p "$SCRATCH/broker/nats" && cd "$SCRATCH/broker"
    dpkg-deb -x "$SCRATCH"/first/longrun-fleet_*.deb "$SCRATCH/administrator"
    broker_certificate . IP:192.0.2.1
    init
    cat >nats.conf <<CONFIG
listen: "192.0.2.1:4222"
server_name: fleet
jetstream { store_dir: "$SCRATCH/broker/nats", max_mem: 0, max_file: 1G }
tls { cert_file: "$SCRATCH/broker/server.pem", key_file: "$SCRATCH/broker/server.key" }
accounts { include "office/accounts.conf" }
CONFIG
) >"$SCRATCH/play" 2>&1
longrun_fleet() { "$SCRATCH/administrator/usr/bin/longrun-fleet" "$@"; }
init() { longrun_fleet init "$SCRATCH/broker/office" --server tls://192.0.2.1:4222 --ca "$SCRATCH/broker/ca.pem"; }
fleet() { longrun_fleet --config "$SCRATCH/broker/office/fleet.toml" "$@"; }
reload() { kill -HUP "$nats" && sleep 1 && kill -HUP "$nats" && sleep 1; }
check "a broker is made from nothing" broker_from_nothing
nats-server --config "$SCRATCH/broker/nats.conf" >"$SCRATCH/broker/log" 2>&1 &
nats=$!
check "it answers, and gets its buckets" "wait_for 'init && fleet status' >$SCRATCH/play 2>&1"
enroll() { for host in "${hosts[@]:0:4}"; do fleet enroll "$host" --group san --label "site=$([[ $host == delta ]] && echo paris || echo berlin)" || return 1; done; reload; }
check "four of the hosts are enrolled" "enroll >$SCRATCH/play 2>&1"
cat >"$SCRATCH/fleet.json" <<VARS
{"longrun_version": "$VERSION+next", "longrun_packages": ["longrun", "longrun-web", "longrun-fleet"], "longrun_fleet_keys": "$SCRATCH/broker/office/hosts",
 "longrun_config": {"service": {"fleet": "rest"}, "defaults": {"pace": "fast"}, "volume": [{"mount": "/srv", "storage_group": "san"}]}}
VARS
scripts/repo.sh "$SCRATCH/next" "$SCRATCH/repository" right@longrun.example >/dev/null || exit 1
check "a host without a key is refused, with what to do" "fails 'longrun fleet enroll epsilon' site -e @$SCRATCH/fleet.json"
check "it is enrolled, too" "{ fleet enroll epsilon --group san --label site=paris && reload; } >$SCRATCH/play 2>&1 && play site -e @$SCRATCH/fleet.json"
told() { fleet hosts --json | python3 -c "import json, sys; hosts = json.load(sys.stdin); print(eval(sys.argv[1]))" "$1"; }
check "all five tell their state" "lasting '[[ \$(told \"len(hosts)\") == 5 ]]'"
check "a second run changes nothing" "play site -e @$SCRATCH/fleet.json && unchanged"
check "keys that are gone from this machine stay on the hosts" "rm -r $SCRATCH/broker/office/hosts/* && play site -e @$SCRATCH/fleet.json && unchanged"
check "the agents have no privilege, and nobody else reads their keys" \
    "everywhere '[[ \$(stat -c %U /proc/\$(systemctl show -P MainPID longrun-fleet)) == longrun-fleet && \$(stat -c %a:%U:%G /etc/longrun/fleet.nk) == 640:root:longrun-fleet ]]'"
fleet groups set san --slots 1 >/dev/null || exit 1
passes() {
    local ids=() id host
    for host in "${hosts[@]}"; do on "$host" 'longrun optimize --pace fast /srv' >"$SCRATCH/pass.$host" 2>&1 & ids+=($!); done
    for id in "${ids[@]}"; do wait "$id" || { tail -5 "$SCRATCH"/pass.*; return 1; }; done
}
check "passes on all five at once take turns at one slot, and all end well" passes
printf 'name = "nights"\n[defaults]\nmending_quiet = "7s"\n[[rule]]\nwhere = { site = "paris" }\nsettings = { mending_quiet = "9s" }\n' >"$SCRATCH/policy.toml"
check "a policy is tried by canaries, and reaches all" "fleet policy apply $SCRATCH/policy.toml --canary 20% --watch 10s >$SCRATCH/play 2>&1"
on_its_site() { lasting "on $1 'longrun config show | grep \"mending_quiet = \\\"$2\\\"\"'"; }
check "with what its rules say of each host" "on_its_site alpha 7s && on_its_site delta 9s && on_its_site epsilon 9s"
check "it is taken back" "fleet policy rollback --reason tried >$SCRATCH/play 2>&1 && lasting \"on alpha '! longrun config show | grep -q 7s'\""
check "a host whose key is taken away is refused by the broker" \
    "fleet revoke gamma >$SCRATCH/play && reload && on gamma systemctl restart longrun-fleet && wait_for 'grep -qi \"authorization\|authentication\" $SCRATCH/broker/log'"
fleet status

check "removal with configuration and history" "play remove -e longrun_purge=true"
check "leaves nothing" "everywhere '! test -e /usr/bin/longrun && ! test -e /etc/longrun && ! test -e /var/lib/longrun && ! getent group longrun && ! ls /etc/apt/sources.list.d/longrun* 2>/dev/null'"
check "no metrics are served any more" "everywhere 'systemctl is-active longrun-web-metrics.socket | grep -qx inactive' && ! metrics \$(grep -o '192[0-9.:]*' $SCRATCH/targets.json | head -1)"
check "a second removal changes nothing" "play remove -e longrun_purge=true && unchanged"

files="{\"longrun_repository\": \"\", \"longrun_package_files\": [$(printf '"%s",' "$SCRATCH"/first/longrun_*.deb "$SCRATCH"/first/longrun-web_*.deb | sed 's/,$//')]}"
check "package files are installed without a repository" "play site --limit alpha -e '$files' && on alpha longrun status && metrics 192.0.2.11:9817 >/dev/null"
check "a second run changes nothing" "play site --limit alpha -e '$files' && unchanged"
# At another address: apt refuses one that was signed when it saw it last.
check "a repository that nobody signed is taken when that is said" \
    "cp -r $SCRATCH/repository $SCRATCH/unsigned && rm $SCRATCH/unsigned/apt/dists/stable/{InRelease,Release.gpg} && mv $SCRATCH/unsigned $SCRATCH/repository/ && \
    play site --limit beta -e longrun_repository=http://192.0.2.1:8000/unsigned -e longrun_repository_key= -e longrun_repository_unsigned=true -e longrun_version=$VERSION && on beta longrun status"
everywhere 'umount /srv'
echo "$number passed, 0 failed"
for host in "${hosts[@]}"; do on "$host" systemctl poweroff; done 2>/dev/null
wait_for '! pgrep -f "^systemd-nspawn" >/dev/null' || true
