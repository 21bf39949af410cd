#!/bin/bash
# Prints the libraries of others that the programs contain: names, versions, licences, and the texts of these, each once.
set -euo pipefail
cd "$(dirname "$0")/.."
home=${CARGO_HOME:-$HOME/.cargo}
PATH="$PATH:$home/bin"
export LC_ALL=C

packages=(-p longrun-cli)
[[ -d crates/web ]] && packages+=(-p longrun-web)
[[ -d crates/fleet ]] && packages+=(-p longrun-fleet)
# Crates of this workspace are followed by a path in parentheses.
mapfile -t crates < <(cargo tree --locked "${packages[@]}" --edges normal --prefix none --format '{p}|{l}' |
    sed 's/ (proc-macro)//; s/ (\*)$//' | grep '^[^ |]' | grep -v ' (/' | sort -u)
((${#crates[@]})) || { echo "third-party: cargo tree lists no crate" >&2; exit 1; }

sources=("$home"/registry/src/*)
[[ -d vendor ]] && sources=(vendor)
declare -A texts=() users=()
echo "The programs of Longrun contain these libraries. The numbers refer to the texts below."
echo
for crate in "${crates[@]}"; do
    name=${crate%%|*}
    numbers=()
    for directory in "${sources[@]}"; do
        directory+=/${name/ v/-}
        for text in "$directory"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,license,UNLICENSE}* "$directory"/*/LICENSE.BSD*; do
            [[ -f $text ]] || continue
            sum=$(sha256sum <"$text")
            sum=${sum%% *}
            [[ -v texts[$sum] ]] || { texts[$sum]=$text; users[$sum]=$((${#users[@]} + 1)); }
            numbers+=("${users[$sum]}")
        done
    done
    echo "${name/ v/ }: ${crate#*|}${numbers[*]+ [${numbers[*]}]}"
done
for sum in "${!users[@]}"; do
    echo "${users[$sum]} ${texts[$sum]}"
done | sort -n | while read -r number text; do
    printf '\n======== %s ========\n\n' "$number"
    tr -d '\r' <"$text"
done
