#!/bin/bash
# Longrun: puts the program and its hook into an initramfs of dracut.
# Installed by `longrun boot enable`, removed by `longrun boot disable`; `dracut -f` then makes it so.
check() {
    [[ -x /usr/local/bin/longrun ]] && return 0
    return 1
}
depends() {
    return 0
}
install() {
    inst_simple /usr/local/bin/longrun /usr/bin/longrun
    inst_libdir_file "libelf.so.*" "libz.so.*" "libzstd.so.*" "liblzma.so.*" "libbz2.so.*" "libgcc_s.so.*"
    inst_multiple bash
    inst_hook pre-pivot 95 "$moddir/longrun.sh"
}
