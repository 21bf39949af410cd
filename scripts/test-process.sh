#!/bin/sh
# Runs one test program, for cargo and nextest: as root, in a private mount namespace.
# Other processes do not see the volumes of a test. A process that copies the mount table, as a container does, would keep such a volume busy.
# Mounts that the test's own children copy still follow what the test unmounts, as on a machine with systemd.
[ "$(id -u)" -eq 0 ] || exec sudo -E "$0" "$@"
exec unshare --mount --propagation slave sh -c 'mount --make-rshared / && exec "$0" "$@"' "$@"
