#!/bin/bash
# Builds the static site from docs/ with mdbook, together with the documents at the root of the repository, whose links are
# adapted.
# Usage: make-site.sh OUTPUT
set -euo pipefail
cd "$(dirname "$0")/.."
readonly output=${1:?usage: make-site.sh OUTPUT}

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cp -r docs/. "$source"
cp LICENSE packaging/longrun.toml "$source"
printf '\n# The project\n' >>"$source/SUMMARY.md"
for page in ARCHITECTURE CONTRIBUTING CHANGELOG; do
    sed -E 's|\]\(docs/decisions\)|](decisions/0001-a-balloon-is-the-donor.md)|g; s|\]\(docs/|](|g; s|\]\(packaging/|](|g' "$page.md" >"$source/$page.md"
    printf -- '- [%s](%s.md)\n' "${page:0:1}$(tr '[:upper:]' '[:lower:]' <<<"${page:1}")" "$page" >>"$source/SUMMARY.md"
done
# The root of the repository is the root of the site: links of docs/ to it have one directory less to climb.
find "$source" -name '*.md' -exec sed -Ei 's#\]\(\.\./((\.\./)*[A-Z]+\.md)#](\1#g' {} +
MDBOOK_BOOK__SRC=$source mdbook build --dest-dir "$output"
echo "The site is in $output: open $output/index.html"
