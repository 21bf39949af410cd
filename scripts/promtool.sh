#!/bin/bash
# Prints the path of promtool, which checks rules, or of Prometheus itself. Where it is not installed, it is taken out of the distribution's
# package of Prometheus, into ~/.cache/longrun: installing that package would start a server. Usage: promtool.sh [prometheus]
set -euo pipefail

name=${1:-promtool}
if command -v "$name"; then exit 0; fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/longrun
program=$cache/$name
if [[ ! -x $program ]]; then
    command -v apt-get >/dev/null || { echo "promtool: please install $name (of Prometheus)" >&2; exit 1; }
    mkdir -p "$cache"
    scratch=$(mktemp -d "$cache/$name.XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    # Where the package lists were never fetched, there is nothing to download.
    as_root=()
    ((EUID == 0)) || as_root=(sudo)
    cd "$scratch"
    apt-get download -qq prometheus >&2 || { "${as_root[@]}" apt-get update -qq && apt-get download -qq prometheus >&2; }
    cd "$OLDPWD"
    dpkg-deb --fsys-tarfile "$scratch"/prometheus_*.deb | tar -x -O "./usr/bin/$name" >"$scratch/program"
    chmod +x "$scratch/program"
    mv "$scratch/program" "$program"
fi
echo "$program"
