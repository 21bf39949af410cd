#!/bin/bash
# Builds the Debian packages twice, and compares them byte by byte: once as `make deb` does, once from the vendored source in another
# directory, with no crate registry and no network. Usage: test-reproducible.sh   (compiles twice: 10 minutes or more)
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
mkdir -p "$target/packages"
scratch=$(mktemp -d "$target/packages/reproducible.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# Objects of an earlier compilation could have been made with other options.
CARGO_TARGET_DIR="$scratch/compiled" scripts/make-packages.sh deb "$scratch/first"
scripts/make-packages.sh vendor "$scratch"
mkdir "$scratch/elsewhere" "$scratch/registry"
tar -xf "$scratch"/longrun-*-vendored.tar.xz -C "$scratch/elsewhere"
# Without root, a network namespace needs a user namespace.
alone=(unshare --net)
((EUID == 0)) || alone=(unshare --net --map-root-user)
(cd "$scratch"/elsewhere/longrun-* &&
    "${alone[@]}" env RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" CARGO_HOME="$scratch/registry" CARGO_TARGET_DIR="$scratch/elsewhere/compiled" \
        scripts/make-packages.sh deb "$scratch/second")

for package in "$scratch"/first/*.deb; do
    cmp "$package" "$scratch/second/$(basename "$package")"
    echo "the same bytes: $(basename "$package") $(sha256sum <"$package" | cut -c1-16)"
done
