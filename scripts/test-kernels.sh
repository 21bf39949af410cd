#!/bin/bash
# Boots the distribution's own kernel in QEMU and checks there what depends on the kernel: optimizing, prevention with BPF and
# without, and the checkers, on ext4, XFS and btrfs, on rotating and solid-state devices (`longrun-lab kernels`).
# Usage: test-kernels.sh [ARGUMENTS OF longrun-lab kernels]. LONGRUN and LAB name the programs, KERNEL the package (default
# linux-image-cloud-amd64), UNIT the unit tests of longrun-volume (of which that of its BPF programs is run), LIMIT the seconds
# that all may take (default 3600), KEEP a directory for what the guest said.
# Nothing of the machine is changed but ~/.cache/longrun; root is not needed.
set -euo pipefail

longrun=${LONGRUN:-longrun} lab=${LAB:-longrun-lab} limit=${LIMIT:-3600}
fail() { echo "test-kernels: $*" >&2; exit 1; }
source "$(dirname "$0")/guest.lib.sh"
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
for tool in qemu-system-x86_64 busybox cpio depmod modprobe mkfs.ext4 mkfs.xfs mkfs.btrfs; do
    command -v "$tool" >/dev/null || fail "$tool is missing: scripts/prepare.sh kernels installs it"
done

work=$(mktemp -d /var/tmp/longrun-kernels.XXXXXX)
guest=''
finish() {
    [[ -z $guest ]] || { kill -TERM "$guest" 2>/dev/null || true; wait "$guest" 2>/dev/null || true; }
    [[ -z ${KEEP:-} || ! -e $work/console ]] || cp "$work/console" "$KEEP/" || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

guest_kernel "${KERNEL:-}"

# What the guest starts with: busybox, our programs, the tools that these call, and modules.
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,work,etc,var/lib}
ln -s bin "$root/sbin"
guest_program "$root" busybox
"$root/bin/busybox" --install -s "$root/bin"
# The links must lead to the guest's busybox.
find "$root/bin" -type l -exec ln -sf /bin/busybox {} \;
guest_program "$root" "$longrun" longrun
guest_program "$root" "$lab" longrun-lab
[[ -z ${UNIT:-} ]] || guest_program "$root" "$UNIT" volume-tests
for tool in mkfs.ext4 e2fsck filefrag debugfs mkfs.xfs xfs_repair xfs_db xfs_io mkfs.btrfs btrfs losetup mount umount unshare \
    setpriv blockdev cp chattr setfattr setfacl getfattr setcap chrt setquota quotaon quotacheck repquota xfs_quota; do
    rm -f "$root/bin/$tool"
    guest_program "$root" "$tool"
done
for file in /etc/mke2fs.conf /etc/passwd /etc/group; do cp "$file" "$root/etc/"; done
ln -s /proc/self/mounts "$root/etc/mtab"
guest_modules "$root" virtio_pci virtio_blk loop ext4 xfs btrfs fuse quota_v2 crc32c_generic crc32c_intel
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin LONGRUN_LAB_DIR=/work/lab LONGRUN_BIN=/bin/longrun RUST_BACKTRACE=0
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
for module in virtio_pci virtio_blk loop max_part ext4 xfs btrfs fuse quota_v2; do modprobe -q $module; done
while [ ! -e /dev/vda ]; do sleep 0.1; done
mkfs.ext4 -q -F /dev/vda && mount -o noatime /dev/vda /work && mkdir /work/lab || echo "FAILED: no place to work"
ip link set lo up 2>/dev/null
echo "guest: Linux $(uname -r)"
[ -e /sys/kernel/btf/vmlinux ] && echo "guest: BTF is there" || echo "guest: BTF is not there"
verdict=passed
longrun-lab kernels $(cat /etc/arguments) || verdict=failed
if [ -x /bin/volume-tests ]; then
    volume-tests loop_commits --test-threads 1 >/tmp/told 2>&1 && grep -q ' 1 passed' /tmp/told && echo "passed: commits of ext4 are told" ||
        { cat /tmp/told; echo "FAILED: commits of ext4 are not told"; verdict=failed; }
fi
if longrun-lab quotas --help >/dev/null 2>&1; then
    longrun-lab quotas && echo "passed: quotas" || { echo "FAILED: quotas"; verdict=failed; }
else
    echo "guest: longrun-lab knows no quotas"
fi
dmesg | grep -E 'BUG|WARNING:|Call Trace|corrupt|I/O error' && { echo "FAILED: the kernel complains"; verdict=failed; }
echo "verdict: $verdict"
sync; poweroff -f
INIT
chmod +x "$root/init"
printf '%s\n' "$*" >"$root/etc/arguments"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initramfs"
truncate -s 12G "$work/disk"

# Twice as much as needed: pages of the image that it no longer needs are not given back.
qemu-system-x86_64 -machine pc,accel=tcg -cpu max -smp 2 -m 2048 -nographic -no-reboot -nodefaults -serial stdio \
    -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
    -drive "file=$work/disk,format=raw,if=none,id=disk,cache=unsafe,aio=threads,discard=unmap" \
    -device virtio-blk-pci,drive=disk </dev/null >"$work/console" 2>&1 &
guest=$!
echo "test-kernels: Linux $version in QEMU, at most $limit s"

# Its lines as they come, and its end.
shown=0
show() {
    local all
    all=$(tr -d '\r' <"$work/console" | grep -aE '^(guest|passed|FAILED|verdict):' || true)
    [[ -z $all ]] || tail -n "+$((shown + 1))" <<<"$all"
    shown=$(grep -c . <<<"$all" || true)
}
until=$((SECONDS + limit))
while kill -0 "$guest" 2>/dev/null; do
    show
    if ((SECONDS > until)); then
        tail -50 "$work/console" >&2
        fail "the guest has not come to its end within $limit s"
    fi
    sleep 1
done
wait "$guest" || true
guest=''
show
if ! grep -aq '^verdict: passed' "$work/console"; then
    cat "$work/console" >&2
    fail "not everything works on Linux $version: see above"
fi
