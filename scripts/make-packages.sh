#!/bin/bash
# Makes the packages, or the source with all crates, in target/packages. `make deb`, `make rpm` and `make vendor` call it.
# Usage: make-packages.sh deb|rpm|vendor [OUTPUT]   (BINARIES=directory: take the compiled programs from there)
# What is packed are the files that git knows, as they are in the work tree.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/version.lib.sh

kind=${1:-}
version=$(version_of_workspace)
name=longrun-$version
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
output=$(realpath -m "${2:-$target/packages}")
# All formats are made from one tree, so that the programs are compiled once.
tree=$target/packages/build/$name
export CARGO_TARGET_DIR=$target/packages/compiled
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
# The time of everything that is packed.
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' packaging/debian/changelog | head -1)" +%s)
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
[[ -z ${BINARIES:-} ]] || BINARIES=$(realpath "$BINARIES")
export BINARIES=${BINARIES:-}

files_of_the_source() {
    if [[ -e .git ]]; then
        git ls-files -z
    else
        find . -path ./target -prune -o -type f -print0
    fi
}

# Nothing is older than the packages say (it would keep its own time), and nothing changed looks older than what was compiled of it.
lay_the_tree() {
    rm -rf "$tree"
    mkdir -p "$tree" "$output"
    files_of_the_source | sort -z | while IFS= read -r -d '' file; do
        [[ ! -e $file ]] || printf '%s\0' "$file"
    done | tar --null -T - -c | tar -x --no-same-owner -C "$tree"
    find "$tree" ! -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$((SOURCE_DATE_EPOCH + 1))" {} +
    chmod -R u=rwX,go=rX "$tree"
}

pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --exclude="$name/target" \
        -C "$(dirname "$tree")" -c "$name"
}

lay_the_tree
case $kind in
    deb)
        cp -r "$tree/packaging/debian" "$tree/debian"
        rm -f "$(dirname "$tree")"/longrun*_*
        # Cargo is none of the packages that are checked for: it comes from rustup.
        # With all crates in it, the source is no package of this project any more.
        build=full
        [[ -d $tree/vendor ]] && build=binary
        (cd "$tree" && dpkg-buildpackage --no-sign --build="$build")
        mv "$(dirname "$tree")"/longrun*_* "$output/"
        lintian --fail-on error,warning --display-info "$output/longrun_${version}_$(dpkg --print-architecture).changes"
        ls -l "$output"/longrun*_"$version"_*.deb
        ;;
    rpm)
        top=$target/packages/rpmbuild
        rm -rf "$top"
        mkdir -p "$top/SOURCES"
        pack | gzip -n >"$top/SOURCES/$name.tar.gz"
        # The tools of Debian know no package of theirs: `--nodeps`. What is missing is seen when it is called.
        rpmbuild -bb --nodeps --quiet --define "_topdir $top" --define "_builddir $(dirname "$tree")" --define "_buildhost longrun" \
            --define "packager $(sed -n 's/^Maintainer: //p' packaging/debian/control)" \
            packaging/rpm/longrun.spec
        mv "$top"/RPMS/*/longrun*.rpm "$output/"
        rpmlint --config packaging/rpm/rpmlint.toml packaging/rpm/longrun.spec "$output"/longrun*-"$version"-*.rpm
        ls -l "$output"/longrun*-"$version"-*.rpm
        ;;
    vendor)
        (cd "$tree" && cargo vendor --locked --versioned-dirs --quiet vendor >/dev/null)
        printf '\n[source.crates-io]\nreplace-with = "vendored-sources"\n[source.vendored-sources]\ndirectory = "vendor"\n' >>"$tree/.cargo/config.toml"
        pack | xz -T0 -2 >"$output/$name-vendored.tar.xz"
        ls -l "$output/$name-vendored.tar.xz"
        ;;
    *)
        echo "usage: make-packages.sh deb|rpm|vendor [OUTPUT]" >&2
        exit 2
        ;;
esac
