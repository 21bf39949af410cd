#!/bin/bash
# Checks the documents: every relative link leads to a file, every #anchor to a heading of that file (as GitHub and mdBook
# name them), every page below docs/ is listed in docs/SUMMARY.md, and README.md has at most 100 lines. Links to other sites
# are not opened.
# Usage: check-links.sh [DIRECTORY]   (the root of the repository by default)
set -euo pipefail
cd "${1:-"$(dirname "$0")/.."}"
readonly readme_limit=100

failed=0
lines=$(wc -l <README.md)
if ((lines > readme_limit)); then
    echo "README.md has $lines lines, more than $readme_limit: move something to docs/" >&2
    failed=1
fi

mapfile -t pages < <(find README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs -name '*.md')
for page in "${pages[@]}"; do
    name=${page#docs/}
    [[ $page != docs/* || $name == SUMMARY.md ]] || grep -qF "]($name)" docs/SUMMARY.md || {
        echo "$page is not listed in docs/SUMMARY.md" >&2
        failed=1
    }
done

# One "PAGE:LINE<tab>TARGET FILE<tab>ANCHOR" for each link, and one "#<tab>PAGE<tab>ANCHOR" for each heading.
found=$(awk '
    function anchor(title) {
        gsub(/\[|\]\([^)]*\)|`/, "", title)
        gsub(/–|—|→|×|−|…/, "", title)
        title = tolower(title)
        gsub(/[!-,.\/:-@\[-^{-~]/, "", title)
        gsub(/ /, "-", title)
        return title
    }
    # DIRECTORY/../x and ./x as the file system would resolve them.
    function resolved(path,    parts, count, i, depth, kept, result) {
        count = split(path, parts, "/")
        depth = 0
        for (i = 1; i <= count; i++) {
            if (parts[i] == "" || parts[i] == ".") continue
            if (parts[i] == ".." && depth > 0 && kept[depth] != "..") depth--
            else kept[++depth] = parts[i]
        }
        for (i = 1; i <= depth; i++) result = result (i > 1 ? "/" : "") kept[i]
        return result
    }
    FNR == 1 { fenced = 0; directory = FILENAME; if (!sub(/[^\/]*$/, "", directory)) directory = "" }
    /^ *```/ { fenced = !fenced; next }
    fenced || /^    / { next }
    /^#+ / {
        title = $0
        sub(/^#+ +/, "", title)
        name = anchor(title)
        seen = times[FILENAME, name]++
        print "#\t" FILENAME "\t" name (seen ? "-" seen : "")
    }
    {
        line = $0
        gsub(/`[^`]*`/, "", line)
        while (match(line, /\]\([^() ]+\)|(src|href)="[^"]+"/)) {
            link = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            sub(/^(\]\(|[a-z]+=")/, "", link)
            sub(/[)"]$/, "", link)
            if (link ~ /^[a-z]+:/) continue
            path = link
            fragment = ""
            if (i = index(link, "#")) { path = substr(link, 1, i - 1); fragment = substr(link, i + 1) }
            print FILENAME ":" FNR "\t" (path == "" ? FILENAME : resolved(directory path)) "\t" fragment
        }
    }' "${pages[@]}")

declare -A headings
while IFS=$'\t' read -r _ page name; do headings[$page#$name]=1; done < <(grep '^#' <<<"$found")
while IFS=$'\t' read -r at target name; do
    if [[ ! -e $target ]]; then
        echo "$at: the link leads to $target, which does not exist" >&2
        failed=1
    elif [[ -n $name && $target == *.md && -z ${headings[$target#$name]:-} ]]; then
        echo "$at: $target has no heading #$name" >&2
        failed=1
    fi
done < <(grep -v '^#' <<<"$found")
exit "$failed"
