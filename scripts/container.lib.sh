# For scripts that try packages in booted containers (systemd-nspawn), which are run in the root of the workspace.

# What the packages need, and what the tests need: passwd has groupdel, Ansible wants Python, its way in is ssh.
container_packages=systemd,systemd-sysv,dbus,libelf1,zlib1g,e2fsprogs,passwd,python3,python3-apt,openssh-server

# Prints the directory of a Debian of this release that containers are copied from. It is made once, and made anew when the list above changes.
container_root() {
    local base
    base=$HOME/.cache/longrun/container-$(dpkg --print-architecture)
    if [[ $(cat "$base/complete" 2>/dev/null) != "$container_packages" ]]; then
        rm -rf "$base"
        mkdir -p "$base"
        echo "Making the root of the containers, once (a minute or two)" >&2
        debootstrap --variant=minbase --include="$container_packages" "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$base/root" \
            >"$base/log" 2>&1 || { echo "debootstrap failed; see $base/log" >&2; return 1; }
        rm -rf "$base"/root/var/cache/apt/archives/*.deb
        echo "$container_packages" >"$base/complete"
    fi
    echo "$base/root"
}

# Makes the next version of a package: the same files with another number, and a program that differs by some bytes behind its end.
# Usage: next_version PACKAGE VERSION SCRATCH RESULT
next_version() {
    rm -rf "$3"
    dpkg-deb -R "$1" "$3"
    sed -i "s/^Version: .*/Version: $2/; s/\(longrun (=\) [^)]*)/\1 $2)/" "$3/DEBIAN/control"
    local program
    for program in "$3"/usr/bin/longrun*; do printf '%s' "$2" >>"$program"; done
    (cd "$3" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zgzip -z1 -b "$3" "$4" >/dev/null
    rm -rf "$3"
}

# What a container needs so that the service in it has its capabilities, BPF and block devices. Further arguments of nspawn follow.
# Usage: boot_container ROOT ARGUMENT...
boot_container() {
    local root=$1
    shift
    exec systemd-nspawn -D "$root" --register=no --keep-unit --boot --quiet --capability=all \
        --system-call-filter="bpf perf_event_open fanotify_init fanotify_mark open_by_handle_at name_to_handle_at quotactl quotactl_fd" \
        --property=DeviceAllow="block-loop rw" --console=pipe "$@"
}
