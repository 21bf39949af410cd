# Guests with a kernel of the distribution, for scripts that boot one in QEMU: to be sourced, after `fail` is defined.
# A kernel is taken without installing it, and kept in ~/.cache/longrun. Nothing is started here.

# Takes the kernel of a package (linux-image-cloud-amd64 unless another is named), with its modules; sets `kernel`, `version`
# and `modules`. Where the distribution has no such package, put a kernel into the directory that the message names.
guest_kernel() {
    local package=${1:-linux-image-cloud-amd64} cache fetched
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/longrun/guest-kernel
    [[ $package == linux-image-cloud-amd64 ]] || cache=$cache-$package
    if ! compgen -G "$cache/boot/vmlinuz-*" >/dev/null; then
        # A package without a version only names one that has.
        fetched=$(apt-cache depends "$package" 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }')
        fetched=${fetched:-$package}
        (cd "$work" && apt-get -o APT::Sandbox::User=root download -qq "$fetched") ||
            fail "cannot download $fetched; put a kernel into $cache (boot/vmlinuz-*, lib/modules)"
        mkdir -p "$cache"
        dpkg-deb -x "$work"/linux-image-*.deb "$cache"
    fi
    kernel=$(compgen -G "$cache/boot/vmlinuz-*" | head -1)
    version=${kernel##*/vmlinuz-}
    modules=$cache/lib/modules/$version
    [[ -d $modules ]] || modules=$cache/usr/lib/modules/$version
}

# Puts a program, stripped, and the libraries that it needs into the guest's root: guest_program ROOT PROGRAM [NAME].
guest_program() {
    local root=$1 program name library
    program=$(command -v "$2") || fail "$2 is missing"
    name=${3:-${program##*/}}
    [[ -e $root/bin/$name && ! -L $root/bin/$name ]] || strip -o "$root/bin/$name" "$program" 2>/dev/null ||
        cp -L "$program" "$root/bin/$name"
    while read -r library; do
        [[ -e $root$library ]] || install -D "$library" "$root$library"
    done < <(ldd "$program" 2>/dev/null | grep -o '/[^ ]*')
}

# Puts modules and all that they need into the guest's root: guest_modules ROOT NAME... What is built into the kernel, or not
# known to it, is left out.
guest_modules() {
    local root=$1 name file base=${modules%%/lib/modules/*}
    shift
    base=${base%/usr}
    [[ $modules != */usr/lib/modules/* ]] || base=$base/usr
    [[ -e $modules/modules.dep.bin ]] || depmod -b "$base" "$version"
    mkdir -p "$root/lib/modules/$version"
    for name; do
        while read -r _ file _; do
            [[ $file != *.ko* ]] || cp -n "$file" "$root/lib/modules/$version/"
        done < <(modprobe -d "$base" -S "$version" --show-depends "$name" 2>/dev/null)
    done
    cp "$modules"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$version/" 2>/dev/null || true
    depmod -b "$root" "$version"
}
