#!/bin/bash
# A repository that scripts/repo.sh makes of two tiny packages: apt and dnf see them, verify what a key has signed, and refuse what was changed,
# what another key signed, and what is not signed. No settings or keys of this machine are used: dnf installs into a directory.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
clean() {
    gpgconf --kill all || true
    rm -rf "$scratch"
}
trap clean EXIT
export GNUPGHOME=$scratch/gnupg
mkdir -m 700 "$GNUPGHOME"

fail() {
    echo "check-repo: $*" >&2
    [[ ! -e $scratch/log ]] || cat "$scratch/log" >&2
    exit 1
}

key() { gpg --batch --quiet --passphrase '' --quick-generate-key "$1" ed25519 sign never 2>"$scratch/log" || fail "no key"; }
key right@longrun.example
key wrong@longrun.example

mkdir -p "$scratch/packages" "$scratch/tree/DEBIAN"
printf '%s\n' "Package: longrun" "Version: 0.0.1" "Architecture: amd64" "Maintainer: Nobody <nobody@longrun.example>" "Description: nothing" \
    >"$scratch/tree/DEBIAN/control"
dpkg-deb --root-owner-group -b "$scratch/tree" "$scratch/packages/longrun_0.0.1_amd64.deb" >/dev/null
printf '%s\n' "Name: longrun" "Version: 0.0.1" "Release: 1" "Summary: nothing" "License: none" "BuildArch: noarch" "%description" "%files" \
    >"$scratch/longrun.spec"
rpmbuild -bb --quiet --define "_topdir $scratch/rpmbuild" --define "_rpmdir $scratch/packages" --define "_rpmfilename longrun-0.0.1-1.noarch.rpm" \
    "$scratch/longrun.spec" >"$scratch/log" 2>&1 || fail "no RPM"

# By relative paths, as make names them.
make_repository() {
    scripts/repo.sh "$(realpath --relative-to=. "$scratch/packages")" "$(realpath -m --relative-to=. "$scratch/repository")" "$@" >"$scratch/log" 2>&1 || fail "repo.sh $* fails"
}

# apt with directories of its own.
apt_sees_it() {
    rm -rf "$scratch/apt"
    mkdir -p "$scratch"/apt/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
    touch "$scratch/apt/status"
    echo "deb [arch=amd64 signed-by=$scratch/key.asc] file:$scratch/repository/apt stable main" >"$scratch/apt/etc/sources.list"
    local options=(-o Dir::Etc="$scratch/apt/etc" -o Dir::State="$scratch/apt/state" -o Dir::State::status="$scratch/apt/status"
        -o Dir::Cache="$scratch/apt/cache" -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" --error-on=any update >"$scratch/log" 2>&1 &&
        apt-get "${options[@]}" install --simulate longrun >"$scratch/log" 2>&1 && grep -q '^Inst longrun (0.0.1 ' "$scratch/log"
}

# dnf with directories of its own, and a root of its own into which the package is installed: that verifies metadata and package.
dnf_sees_it() {
    rm -rf "$scratch/dnf"
    mkdir -p "$scratch"/dnf/{root,repos}
    touch "$scratch/dnf/dnf.conf"
    printf '%s\n' "[longrun]" "name=Longrun" "baseurl=file://$scratch/repository/dnf" "repo_gpgcheck=$1" "gpgcheck=1" "gpgkey=file://$scratch/key.asc" \
        >"$scratch/dnf/repos/longrun.repo"
    dnf --assumeyes --quiet --config "$scratch/dnf/dnf.conf" --installroot "$scratch/dnf/root" --releasever 1 --setopt=reposdir="$scratch/dnf/repos" \
        --setopt=cachedir="$scratch/dnf/cache" --setopt=logdir="$scratch/dnf" --setopt=persistdir="$scratch/dnf/state" --setopt=plugins=0 \
        install longrun >"$scratch/log" 2>&1 && [[ $(rpm --root "$scratch/dnf/root" -q longrun) == longrun-0.0.1-1.noarch ]]
}

tools=(apt)
if command -v dnf >/dev/null; then tools+=(dnf); else echo "check-repo: dnf is not here: its side is not checked"; fi
for tool in "${tools[@]}"; do
    make_repository right@longrun.example
    cp "$scratch/repository/longrun.asc" "$scratch/key.asc"
    "${tool}_sees_it" 1 || fail "$tool does not take a repository that the right key signed"
    # What is already there stays, and is signed anew.
    make_repository right@longrun.example
    "${tool}_sees_it" 1 || fail "$tool does not take a repository that was made again"
    gpg --batch --yes --armor --output "$scratch/key.asc" --export wrong@longrun.example
    if "${tool}_sees_it" 1; then fail "$tool takes a repository that another key signed"; fi
    cp "$scratch/repository/longrun.asc" "$scratch/key.asc"
    case $tool in
        apt) sed -i 's/^Description: nothing/Description: changed/' "$scratch/repository/apt/dists/stable/main/binary-amd64/Packages" \
                && rm "$scratch/repository/apt/dists/stable/main/binary-amd64/Packages.gz" ;;
        dnf) sed -i 's/<revision>/<revision>9/' "$scratch/repository/dnf/repodata/repomd.xml" ;;
    esac
    if "${tool}_sees_it" 1; then fail "$tool takes a repository that was changed"; fi
    make_repository
    if "${tool}_sees_it" 1; then fail "$tool takes a repository that is not signed"; fi
    # The package alone, without its index.
    if [[ $tool == dnf ]] && dnf_sees_it 0; then fail "dnf takes a package that is not signed"; fi
    grep -q 'NOT signed' <(scripts/repo.sh "$scratch/packages" "$scratch/repository") || fail "repo.sh does not say that nothing is signed"
    rm -rf "$scratch/repository"
done
echo "check-repo: ${tools[*]}: signed repositories are taken; changed ones, unsigned ones and those of another key are refused"
