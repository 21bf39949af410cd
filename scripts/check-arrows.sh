#!/bin/bash
# The arrows of ARCHITECTURE.md: a crate depends only on what stands above it in the table there, a file system never on
# another one, and what is pure makes no system calls.
cd "$(dirname "$0")/.." || exit 1
failed=0
fail() {
    echo "$*" >&2
    failed=1
}

mapfile -t order < <(sed -n '/^## The arrows/,/^## /s/^| `\([a-z]*\)` |.*/\1/p' ARCHITECTURE.md)
place() {
    local at
    for at in "${!order[@]}"; do
        [ "${order[at]}" = "$1" ] && echo "$at" && return
    done
}
for manifest in crates/*/Cargo.toml; do
    crate=$(basename "$(dirname "$manifest")")
    own=$(place "$crate")
    [ -n "$own" ] || { fail "ARCHITECTURE.md, The arrows: $crate is missing"; continue; }
    for other in $(awk '/^\[/ { on = $0 == "[dependencies]" } on && /^longrun-/ { sub("longrun-", ""); sub("[. =].*", ""); print }' "$manifest"); do
        [ "$(place "$other")" -lt "$own" ] || fail "$manifest: $crate depends on $other, which does not stand above it"
    done
done

for here in ext4 xfs btrfs; do
    for other in ext4 xfs btrfs; do
        [ "$here" = "$other" ] && continue
        grep -rnE "crate::$other\b" "crates/volume/src/$here" && fail "crates/volume/src/$here uses $other"
    done
done
for pure in layout planner engine; do
    grep -rnE '\b(longrun_sys|rustix|libc)::|std::fs::' "crates/$pure/src" && fail "crates/$pure is to be free of I/O"
done
exit "$failed"
