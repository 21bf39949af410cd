#!/bin/bash
# Longrun: records and reads ahead from the initramfs on, in the background (dracut, pre-pivot).
# Installed by `longrun boot enable`, removed by `longrun boot disable`. Nothing waits for it.
# systemd ends every process of the initramfs but those whose name begins with "@".
# Without the unit it was disabled, or removed, since the initramfs was made.
if [ -x /usr/bin/longrun ] && [ -d "${NEWROOT:-/sysroot}/var/lib/longrun" ] &&
    [ -e "${NEWROOT:-/sysroot}/etc/systemd/system/longrun-boot-record.service" ]; then
    (umask 077 && mkdir -p /run/longrun-boot && : >/run/longrun-boot/initramfs)
    for what in preload record; do
        bash -c 'exec -a @longrun /usr/bin/longrun boot "$0" --root-on-stdin' "$what" <"${NEWROOT:-/sysroot}" >/dev/null 2>/dev/kmsg &
    done
fi
true
