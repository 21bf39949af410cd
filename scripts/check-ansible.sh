#!/bin/bash
# The plays of packaging/ansible are sound as far as that can be told without hosts (`make test-ansible` has five): their syntax, that they need
# nothing but Ansible itself, that the description of the variables is whole, and what Prometheus is told, written twice.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
role=packaging/ansible/roles/longrun
export ANSIBLE_CONFIG=$scratch/ansible.cfg ANSIBLE_LOCAL_TEMP=$scratch/tmp ANSIBLE_HOME=$scratch/home ANSIBLE_NOCOLOR=1 LC_ALL=C.UTF-8
touch "$ANSIBLE_CONFIG"

fail() {
    echo "check-ansible: $*" >&2
    exit 1
}

for play in packaging/ansible/{site,upgrade,remove}.yml; do
    ansible-playbook --syntax-check -i packaging/ansible/inventory.example.yml "$play" >"$scratch/log" 2>&1 || fail "$play: $(cat "$scratch/log")"
done

if grep -rnE '^ +(- )?[a-z_]+\.[a-z_]+\.[a-z_]+:' packaging/ansible | grep -vE '(- | )ansible\.builtin\.[a-z_]+:'; then
    fail "modules of other collections are used"
fi

# Each variable has a description, and a default unless it says that it has none.
described=$(sed -nE 's/^      (longrun_[a-z_]+):$/\1/p' $role/meta/argument_specs.yml | sort -u)
defaults=$(sed -nE 's/^(longrun_[a-z_]+):.*/\1/p' $role/defaults/main.yml | sort -u)
undescribed=$(comm -13 <(echo "$described") <(echo "$defaults"))
[[ -z $undescribed ]] || fail "without a description: $undescribed"
[[ $(comm -23 <(echo "$described") <(echo "$defaults") | xargs) == "longrun_operators longrun_viewers" ]] || fail "without a default: not just the members of groups"
for variable in $described; do
    grep -q "\`$variable\`" docs/fleet-without-a-server.md || fail "$variable is not in docs/fleet-without-a-server.md"
done

cat >"$scratch/inventory.yml" <<'INVENTORY'
longrun:
  hosts:
    beta: {ansible_host: "2001:db8::12", longrun_site: paris}
    alpha: {}
    gamma: {longrun_metrics_address: gamma.example.org, longrun_metrics_port: 9999}
prometheus:
  hosts:
    monitor: {ansible_connection: local}
  vars: {ansible_become: false}
INVENTORY
prometheus() {
    ansible-playbook -i "$scratch/inventory.yml" --limit prometheus packaging/ansible/site.yml -e ansible_python_interpreter="$(command -v python3)" \
        -e longrun_prometheus_targets="$scratch/targets.json" -e longrun_prometheus_rules="$scratch/rules" >"$scratch/log" 2>&1 ||
        fail "site.yml: $(cat "$scratch/log")"
}
prometheus
python3 - "$scratch/targets.json" <<'PYTHON' || fail "the targets are wrong: $(cat "$scratch/targets.json")"
import json, sys
expected = [("alpha:9817", "alpha", "default"), ("[2001:db8::12]:9817", "beta", "paris"), ("gamma.example.org:9999", "gamma", "default")]
sys.exit(json.load(open(sys.argv[1])) != [{"targets": [t], "labels": {"host": h, "site": s}} for t, h, s in expected])
PYTHON
printf 'rule_files: ["%s/rules/*.yml"]\nscrape_configs: [{job_name: longrun, file_sd_configs: [{files: ["%s/targets.json"]}]}]\n' "$scratch" "$scratch" \
    >"$scratch/prometheus.yml"
"$(scripts/promtool.sh)" check config "$scratch/prometheus.yml" >"$scratch/log" 2>&1 || fail "Prometheus refuses it: $(cat "$scratch/log")"
prometheus
grep -q '^monitor .*changed=0 ' "$scratch/log" || fail "a second run changes something: $(cat "$scratch/log")"
echo "check-ansible: syntax, variables and the targets of Prometheus are sound"
