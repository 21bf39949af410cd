#!/bin/bash
# Makes an apt repository and a dnf repository of packages: a directory that any web server can serve, or that is used as it is (file://).
# Packages of earlier versions that are in it stay in it. What is not signed is said to be so.
# Usage: repo.sh PACKAGES REPOSITORY [KEY]   (KEY: a GPG key that signs, as `gpg --local-user` takes it)
set -euo pipefail

fail() {
    echo "repo: $*" >&2
    exit 1
}

(($# == 2 || $# == 3)) || { echo "usage: repo.sh PACKAGES REPOSITORY [KEY]" >&2; exit 2; }
packages=$(realpath -m "$1") repository=$(realpath -m "$2") key=${3:-}
shopt -s nullglob
debs=("$packages"/longrun*.deb) rpms=("$packages"/longrun*.rpm)
((${#debs[@]} + ${#rpms[@]})) || fail "no package in $packages: make deb and make rpm make them"
sign() { gpg --batch --yes --local-user "$key" --armor --output "$2" "${@:3}" "$1"; }
if [[ -n $key ]]; then
    gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 || fail "there is no secret key $key: gpg --list-secret-keys lists those that there are"
fi

mkdir -p "$repository"
# An index that is half written is seen by nobody: it is made beside the old one, which it replaces at the end.
next=$(mktemp -d "$repository/.next.XXXXXX")
trap 'rm -rf "$next"' EXIT
chmod 755 "$next"

if ((${#debs[@]})); then
    mkdir -p "$repository/apt/pool" "$next/dists/stable"
    install -m 644 -t "$repository/apt/pool" "${debs[@]}"
    (
        cd "$repository/apt"
        for architecture in $(for deb in pool/*.deb; do dpkg-deb --field "$deb" Architecture; done | sort -u); do
            [[ $architecture != all ]] || continue
            index=$next/dists/stable/main/binary-$architecture
            mkdir -p "$index"
            # With the packages for all architectures.
            dpkg-scanpackages --multiversion --arch "$architecture" pool >"$index/Packages" 2>"$next/log" || { cat "$next/log" >&2; exit 1; }
            gzip -9 -n -k "$index/Packages"
        done
    )
    architectures=$(cd "$next/dists/stable/main" && echo binary-* | sed 's/binary-//g')
    [[ $architectures != "*" ]] || fail "packages for all architectures alone make no repository"
    apt-ftparchive -o APT::FTPArchive::Release::Origin=Longrun -o APT::FTPArchive::Release::Label=Longrun \
        -o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable \
        -o APT::FTPArchive::Release::Components=main -o APT::FTPArchive::Release::Architectures="$architectures" \
        release "$next/dists/stable" >"$next/Release"
    mv "$next/Release" "$next/dists/stable/Release"
    if [[ -n $key ]]; then
        sign "$next/dists/stable/Release" "$next/dists/stable/InRelease" --clearsign
        sign "$next/dists/stable/Release" "$next/dists/stable/Release.gpg" --detach-sign
    fi
    rm -rf "$repository/apt/dists"
    mv "$next/dists" "$repository/apt/dists"
fi

if ((${#rpms[@]})); then
    mkdir -p "$repository/dnf"
    install -m 644 -t "$repository/dnf" "${rpms[@]}"
    if [[ -n $key ]]; then
        for rpm in "${rpms[@]}"; do
            rpmsign --define "_gpg_name $key" --define "__gpg $(command -v gpg)" --addsign "$repository/dnf/${rpm##*/}" >/dev/null 2>"$next/log" || { cat "$next/log" >&2; exit 1; }
        done
    fi
    createrepo_c --quiet --simple-md-filenames --outputdir "$next" "$repository/dnf"
    [[ -z $key ]] || sign "$next/repodata/repomd.xml" "$next/repodata/repomd.xml.asc" --detach-sign
    rm -rf "$repository/dnf/repodata"
    mv "$next/repodata" "$repository/dnf/repodata"
fi

if [[ -n $key ]]; then
    gpg --batch --yes --armor --output "$repository/longrun.asc" --export "$key"
    echo "repo: $repository is signed by $key; clients need $repository/longrun.asc"
else
    rm -f "$repository/longrun.asc"
    echo "repo: $repository is NOT signed: whoever can change it or the way to it can install anything as root. KEY= names a GPG key."
fi
