#!/bin/bash
# CHANGELOG.md begins with the version of the workspace, and a change to what is shipped has an entry there.
# Usage: check-changelog.sh [BASE]   (what the change is compared with; origin/main by default, where that is known)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "CHANGELOG.md: $*" >&2
    exit 1
}

. scripts/version.lib.sh
version=$(version_of_workspace)
newest=$(grep -m1 '^## ' CHANGELOG.md)
[[ $newest == "## Unreleased ($version)" || $newest == "## $version "* ]] ||
    fail "the newest section is \"$newest\"; the version in Cargo.toml is $version"

base=${1:-origin/main}
git rev-parse --quiet --verify "$base^{commit}" >/dev/null || exit 0
fork=$(git merge-base "$base" HEAD) || exit 0
changed=$(git diff --name-only "$fork")
if grep -q '^crates/[^/]*/src/' <<<"$changed" && ! grep -q '^CHANGELOG\.md$' <<<"$changed"; then
    fail "the change since $base touches crates/*/src and has no entry; say what was wrong, why, and what holds now"
fi
