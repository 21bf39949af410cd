#!/bin/bash
# Every test that docs/hazards.md names must exist: a guard that was renamed away guards nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
while IFS= read -r name; do
    if ! grep -rqE "fn $name\b" crates --include='*.rs'; then
        echo "docs/hazards.md names $name, but there is no such test" >&2
        failed=1
    fi
done < <(grep -oE '`[a-z0-9]+(_[a-z0-9]+){3,}`' docs/hazards.md | tr -d '`' | sort -u)
exit "$failed"
