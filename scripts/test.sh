#!/bin/bash
# What `make test` runs, in order. Everything that the tests need is compiled once, with one set of features. Ends with the time of each step.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug
as_root=()
((EUID == 0)) || as_root=(sudo -E)

times=()
report() {
    ((${#times[@]} == 0)) || printf '%s\n' "The steps:" "${times[@]}"
}
trap report EXIT
step() {
    local name=$1 begun=$SECONDS status=0
    shift
    echo "== $name"
    "$@" || status=$?
    times+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$name")")
    return "$status"
}

# Their commands are joined by &&: bash does not end a function at its first failure where the caller looks at the status.
checks() {
    cargo fmt --all --check &&
        printf 'scripts/check-%s.sh\n' "$@" | xargs -P "$(nproc)" -n 1 bash
}

web() {
    npm ci --prefix web/tests --ignore-scripts --no-audit --no-fund &&
        web/tests/node_modules/.bin/tsc -p web/tests/tsconfig.json &&
        "${as_root[@]}" env LONGRUN="$programs/longrun" LONGRUN_WEB="$programs/longrun-web" LONGRUN_FLEET="$programs/longrun-fleet" \
        node --test --test-concurrency=4 web/tests/*.test.mjs
}

selected=${1:-all}
if [[ $selected == all ]]; then
    step "checks" checks prometheus ansible messages repo file-sizes hazards arrows links changelog web packaging hardening
    step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
fi
step "compiling" cargo build --workspace --all-targets --locked
[[ $selected == web ]] || step "tests" scripts/run-tests.py default solid-state
step "console" web
