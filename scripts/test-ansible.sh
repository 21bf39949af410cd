#!/bin/bash
# The fleet without a server, as docs/fleet-without-a-server.md has it: five booted containers on a network of their own, a signed repository
# on a web server, and the plays of packaging/ansible by ssh; then a broker, as docs/fleet-hosts.md has it. test-ansible-inside.sh says what is tried.
# Usage, as root: test-ansible.sh PACKAGES   (a directory with longrun, longrun-web and longrun-fleet as NAME_VERSION_ARCH.deb)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/version.lib.sh
. scripts/container.lib.sh

fail() {
    echo "test-ansible: $*" >&2
    exit 1
}

((EUID == 0)) || fail "run it as root"
version=$(version_of_workspace)
architecture=$(dpkg --print-architecture)
packages=$(realpath "$1")
for name in longrun longrun-web longrun-fleet; do
    [[ -e $packages/${name}_${version}_$architecture.deb ]] || fail "${name}_${version}_$architecture.deb is missing in $packages: make deb makes it"
done
container=$(container_root)
# The containers have no network.
prometheus=$(scripts/promtool.sh prometheus)
promtool=$(scripts/promtool.sh)

HOSTS="alpha beta gamma delta epsilon"
scratch=$(mktemp -d "$HOME/.cache/longrun/ansible.XXXXXX")
cgroup=longrun-test-$$
loops=()
clean() {
    # The containers have ended with the process that was first in their name space.
    ((!${#loops[@]})) || losetup -d "${loops[@]}"
    find /sys/fs/cgroup -maxdepth 6 -type d -path "*/$cgroup-*" -prune 2>/dev/null | while read -r group; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    gpgconf --kill all || true
    rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 1' INT TERM

# The version that is installed first, the next one, and one that does not work.
export GNUPGHOME=$scratch/gnupg
mkdir -m 700 "$GNUPGHOME"
for key in right wrong; do
    gpg --batch --quiet --passphrase '' --quick-generate-key $key@longrun.example ed25519 sign never 2>"$scratch/log" || fail "no key: $(cat "$scratch/log")"
done
gpg --batch --armor --output "$scratch/wrong.asc" --export wrong@longrun.example
mkdir -p "$scratch"/{first,next,broken}
cp "$packages"/longrun{,-web,-fleet}_"${version}_$architecture".deb "$scratch/first/"
for name in longrun longrun-web longrun-fleet; do
    next_version "$scratch/first/${name}_${version}_$architecture.deb" "$version+next" "$scratch/tree" "$scratch/next/${name}_$version+next_$architecture.deb"
    next_version "$scratch/first/${name}_${version}_$architecture.deb" "$version+next2" "$scratch/tree" "$scratch/broken/${name}_$version+next2_$architecture.deb"
done
dpkg-deb -R "$scratch/broken/longrun_$version+next2_$architecture.deb" "$scratch/tree"
printf '#!/bin/sh\nexit 1\n' >"$scratch/tree/usr/bin/longrun"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$scratch/tree" "$scratch/broken/longrun_$version+next2_$architecture.deb" >/dev/null
scripts/repo.sh "$scratch/first" "$scratch/repository" right@longrun.example

ssh-keygen -q -t ed25519 -N '' -f "$scratch/ssh-key"
address=10
for host in $HOSTS; do
    address=$((address + 1))
    root=$scratch/$host
    cp -a --reflink=auto "$container" "$root"
    mkdir -p "$root/test" "$root/root/.ssh"
    install -m 755 scripts/test-ansible-writer.py "$root/test/writer.py"
    install -m 600 "$scratch/ssh-key.pub" "$root/root/.ssh/authorized_keys"
    # Without a login session: this is no machine that audits.
    echo "UsePAM no" >>"$root/etc/ssh/sshd_config"
    echo "$host" >"$root/etc/hostname"
    # Nothing is installed but from the repository of this test.
    : >"$root/etc/apt/sources.list"
    printf '[Match]\nName=host0\n[Network]\nAddress=192.0.2.%s/24\n' "$address" >"$root/etc/systemd/network/10-test.network"
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
    ln -sf /lib/systemd/system/systemd-networkd.service "$root/etc/systemd/system/multi-user.target.wants/"
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    truncate -s 1G "$scratch/$host.volume"
    loop=$(losetup -f --show "$scratch/$host.volume")
    loops+=("$loop")
    # XFS: ext4 keeps files that grow like those of the test whole by itself.
    mkfs.xfs -q "$loop"
    echo "$host $address $loop" >>"$scratch/hosts"
done

# Name spaces of its own for network, processes and mounts: what is started there ends with it.
status=0
SCRATCH=$scratch VERSION=$version CGROUP=$cgroup PROMETHEUS=$prometheus PROMTOOL=$promtool timeout --kill-after=10 "${LIMIT:-2400}" \
    unshare --net --pid --fork --kill-child --mount-proc scripts/test-ansible-inside.sh </dev/null || status=$?
for loop in "${loops[@]}"; do
    for _ in {1..50}; do
        if xfs_repair -n "$loop" >"$scratch/repair" 2>&1; then break; fi
        sleep 0.2
    done
    xfs_repair -n "$loop" >"$scratch/repair" 2>&1 || { cat "$scratch/repair" >&2; fail "the volume $loop is damaged"; }
done
((status == 0)) || fail "not all of it passed (status $status)"
