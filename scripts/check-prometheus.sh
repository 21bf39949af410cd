#!/bin/bash
# The rules parse, record, fire and stay silent as their tests say; each alert is in a test that expects it and in one that does not, what is
# recorded in one that expects a value. The expressions of the Grafana dashboards parse. Rules and dashboards name only metrics that
# docs/metrics.md has, and what the rules record.
# Usage: check-prometheus.sh [DIRECTORY]   (packaging/ by default; the script then also checks that planted mistakes are found)
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(scripts/promtool.sh)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "check-prometheus: $*" >&2
    return 1
}

# All expressions as a file of rules, one for each, with the variables of Grafana replaced by what Grafana would put there.
dashboard_rules() {
    python3 - "$1" <<'PYTHON'
import json, sys

def expressions(value):
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for inner in value.values():
            yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)

dashboard = json.load(open(sys.argv[1]))
found = list(expressions(dashboard))
if not found:
    sys.exit("the dashboard has no expression")
rules = []
for number, expression in enumerate(found):
    for variable, value in (("$__rate_interval", "5m"), ("$instance", ".*"), ("$mount", ".*"), ("$site", ".*"), ("$host", ".*")):
        expression = expression.replace(variable, value)
    rules.append({"record": f"dashboard:expression:{number}", "expr": expression})
# What lists the values of variables names metrics, too.
for variable in dashboard["templating"]["list"]:
    if variable["type"] == "query":
        metric = variable["query"].removeprefix("label_values(").split(",")[0].split("{")[0]
        rules.append({"record": f"dashboard:variable:{variable['name']}", "expr": metric})
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, sys.stdout)
PYTHON
}

check() {
    local rules tests=("$1"/prometheus/*.test.yml) dashboard name recorded
    for rules in "$1"/prometheus/*.rules.yml; do
        "$promtool" check rules "$rules" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
    done
    "$promtool" test rules "${tests[@]}" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
    while read -r name; do
        grep -qE "^ +- alertname: $name\$" "${tests[@]}" || { fail "no test in which $name fires"; return 1; }
        grep -qE "alertname: $name, .*exp_alerts: \[\]" "${tests[@]}" || { fail "no test in which $name stays silent"; return 1; }
    done < <(sed -n 's/^ *- alert: //p' "$1"/prometheus/*.rules.yml)
    recorded=$(sed -n 's/^ *- record: //p' "$1"/prometheus/*.rules.yml)
    for name in $recorded; do
        grep -qE "labels: '$name\{.*value:" "${tests[@]}" || { fail "no test in which $name has a value"; return 1; }
    done
    : >"$scratch/expressions"
    for dashboard in "$1"/grafana/*.json; do
        dashboard_rules "$dashboard" >"$scratch/dashboard.yml" || return 1
        "$promtool" check rules "$scratch/dashboard.yml" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
        # JSON of Python has quotes with backslashes, and all in one line.
        sed 's/"record"/\n&/g' "$scratch/dashboard.yml" | grep -o '"expr".*' >>"$scratch/expressions"
    done
    sed -n 's/^ *expr: //p' "$1"/prometheus/*.rules.yml >>"$scratch/expressions"
    while read -r name; do
        grep -qxF "$name" <<<"$recorded" || { fail "$name is in rules or a dashboard, and no rule records it"; return 1; }
    done < <(grep -oE '(host|site):longrun_[a-z_]+(:[a-z0-9]+)?' "$scratch/expressions" | sort -u)
    while read -r name; do
        grep -q "\`$name\`" docs/metrics.md || { fail "$name is in the rules or a dashboard, and not in docs/metrics.md"; return 1; }
    done < <(sed -E 's/(host|site):longrun_[a-z_]+//g' "$scratch/expressions" | grep -oE 'longrun_[a-z_]+' | sort -u)
}

if (($#)); then
    check "$1"
    exit
fi
check packaging

# Mistakes that are planted must be found; otherwise this script checks nothing.
plant() {
    rm -rf "$scratch/planted"
    mkdir "$scratch/planted"
    cp -r packaging/prometheus packaging/grafana "$scratch/planted/"
    sed -i "$2" "$scratch/planted/$1"
    if cmp -s "packaging/$1" "$scratch/planted/$1"; then fail "the mistake \"$2\" changes nothing in $1"; return 1; fi
    if check "$scratch/planted" 2>/dev/null; then fail "the mistake \"$2\" in $1 is not found"; return 1; fi
}
plant grafana/longrun.json 's/longrun_queue/longrun_quue/'
plant grafana/longrun.json 's/label_values(longrun_healthy,/label_values(longrun_healty,/'
plant grafana/longrun.json 's/sum by (reason) (/sum by (reason) ((/'
plant prometheus/longrun.rules.yml 's/expr: longrun_healthy == 0/expr: longrun_wellness == 0/'
plant prometheus/longrun.rules.yml 's/expr: up{job="longrun"} == 0/expr: absent(up{job="longrun"})/'
plant prometheus/longrun.test.yml '/name: a trouble raises/,/^$/d'
plant grafana/longrun-fleet.json 's/site:longrun_requests_saved:increase1d/site:longrun_requests_saved:increase2d/'
plant grafana/longrun-fleet.json 's/longrun_uptime_seconds/longrun_uptime_hours/'
plant prometheus/longrun-fleet.rules.yml 's/longrun_pass_fragments_total/longrun_pass_pieces_total/'
plant prometheus/longrun-fleet.rules.yml 's/ or 0 \* up{job="longrun"}//'
plant prometheus/longrun-fleet-days.test.yml '/expr: site:longrun_fragments_slipped/,/value: 72/d'
echo "check-prometheus: rules, their tests and the dashboards are sound; 11 planted mistakes were found"
