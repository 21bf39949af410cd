#!/bin/bash
# How often XFS cannot be mounted any more after a crash while an optimizer moves files: xfs_fsr, which swaps the blocks of two
# files (XFS_IOC_SWAPEXT), and Longrun, which does not. Another process writes and syncs a file meanwhile.
# Usage: measure-swap-crashes.sh [CRASHES]. LONGRUN names the program, WORK a directory with 1 GiB free.
set -euo pipefail

crashes=${1:-10}
longrun=${LONGRUN:-longrun}
((EUID == 0)) || { echo "measure-swap-crashes: loop devices need root" >&2; exit 1; }
work=$(mktemp -d "${WORK:-/var/tmp}/longrun-swap.XXXXXX")
mkdir "$work/mnt"
device='' writer=''
close() {
    [[ -z $writer ]] || { kill "$writer" 2>/dev/null && wait "$writer" || true; }
    writer=''
    ! mountpoint -q "$work/mnt" || umount "$work/mnt" || { sleep 1 && umount "$work/mnt"; }
    [[ -z $device ]] || losetup --detach "$device"
    device=''
}
trap 'close; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# Eight files in 60 pieces each, written in a random order with others between.
lay() {
    python3 - "$work/mnt" <<'PYTHON'
import os, random, sys
for name in "abcdefgh":
    path = os.path.join(sys.argv[1], name)
    file, wedge = (os.open(p, os.O_RDWR | os.O_CREAT) for p in (path, path + ".wedge"))
    os.ftruncate(file, 60 * 16384)
    order = list(range(60))
    random.Random(1).shuffle(order)
    for turn, piece in enumerate(order):
        os.pwrite(file, bytes([piece]) * 16384, piece * 16384)
        os.fdatasync(file)
        os.pwrite(wedge, b"x" * 4096, turn * 4096)
        os.fdatasync(wedge)
PYTHON
}
write_on() {
    while dd if=/dev/zero of="$work/mnt/scratch" bs=1M count=3 conv=fsync status=none && rm "$work/mnt/scratch"; do :; done
}

printf '%-10s %-24s %s\n' optimizer 'mkfs.xfs -m' 'crashes: not mountable, content changed'
for optimizer in xfs_fsr longrun; do
    for options in reflink=0,rmapbt=0 reflink=1,rmapbt=0 reflink=1,rmapbt=1; do
        [[ $optimizer != longrun || $options != reflink=0* ]] || continue
        unmountable=0 changed=0
        for ((crash = 1; crash <= crashes; crash++)); do
            rm -f "$work/image"
            truncate -s 512M "$work/image"
            mkfs.xfs -q -m "$options" "$work/image"
            device=$(losetup --find --show --direct-io=on "$work/image" 2>/dev/null || losetup --find --show "$work/image")
            mount "$device" "$work/mnt"
            lay
            umount "$work/mnt"
            mount "$device" "$work/mnt"
            sha256sum "$work"/mnt/[a-h] >"$work/before"
            write_on 2>/dev/null &
            writer=$!
            if [[ $optimizer == xfs_fsr ]]; then
                xfs_fsr "$work"/mnt/[a-e] >/dev/null
            else
                "$longrun" optimize --pace fast --mode files "$work/mnt" >/dev/null
            fi
            xfs_io -x -c shutdown "$work/mnt"
            wait "$writer" || true
            writer=''
            umount "$work/mnt" || { sleep 1 && umount "$work/mnt"; }
            if ! mount "$device" "$work/mnt" 2>/dev/null; then
                unmountable=$((unmountable + 1))
            elif ! sha256sum "$work"/mnt/[a-h] | cmp -s - "$work/before"; then
                changed=$((changed + 1))
            fi
            close
        done
        printf '%-10s %-24s %s: %s, %s\n' "$optimizer" "$options" "$crashes" "$unmountable" "$changed"
    done
done
