#!/bin/bash
# The main jobs, shown: files grow on a volume without the service and with it; then an aged volume is optimized. Or works on
# a real volume after asking.
#   demo.sh [--once]           two 2 GiB loop volumes in the cache folder; with --once it ends after the demo
#   VOLUME=/mnt/data demo.sh   analysis and dry run of a real volume, then a question
# LONGRUN names the binary. Cleans up on every exit: service, mounts, loop devices, images.
set -euo pipefail

longrun=${LONGRUN:?set LONGRUN to the longrun binary}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/longrun
# One volume to optimize, one to write to.
images=("$cache/demo.img" "$cache/demo-growing.img")
readonly longrun cache images
readonly size_mib=2048 file_mib=48
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
mount_point=
growing=
loop=
sleeper=
service=
private=

say() { printf '\n== %s\n\n' "$*"; }

fail() {
    echo "demo: $*" >&2
    exit 1
}

as_root() { if ((EUID == 0)); then "$@"; else sudo --preserve-env=TERM,COLORTERM,LANG,LC_ALL,LC_CTYPE,NO_COLOR "$@"; fi; }

# Unmounts whatever lies on an image of the demo's, also what an earlier demo left behind that was killed.
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
    done < <(as_root losetup --associated "$1" 2>/dev/null || true)
    rm -f "$1"
}

clean_up() {
    trap '' INT TERM HUP
    cd /
    [[ -z $sleeper ]] || kill "$sleeper" 2>/dev/null || true
    stop_service
    for image in "${images[@]}"; do release "$image"; done
    for directory in "$mount_point" "$growing"; do
        [[ -z $directory ]] || rmdir "$directory" 2>/dev/null || true
    done
    # Root's: the service keeps its journal there.
    [[ -z $private ]] || as_root rm -rf -- "$private"
}

# make_volume IMAGE DIRECTORY COMMAND...: a new volume by the mkfs command, mounted.
make_volume() {
    local image=$1 directory=$2 free_mib
    shift 2
    release "$image"
    free_mib=$(($(stat --file-system --format='%a * %S / 1048576' "$cache")))
    ((free_mib > size_mib + 256)) || fail "$cache has $free_mib MiB free; the demo needs $((size_mib + 256))"
    truncate --size "${size_mib}M" "$image"
    "$@" "$image"
    loop=$(as_root losetup --find --show --direct-io=on "$image" 2>/dev/null || as_root losetup --find --show "$image")
    mkdir -p "$directory"
    as_root mount -o noatime "$loop" "$directory"
}

# The service for the growing volume alone, with everything that it keeps in a folder of ours.
start_service() {
    cat >"$private/longrun.toml" <<-END
	[service]
	log_level = "warn"
	[defaults]
	enabled = false
	[[volume]]
	mount = "$growing"
	enabled = true
	mending_quiet = "1s"
	END
    # The shell writes its number down and becomes the service: sudo, if any, has another.
    # shellcheck disable=SC2016
    as_root sh -c 'echo $$ >"$1" && shift && exec "$@"' sh "$private/service.pid" "$longrun" daemon \
        --config "$private/longrun.toml" --socket "$private/longrun.sock" --state-directory "$private/state" 9>&- &
    service=$!
    local try
    for ((try = 0; try < 100; try++)); do
        as_root "$longrun" status --socket "$private/longrun.sock" >/dev/null 2>&1 && return
        kill -0 "$service" 2>/dev/null || fail "the service did not start"
        sleep 0.1
    done
    fail "the service did not answer within 10 seconds"
}

stop_service() {
    [[ -n $service ]] || return 0
    as_root kill "$(cat "$private/service.pid")" 2>/dev/null || true
    wait "$service" || true
    service=
}

write_files() { as_root "$longrun" bench write "$growing" --profile direct --bytes "${file_mib}M" --watch "$1"; }

show_prevention() {
    say "A new XFS volume; eight writers grow a file of $file_mib MiB each, without the service"
    make_volume "${images[1]}" "$growing" mkfs.xfs -q -f -L growing
    write_files 1s
    say "The same with the service at work: it gives files space ahead of their growth, and mends what slipped through"
    start_service
    write_files 6s
    say "What the service says"
    as_root "$longrun" status --socket "$private/longrun.sock"
    stop_service
    say "Measured: the same work with and without it, in turn"
    as_root "$longrun" bench prevention "$growing" --profile direct --bytes "${file_mib}M" --iterations 2
    release "${images[1]}"
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

show_optimization() {
    say "A new ext4 volume of $size_mib MiB in ${images[0]}, aged"
    make_volume "${images[0]}" "$mount_point" \
        mkfs.ext4 -q -F -L longrun-demo -E lazy_itable_init=0,lazy_journal_init=0
    as_root "$longrun" fragment --volume "$mount_point" --recipe aged --seed 42
    show "Before" before
    say "Optimizing"
    as_root "$longrun" optimize --alone --pace fast "$mount_point"
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
    local choices="[m]ap  [a]nalyze  [d]ry run  [o]ptimize  [r]epeat from a new volume  [p]revention  [q]uit > "
    while read -r -p "$choices" answer; do
        case "$answer" in
            m*) as_root "$longrun" map "$mount_point" || true ;;
            a*) as_root "$longrun" analyze "$mount_point" || true ;;
            d*) as_root "$longrun" optimize --dry-run "$mount_point" || true ;;
            o*) as_root "$longrun" optimize "$mount_point" || true ;;
            r*) show_optimization ;;
            p*) show_prevention ;;
            q*) return ;;
        esac
    done
}

real_volume() {
    say "Analysis of $VOLUME (nothing is changed)"
    as_root "$longrun" analyze "$VOLUME"
    as_root "$longrun" map "$VOLUME"
    say "What a full optimization would do (nothing is changed)"
    as_root "$longrun" optimize --mode full --dry-run "$VOLUME"
    local answer=
    read -r -p "Optimize $VOLUME now? [y/N] " answer || true
    if [[ $answer != [yY]* ]]; then
        echo "Nothing was changed."
        return
    fi
    as_root "$longrun" optimize --mode full "$VOLUME"
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
growing=$(mktemp --directory "${TMPDIR:-/tmp}/longrun-demo.XXXXXX")
private=$(mktemp --directory "${TMPDIR:-/tmp}/longrun-demo-private.XXXXXX")
show_prevention
show_optimization
[[ ${1:-} == --once ]] || menu
