#!/bin/bash
# Every message that the first column of a table in docs/troubleshooting.md quotes must be in the program: a reader searches for it
# letter by letter. "…" and a lone N stand for what differs from case to case; what the program puts together from parts is
# searched for part by part.
set -euo pipefail
cd "$(dirname "$0")/.."

# The sources as one text, with string literals that continue on the next line joined, and placeholders as in the page.
program=$(find crates/*/src -name '*.rs' -exec cat {} + | sed -E ':next; /\\$/ { N; s/\\\n *//; b next }; s/\\"/"/g')
failed=0
while IFS= read -r part; do
    if ! grep -qF -- "$part" <<<"$program"; then
        echo "docs/troubleshooting.md quotes \"$part\", which the program does not print" >&2
        failed=1
    fi
done < <(grep -E '^\|' docs/troubleshooting.md | cut -d'|' -f2 | grep -oE '`[^`]* [^`]*`' | tr -d '`' |
    sed -E 's/…|\bN\b|; nothing was changed| is (not supported|working on this volume|mounted read-only)|(ext4|XFS) (mounted )?with |instead of data=ordered|paused( now)?: |: …|0 granted/\n/g' | sed -E 's/^[ ,;:()]+//; s/[ ,;:(]+$//' | grep -E '.{6}' | sort -u)
exit "$failed"
