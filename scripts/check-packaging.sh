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
