#!/bin/bash
# Two virtual machines on one modelled disk: how soon the optimizer in the one backs off when the other uses the disk, of which
# the first sees nothing but how long its own small reads take. Both are emulated; times are those of this machine, by what the
# two halves of the disk were asked for.
# Usage: measure-guests.sh [BURSTS [MODEL]]. LONGRUN, LAB and NEIGHBOUR name the programs, KEEP a directory for what was seen.
set -euo pipefail

bursts=${1:-10} model=${2:-san}
longrun=${LONGRUN:-longrun} lab=${LAB:-longrun-lab} neighbour=${NEIGHBOUR:-neighbour}
fail() { echo "measure-guests: $*" >&2; exit 1; }
source "$(dirname "$0")/guest.lib.sh"
((EUID == 0)) || fail "modelled disks need root"
for tool in qemu-system-x86_64 busybox cpio depmod; do
    command -v "$tool" >/dev/null || fail "$tool is missing: scripts/prepare.sh guests installs it"
done

work=$(mktemp -d /var/tmp/longrun-guests.XXXXXX)
disk='' first='' second='' mounted=''
finish() {
    local each
    for each in $first $second; do kill -TERM "$each" 2>/dev/null || true; done
    for each in $first $second; do wait "$each" 2>/dev/null || true; done
    [[ -z $mounted ]] || umount "$mounted" || true
    # Its own handler takes the disk down.
    [[ -z $disk ]] || { kill -TERM "$disk" 2>/dev/null || true; wait "$disk" 2>/dev/null || true; }
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

guest_kernel

# What both guests start with: busybox, our programs with the libraries that they need, and the modules for the disk.
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,mnt,var/lib}
guest_program "$root" busybox
guest_program "$root" "$longrun" longrun
guest_program "$root" "$neighbour" neighbour
guest_modules "$root" virtio_pci virtio_blk ext4 crc32c_generic
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp
modprobe virtio_pci; modprobe virtio_blk; modprobe ext4
while [ ! -e /dev/vda ]; do sleep 0.1; done
for word in $(cat /proc/cmdline); do case $word in longrun.*) export "${word#longrun.}" ;; esac; done
if [ "$role" = optimizer ]; then
    mount -o noatime /dev/vda /mnt && longrun optimize --mode files --json /mnt/work 2>&1 | tail -c 4000
else
    # At random times, so that nothing that is periodic meets them.
    n=0
    while [ $n -lt "$bursts" ]; do
        n=$((n + 1)); sleep $((8 + RANDOM % 8)); timeout 5 neighbour visit /dev/vda
    done
fi
sync; poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initramfs"

# The disk, and on the first guest's half a volume with fragmented files, made in no time.
"$lab" disk --model "$model" --clients 2 --mebibytes 1024 >"$work/disk" 2>&1 &
disk=$!
until grep -q 'Ctrl-C removes it' "$work/disk"; do kill -0 "$disk" 2>/dev/null || fail "$(cat "$work/disk")"; sleep 0.1; done
mapfile -t devices < <(grep -o '/dev/loop[0-9]*' "$work/disk")
control=$(dirname "$(losetup -n -O BACK-FILE "${devices[0]}")")/control
echo -n bypass >"$control"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "${devices[0]}"
mkdir "$work/mnt"
mount -o noatime "${devices[0]}" "$work/mnt"
mounted=$work/mnt
mkdir "$mounted/work"
for number in $(seq 32); do
    "$longrun" fragment "$mounted/work/$number" --size 16M --fragments 2048 >/dev/null 2>&1 || fail "cannot make files"
done
umount "$mounted"
mounted=''
echo -n model >"$control"

guest() {
    local role=$1 device=$2
    exec qemu-system-x86_64 -machine pc,accel=tcg -cpu max -smp 1 -m 768 -nographic -no-reboot -nodefaults -serial stdio \
        -kernel "$kernel" -initrd "$work/initramfs" \
        -append "console=ttyS0 quiet panic=-1 longrun.role=$role longrun.bursts=$bursts" \
        -drive "file=$device,format=raw,if=none,id=disk,cache=none,aio=threads" -device virtio-blk-pci,drive=disk \
        </dev/null >"$work/$role" 2>&1
}
guest optimizer "${devices[0]}" &
first=$!
# The visits begin when the optimizer is at work.
writes() { awk '{ print $7 }' "/sys/block/${devices[0]##*/}/stat"; }
since=$(writes)
waited=0
until (($(writes) > since + 32768)); do
    kill -0 "$first" 2>/dev/null || fail "the first guest ended: $(tail -5 "$work/optimizer")"
    ((waited++ < 300)) || fail "the optimizer does nothing: $(tail -5 "$work/optimizer")"
    sleep 1
done
guest visitor "${devices[1]}" &
second=$!

# Time, and the sectors that each half has read and written so far, 50 times a second.
stats=("/sys/block/${devices[0]##*/}/stat" "/sys/block/${devices[1]##*/}/stat")
exec {never}<> <(:)
while kill -0 "$second" 2>/dev/null && kill -0 "$first" 2>/dev/null; do
    read -r -a one <"${stats[0]}"
    read -r -a two <"${stats[1]}"
    echo "$EPOCHREALTIME $((one[2] + one[6])) $((two[2] + two[6]))"
    read -r -t 0.02 -u "$never" || true
done >"$work/samples"

# A burst begins with the first request after 2 s without one. The optimizer has backed off when it does no more than its small
# reads do (at most 64 KiB in half a second).
awk -v bursts="$bursts" '
    { time[NR] = $1; own[NR] = $2; other[NR] = $3 }
    END {
        step = 25; quiet_since = time[1]
        for (n = 2; n <= NR; n++) {
            if (other[n] == other[n - 1]) continue
            if (time[n] - quiet_since > 2 && n > step && own[n] - own[n - step] > 512) {
                begun = time[n]; off = -1
                for (m = n; m + step <= NR && time[m] < begun + 5; m++)
                    if (own[m + step] - own[m] <= 128) { off = time[m] - begun; break }
                seen++
                if (off >= 0) { delays[++noticed] = off }
            }
            quiet_since = time[n]
        }
        for (a = 2; a <= noticed; a++) for (b = a; b > 1 && delays[b] < delays[b - 1]; b--) {
            t = delays[b]; delays[b] = delays[b - 1]; delays[b - 1] = t
        }
        printf "%d bursts of the second guest while the optimizer in the first was at work (of %d): ", seen, bursts
        printf "it backed off in %d, after %.2f s (median), %.2f s (longest)\n", noticed, delays[int((noticed + 1) / 2)], delays[noticed]
    }' "$work/samples"
[[ -z ${KEEP:-} ]] || cp "$work"/{samples,optimizer,visitor} "$KEEP"
