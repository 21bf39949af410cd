#!/bin/bash
# The main job, shown: makes and ages a volume, and optimizes it; or works on a real volume after asking.
#   demo.sh [--once]           2 GiB loop volume in the cache folder; with --once it ends after the demo
#   VOLUME=/mnt/data demo.sh   analysis and dry run of a real volume, then a question
# LONGRUN names the binary. Cleans up on every exit: mount, loop device, image.
set -euo pipefail

longrun=${LONGRUN:?set LONGRUN to the longrun binary}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/longrun
image=$cache/demo.img
readonly longrun cache image
readonly size_mib=2048
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
mount_point=
loop=
sleeper=
private=

say() { printf '\n== %s\n\n' "$*"; }

fail() {
    echo "demo: $*" >&2
    exit 1
}

as_root() { if ((EUID == 0)); then "$@"; else sudo --preserve-env=TERM,COLORTERM,LANG,LC_ALL,LC_CTYPE,NO_COLOR "$@"; fi; }

# Unmounts whatever lies on the demo's image, also what an earlier demo left behind that was killed.
release() {
    local device target
    while IFS=: read -r device _; do
        [[ -n $device ]] || continue
        while IFS= read -r target; do
            [[ -n $target ]] || continue
            as_root umount "$target" || as_root umount --lazy "$target" || true
            # What somebody else mounted there is not ours to remove.
            [[ $target != */longrun-demo.* ]] || rmdir "$target" 2>/dev/null || true
        done < <(findmnt --noheadings --output TARGET --source "$device" || true)
        as_root losetup --detach "$device" || true
    done < <(as_root losetup --associated "$image" 2>/dev/null || true)
}

clean_up() {
    trap '' INT TERM HUP
    cd /
    [[ -z $sleeper ]] || kill "$sleeper" 2>/dev/null || true
    release
    [[ -z $mount_point ]] || rmdir "$mount_point" 2>/dev/null || true
    [[ -z $private ]] || rm -rf -- "$private"
    rm -f "$image"
}

make_volume() {
    release
    rm -f "$image"
    local free_mib
    free_mib=$(($(stat --file-system --format='%a * %S / 1048576' "$cache")))
    ((free_mib > size_mib + 256)) || fail "$cache has $free_mib MiB free; the demo needs $((size_mib + 256))"
    say "A new ext4 volume of $size_mib MiB in $image, aged"
    truncate --size "${size_mib}M" "$image"
    mkfs.ext4 -q -F -L longrun-demo -E lazy_itable_init=0,lazy_journal_init=0 "$image"
    loop=$(as_root losetup --find --show --direct-io=on "$image" 2>/dev/null || as_root losetup --find --show "$image")
    as_root mount -o noatime "$loop" "$mount_point"
    as_root "$longrun" fragment --volume "$mount_point" --recipe aged --seed 42
}

show() {
    say "$1"
    as_root "$longrun" map "$mount_point"
    as_root "$longrun" analyze --top 5 "$mount_point"
    # Root writes only where nobody else can; the copy in the user's folder is made by the user.
    local picture=$private/$2.png
    as_root "$longrun" map "$mount_point" --png "$picture"
    rm -f "$cache/$2.png"
    as_root cat "$picture" >"$cache/$2.png"
}

demonstrate() {
    make_volume
    show "Before" before
    say "Optimizing"
    as_root "$longrun" optimize "$mount_point"
    show "After" after
}

menu() {
    local answer
    say "The volume stays mounted at $mount_point until you quit; pictures: $cache/before.png, $cache/after.png"
    if [[ ! -t 0 ]]; then
        echo "Ctrl-C or SIGTERM ends the demo and cleans up."
        # In the background, so that a signal is answered at once.
        # Without the lock, which would outlive us in it.
        sleep infinity 9>&- &
        sleeper=$!
        wait "$sleeper"
    fi
    while read -r -p "[m]ap  [a]nalyze  [d]ry run  [o]ptimize  [r]epeat from a new volume  [q]uit > " answer; do
        case "$answer" in
            m*) as_root "$longrun" map "$mount_point" || true ;;
            a*) as_root "$longrun" analyze "$mount_point" || true ;;
            d*) as_root "$longrun" optimize --dry-run "$mount_point" || true ;;
            o*) as_root "$longrun" optimize "$mount_point" || true ;;
            r*) demonstrate ;;
            q*) return ;;
        esac
    done
}

real_volume() {
    say "Analysis of $VOLUME (nothing is changed)"
    as_root "$longrun" analyze "$VOLUME"
    as_root "$longrun" map "$VOLUME"
    say "What a full optimization would do (nothing is changed)"
    as_root "$longrun" optimize --dry-run "$VOLUME"
    local answer=
    read -r -p "Optimize $VOLUME now? [y/N] " answer || true
    if [[ $answer != [yY]* ]]; then
        echo "Nothing was changed."
        return
    fi
    as_root "$longrun" optimize "$VOLUME"
    as_root "$longrun" map "$VOLUME"
    as_root "$longrun" analyze --top 5 "$VOLUME"
}

if [[ -n ${VOLUME:-} ]]; then
    real_volume
    exit
fi
[[ $# -eq 0 || $* == --once ]] || fail "usage: make run [ARGS=--once] [VOLUME=/mount/point]"
[[ $cache == /* ]] || fail "XDG_CACHE_HOME must be an absolute path, not ${XDG_CACHE_HOME:-}"
mkdir -p "$cache"
[[ -O $cache ]] || fail "$cache belongs to another user; set XDG_CACHE_HOME to a folder of yours"
# The lock tells a demo that runs from one that was killed, whose remains may be cleared away.
exec 9>"$cache/demo.lock"
flock --nonblock 9 || fail "another demo is running (lock: $cache/demo.lock)"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mount_point=$(mktemp --directory "${TMPDIR:-/tmp}/longrun-demo.XXXXXX")
private=$(mktemp --directory "${TMPDIR:-/tmp}/longrun-pictures.XXXXXX")
demonstrate
[[ ${1:-} == --once ]] || menu
