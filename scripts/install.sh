#!/bin/bash
# Puts what is shipped where it belongs: `make install`, the Debian package and the RPM have this list in common.
# Usage: install.sh BINARIES DESTDIR PREFIX UNIT_DIR   (BINARIES: the directory of the compiled programs; DESTDIR may be empty)
set -euo pipefail
cd "$(dirname "$0")/.."
(($# == 4)) || { echo "usage: install.sh BINARIES DESTDIR PREFIX UNIT_DIR" >&2; exit 2; }
binaries=$1 root=$2 share=$2$3/share
longrun=$binaries/longrun

# Completions of zsh are where the distribution's own zsh looks for those of packages.
zsh=$share/zsh/site-functions
[[ $3 == /usr && -e /etc/debian_version ]] && zsh=$share/zsh/vendor-completions

install -D -m 755 "$longrun" "$root$3/bin/longrun"
install -d "$share/man/man1" "$share/bash-completion/completions" "$share/fish/vendor_completions.d" "$zsh"
"$longrun" man "$share/man/man1" >/dev/null
"$longrun" completions bash >"$share/bash-completion/completions/longrun"
"$longrun" completions fish >"$share/fish/vendor_completions.d/longrun.fish"
"$longrun" completions zsh >"$zsh/_longrun"
chmod 644 "$share"/man/man1/longrun*.1 "$share/bash-completion/completions/longrun" \
    "$share/fish/vendor_completions.d/longrun.fish" "$zsh/_longrun"

install -D -m 755 "$binaries/longrun-web" "$root$3/bin/longrun-web"
install -D -m 644 packaging/longrun-web.8 "$share/man/man8/longrun-web.8"
install -D -m 755 "$binaries/longrun-fleet" "$root$3/bin/longrun-fleet"
install -D -m 644 packaging/longrun-fleet.8 "$share/man/man8/longrun-fleet.8"
for unit in longrun.service longrun-fleet.service longrun-fleet-console.service longrun-web.service longrun-web.socket longrun-web-metrics.socket; do
    sed "s|/usr/local/bin|$3/bin|" "packaging/$unit" | install -D -m 644 /dev/stdin "$root$4/$unit"
done
# The same files that are compiled into longrun-web, as a page of Cockpit.
install -D -m 644 -t "$share/cockpit/longrun" packaging/cockpit/manifest.json web/*.js web/*.html web/*.css web/*.svg
install -D -m 644 packaging/longrun.toml "$share/doc/longrun/longrun.toml"
# An administrator's file is never overwritten.
[[ -e $root/etc/longrun/longrun.toml ]] || install -D -m 644 packaging/longrun.toml "$root/etc/longrun/longrun.toml"
install -D -m 644 -t "$share/longrun/prometheus" packaging/prometheus/*.rules.yml
install -D -m 644 -t "$share/longrun/grafana" packaging/grafana/*.json
# The role finds the rules beside itself, here as in the source.
find packaging/ansible -type f -printf '%P\n' | while read -r file; do
    install -D -m 644 "packaging/ansible/$file" "$share/longrun/ansible/$file"
done
install -D -m 644 packaging/longrun.metainfo.xml "$share/metainfo/org.longrun.longrun.metainfo.xml"
