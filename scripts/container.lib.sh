# For scripts that boot a Debian, which are run in the root of the workspace.

# What the packages need, and what the tests need: passwd has groupdel, Ansible wants Python, its way in is ssh.
container_packages=systemd,systemd-sysv,dbus,libelf1,zlib1g,e2fsprogs,passwd,python3,python3-apt,openssh-server

# Prints the directory of the Debian that containers are copied from.
container_root() { debian_root "container-$(dpkg --print-architecture)" "$container_packages"; }

# Prints the directory of a Debian of this release with these packages, which is kept by this name in ~/.cache/longrun. It is made once, and
# made anew when the list changes. Usage: debian_root NAME PACKAGE,PACKAGE
debian_root() (
    set -e
    base=$HOME/.cache/longrun/$1
    mkdir -p "$HOME/.cache/longrun"
    # Another script may be making it.
    exec 9>"$base.lock"
    flock 9
    if [[ $(cat "$base/complete" 2>/dev/null) != "$2" ]]; then
        rm -rf --one-file-system "$base"
        mkdir "$base"
        echo "Making $base, once (a few minutes)" >&2
        # Its mounts end with it: where it fails they would stay, and the next removal would go through this machine's /proc.
        unshare --mount debootstrap --variant=minbase --include="$2" "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$base/root" \
            >"$base/log" 2>&1 || { echo "debootstrap failed; see $base/log" >&2; exit 1; }
        rm -f "$base"/root/var/cache/apt/archives/*.deb
        echo "$2" >"$base/complete"
    fi
    echo "$base/root"
)

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

# Makes an authority and the certificate of a broker, as docs/fleet-hosts.md says: ca.pem, server.pem and server.key in DIRECTORY.
# Usage: broker_certificate DIRECTORY NAME   (DNS:… or IP:…)
broker_certificate() (
    set -e
    mkdir -p "$1"
    cd "$1"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj '/CN=fleet CA' \
        -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN=nats' -keyout server.key -out server.csr
    printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "$2" >server.ext
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 -extfile server.ext -out server.pem
)
