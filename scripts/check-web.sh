#!/bin/bash
# What the console ships: all of it is its own source and small, and nothing in it makes HTML of text or
# needs a policy that allows inline scripts and styles.
set -euo pipefail
cd "$(dirname "$0")/../web"
readonly limit=$((60 * 1024)) style_limit=$((10 * 1024))

failed=0
fail() {
    echo "web: $*" >&2
    failed=1
}

shipped=(*.html *.css *.js *.svg)
total=0
for file in "${shipped[@]}"; do
    total=$((total + $(gzip -9nc "$file" | wc -c)))
done
((total <= limit)) || fail "the console is $total bytes in gzip, more than $limit"
(($(wc -c <style.css) <= style_limit)) || fail "style.css is larger than $style_limit bytes"
for file in *.js; do
    head -1 "$file" | grep -q '^//! ' || fail "$file does not open with //!, what it owns"
    (($(wc -l <"$file") <= 500)) || fail "$file has more than 500 lines"
done
grep -nE '\.(innerHTML|outerHTML) *=|insertAdjacentHTML|document\.write|\beval\(|new Function' ./*.js && fail "text becomes HTML or code"
grep -nE '<script>|<style|style=| on[a-z]+=' ./*.html && fail "inline scripts and styles are refused by the policy"
exit "$failed"
