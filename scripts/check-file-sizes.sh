#!/bin/bash
# A source file that passes 500 lines wants to be two. Exceptions, each with its reason: scripts/file-sizes.exceptions.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly limit=500

failed=0
while IFS= read -r file; do
    lines=$(wc -l <"$file")
    if ((lines > limit)) && ! grep -q "^$file[[:space:]]" scripts/file-sizes.exceptions; then
        echo "$file has $lines lines, more than $limit: split it, or give the reason in scripts/file-sizes.exceptions" >&2
        failed=1
    fi
done < <(git ls-files --cached --others --exclude-standard '*.rs' '*.sh' | while IFS= read -r f; do [[ -f $f ]] && echo "$f"; done)
exit "$failed"
