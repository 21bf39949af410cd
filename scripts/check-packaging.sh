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

# Removing the package takes that back, and goes on when it fails: the scripts of the packages are run with a longrun that fails.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/longrun" <<'FAILS'
#!/bin/sh
echo "$*" >>"${0%/*}/called"
exit 1
FAILS
chmod 755 "$work/longrun"
removal() {
    local what=$1 action=$2 expected=$3
    : >"$work/called"
    PATH="$work:$PATH" sh -e "$work/script" "$action" >/dev/null 2>&1 || fail "$what $action fails when longrun boot disable does"
    [[ $(cat "$work/called") == "$expected" ]] || fail "$what $action runs: longrun $(cat "$work/called"); expected: $expected"
}
# Only the own part: without debhelper's, and with longrun and systemd as they are found here.
sed 's/^#DEBHELPER#//' packaging/debian/longrun.prerm >"$work/script"
removal longrun.prerm remove "boot disable"
removal longrun.prerm upgrade ""
sed -n '/^%preun$/,/^%postun$/{/^%/d;p}' packaging/rpm/longrun.spec | sed 's|/usr/bin/longrun |longrun |; s|/run/systemd/system|/nonexistent|' >"$work/script"
removal %preun 0 "boot disable"
removal %preun 1 ""
