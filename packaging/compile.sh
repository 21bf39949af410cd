#!/bin/bash
# Compiles what the packages ship. The result depends neither on the directory nor on the time, nor on whether the crates come from a
# registry or from vendor/. Usage: compile.sh   (CARGO_TARGET_DIR, CARGO_HOME as for cargo)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
home=${CARGO_HOME:-$HOME/.cargo}
target=${CARGO_TARGET_DIR:-$root/target}
PATH="$PATH:$home/bin"

# From the general to the special: the last that matches holds.
from=("$root" "$home" "$target" "$root/vendor")
to=(/usr/src/longrun /usr/src/cargo /usr/src/target /usr/src/crates)
for crates in "$home"/registry/src/*/; do
    [[ -d $crates ]] && from+=("${crates%/}") && to+=(/usr/src/crates)
done
rust=() c=()
for number in "${!from[@]}"; do
    rust+=("--remap-path-prefix=${from[$number]}=${to[$number]}")
    c+=("-ffile-prefix-map=${from[$number]}=${to[$number]}")
done

# Separated by a character that no path has.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; echo "${rust[*]}")
# Only these: what a distribution's tools set differs from one to the other.
CFLAGS="-fstack-protector-strong -D_FORTIFY_SOURCE=2 ${c[*]}"
export CARGO_ENCODED_RUSTFLAGS CFLAGS
unset RUSTFLAGS CPPFLAGS CXXFLAGS LDFLAGS
# For the debug packages: functions and lines.
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_INCREMENTAL=0 LC_ALL=C.UTF-8 TZ=UTC
packages=(-p longrun-cli)
[[ -d crates/web ]] && packages+=(-p longrun-web)
[[ -d crates/fleet ]] && packages+=(-p longrun-fleet)
offline=()
[[ -d vendor ]] && offline=(--offline)
cargo build --release --locked "${offline[@]}" "${packages[@]}"
