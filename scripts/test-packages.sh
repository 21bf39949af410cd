#!/bin/bash
# The life of the Debian package in a booted container: install, start, a real volume looked after, an upgrade in the middle of
# prevention, disabled stays disabled, the console beside it, a fleet of one host with its broker, remove keeps, purge leaves nothing.
# Usage, as root: test-packages.sh PACKAGES   (a directory with longrun, longrun-web and longrun-fleet as NAME_VERSION_ARCH.deb)
# The root of the container is made once by debootstrap and kept in ~/.cache/longrun; what is tried in it is removed afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/version.lib.sh
. scripts/container.lib.sh

fail() {
    echo "test-packages: $*" >&2
    exit 1
}

((EUID == 0)) || fail "run it as root"
version=$(version_of_workspace)
architecture=$(dpkg --print-architecture)
packages=$(realpath "$1")
for name in longrun longrun-web longrun-fleet; do
    [[ -e $packages/${name}_${version}_$architecture.deb ]] || fail "${name}_${version}_$architecture.deb is missing in $packages: make deb makes it"
done
package=$packages/longrun_${version}_$architecture.deb

container=$(container_root)
scratch=$(mktemp -d "$HOME/.cache/longrun/packages.XXXXXX")
loop=
clean() {
    # The container has ended, or ends with this process; nothing of the volume is mounted outside of it.
    [[ -z $loop ]] || losetup -d "$loop"
    rm -rf "$scratch"
}
trap clean EXIT

cp -a "$container" "$scratch/root"
root=$scratch/root
mkdir -p "$root/test"
cp "$package" "$root/test/first.deb"
cp "$packages/longrun-web_${version}_$architecture.deb" "$root/test/web.deb"
cp "$packages/longrun-fleet_${version}_$architecture.deb" "$root/test/fleet.deb"
# The broker of the fleet, and its certificate. The container has no network.
mkdir "$root/test/broker"
(cd "$root/test/broker" && apt-get download -qq -o APT::Sandbox::User=root nats-server)
broker_certificate "$root/test/keys" DNS:nats.example.com >"$scratch/keys" 2>&1 || fail "no certificate: $(cat "$scratch/keys")"

next_version "$package" "$version+next" "$scratch/next" "$root/test/next.deb"

truncate -s 1G "$scratch/volume"
loop=$(losetup -f --show "$scratch/volume")
# XFS: ext4 keeps files that grow like those of the test whole by itself.
mkfs.xfs -q "$loop"

install -m 755 scripts/test-packages-inside.sh "$root/test/inside.sh"
cat >"$root/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/test/inside.sh
StandardOutput=file:/test/log
StandardError=inherit
ExecStopPost=/usr/bin/systemctl --no-block poweroff
UNIT
mkdir -p "$root/etc/systemd/system/default.target.wants"
ln -sf /etc/systemd/system/test.service "$root/etc/systemd/system/default.target.wants/test.service"
ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"

# The service needs its capabilities, BPF, and the device of the volume. The container gets a copy of the device's node.
status=0
timeout --kill-after=10 600 bash -c '. scripts/container.lib.sh; boot_container "$@"' test-packages "$root" --private-network \
    --bind="$loop" --setenv=VOLUME="$loop" >"$scratch/console" 2>&1 </dev/null || status=$?
cat "$root/test/log" 2>/dev/null || true
xfs_repair -n "$loop" >"$scratch/repair" 2>&1 || { cat "$scratch/repair" >&2; fail "the volume is damaged"; }
grep -qx passed "$root/test/result" 2>/dev/null || {
    tail -30 "$scratch/console" >&2
    fail "the container ended with status $status, and not all of it passed"
}
