#!/bin/bash
# The packages have the version of the workspace.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/version.lib.sh

fail() {
    echo "check-packaging: $*" >&2
    exit 1
}

version=$(version_of_workspace)
[[ $(head -1 packaging/debian/changelog) == "longrun ($version) "* ]] || fail "packaging/debian/changelog does not begin with $version"
grep -q "<release version=\"$version\" " packaging/longrun.metainfo.xml || fail "packaging/longrun.metainfo.xml has no release $version"
grep -qE "^Version: +$version\$" packaging/rpm/longrun.spec || fail "packaging/rpm/longrun.spec is not of version $version"
grep -A1 '^%changelog' packaging/rpm/longrun.spec | grep -q -- " - $version-1\$" || fail "packaging/rpm/longrun.spec has no changelog of $version"

# What `longrun boot enable` installs: scripts that any shell of an initramfs reads, and units for which nothing waits.
for script in packaging/boot/initramfs-* packaging/boot/dracut-*; do
    shell=$(sed -n '1s|^#!/bin/||p' "$script")
    "$shell" -n "$script" || fail "$script is no script of $shell"
    grep -q '^# Longrun: ' "$script" || fail "$script does not say that it is ours, by which longrun boot disable knows it"
done
for unit in packaging/boot/*.service; do
    grep -q '^# Longrun: ' "$unit" || fail "$unit does not say that it is ours, by which longrun boot disable knows it"
    grep -q '^ExecStart=-/usr/local/bin/longrun boot ' "$unit" || fail "$unit: its failure must fail nothing (ExecStart=-)"
    grep -q '^RuntimeMaxSec=' "$unit" || fail "$unit has no end (RuntimeMaxSec=)"
    grep -qE '^Type=(simple|exec)$' "$unit" || fail "$unit: others would wait for it (Type=)"
done
