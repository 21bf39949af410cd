#!/bin/bash
# Boots a Debian with its own kernel and initramfs in QEMU, with the hook that `longrun boot enable` installs, and checks that it records,
# reads ahead, and never keeps the boot from going on: with a damaged list, none, a full /run, the kernel's argument that forbids it, and
# killed. Then an initramfs of dracut: that everything is in it.
# Usage, as root: LONGRUN=longrun test-boot.sh [CASE...]   (the first boot is always done; KEEP=directory for what the guests said)
# The system is made once by debootstrap and kept in ~/.cache/longrun; nothing else of the machine is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/container.lib.sh

fail() {
    echo "test-boot: $*" >&2
    exit 1
}

((EUID == 0)) || fail "run it as root"
limit=${LIMIT:-400}
system=$(debian_root boot-machine systemd,systemd-sysv,udev,dbus,kmod,libelf1,zlib1g,e2fsprogs,initramfs-tools,linux-image-cloud-amd64,dracut-core)

work=$(mktemp -d "$HOME/.cache/longrun/boots.XXXXXX")
guest=''
finish() {
    [[ -z $guest ]] || { kill -TERM "$guest" 2>/dev/null || true; wait "$guest" 2>/dev/null || true; }
    [[ -z ${KEEP:-} ]] || cp "$work"/console-* "$work"/contents-* "$KEEP/" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

cp -a "$system" "$work/root"
root=$work/root
# A command inside, with its own /proc, which ends with it.
inside() { unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

install -m 755 "$LONGRUN" "$root/usr/bin/longrun"
strip "$root/usr/bin/longrun"
mkdir -p "$root/test"
install -m 755 scripts/test-boot-inside.sh "$root/test/inside.sh"
cat >"$root/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/test/inside.sh
StandardOutput=file:/dev/ttyS0
StandardError=inherit
ExecStopPost=/usr/bin/systemctl --no-block poweroff
[Install]
WantedBy=default.target
UNIT
inside systemctl enable -q test.service
# A login hangs up the line on which the test tells.
inside systemctl mask -q serial-getty@ttyS0.service
inside systemctl set-default -q multi-user.target

# The fault is made right before the hook, and undone after it; both tell when.
scripts=$root/etc/initramfs-tools/scripts
cat >"$scripts/local-bottom/test" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && { echo; exit 0; }
read -r line </proc/cmdline
case "$line" in *test=full-run*) cat /dev/zero >/run/fill 2>/dev/null ;; esac
echo "test: before the hook" >/dev/kmsg
exit 0
HOOK
cat >"$scripts/init-bottom/test" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && { echo longrun; exit 0; }
echo "test: after the hook" >/dev/kmsg
read -r line </proc/cmdline
case "$line" in
*test=killed*)
    for process in /proc/[0-9]*; do
        name=
        read -r name 2>/dev/null <"$process/comm"
        [ "$name" = longrun ] && kill -9 "${process#/proc/}" && echo "test: killed ${process#/proc/}" >/dev/kmsg
    done
    ;;
# Whatever follows needs a little of /run, too.
*test=full-run*)
    sleep 5
    echo x 2>/dev/null >/run/more || echo "test: /run is still full" >/dev/kmsg
    # There is no rm in an initramfs without busybox.
    : >/run/fill
    : >/run/more
    ;;
esac
exit 0
HOOK
chmod 755 "$scripts/local-bottom/test" "$scripts/init-bottom/test"

echo "Installing the hook, and making the initramfs"
inside longrun boot enable
version=$(basename "$root"/lib/modules/*)
inside update-initramfs -u -k "$version" >"$work/contents-log" 2>&1 || { cat "$work/contents-log" >&2; fail "update-initramfs failed"; }
inside lsinitramfs "/boot/initrd.img-$version" >"$work/contents-initramfs-tools"
for file in usr/bin/longrun scripts/init-bottom/longrun; do
    grep -qx "$file" "$work/contents-initramfs-tools" || fail "the initramfs has no $file"
done
cp "$root/boot/vmlinuz-$version" "$work/kernel"
cp "$root/boot/initrd.img-$version" "$work/initramfs"
truncate -s 2G "$work/disk"
mkfs.ext4 -q -F -E lazy_itable_init=0 "$work/disk"
# Not by mkfs -d, which makes files without generations. The mount ends with its namespace.
mkdir "$work/mounted"
unshare --mount bash -ec 'mount -o loop "$1/disk" "$1/mounted" && cp -a "$1/root/." "$1/mounted/"' copy "$work"

# Boots once: boots CASE [ARGUMENTS OF THE KERNEL].
boots() {
    local case=$1 begun=$SECONDS
    shift
    qemu-system-x86_64 -machine pc,accel=tcg -cpu max -smp 2 -m 1024 -nographic -no-reboot -nodefaults -serial stdio \
        -kernel "$work/kernel" -initrd "$work/initramfs" \
        -append "console=ttyS0 quiet panic=-1 root=/dev/vda rw net.ifnames=0 test=$case $*" \
        -drive "file=$work/disk,format=raw,if=none,id=disk,cache=unsafe,aio=threads" \
        -device virtio-blk-pci,drive=disk </dev/null >"$work/console-$case" 2>&1 &
    guest=$!
    while kill -0 "$guest" 2>/dev/null; do
        ((SECONDS - begun < limit)) || { tail -50 "$work/console-$case" >&2; fail "$case: not at its end within $limit s"; }
        sleep 1
    done
    wait "$guest" || true
    guest=''
    tr -d '\r' <"$work/console-$case" | grep -aoE '(told|passed|FAILED|verdict): .*' || true
    echo "$case: $((SECONDS - begun)) s"
    grep -aq '^verdict: passed' "$work/console-$case" || { cat "$work/console-$case" >&2; fail "$case: see above"; }
}

cases=("$@")
((${#cases[@]})) || cases=(ahead full-run killed forbidden damaged missing)
boots first
for case in "${cases[@]}"; do
    case $case in
        dracut) ;; # below
        forbidden) boots "$case" longrun.preload=0 ;;
        *) boots "$case" ;;
    esac
done

# dracut: everything must be in an initramfs made with its module.
if ((!$#)) || [[ " $* " == *" dracut "* ]]; then
    inside dracut --force --no-hostonly --kver "$version" /test/dracut.img >"$work/contents-dracut-log" 2>&1 ||
        { cat "$work/contents-dracut-log" >&2; fail "dracut failed"; }
    inside lsinitrd /test/dracut.img >"$work/contents-dracut"
    for file in usr/bin/longrun usr/bin/bash lib/dracut/hooks/pre-pivot/95-longrun.sh libelf.so.1 libz.so.1; do
        grep -qE "[ /]$file( |\$)" "$work/contents-dracut" || fail "dracut's initramfs has no $file"
    done
    echo "passed: dracut's initramfs has the program, its libraries and the hook"
fi
