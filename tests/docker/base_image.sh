#!/bin/bash
# Make the image that the container tests need: Debian 12 with a shell, Python, pytest, git and tmux.
# Does nothing when it exists. Needs root, a Docker engine and debootstrap; packages come from the
# archive that this machine's own apt uses.
set -euo pipefail

IMAGE=${1:-pytest-agentcompass-test:bookworm}
SUITE=bookworm
PACKAGES=asciinema,ca-certificates,curl,git,patch,procps,python3,python3-pytest,tmux

die() { echo "base_image: $*" >&2; exit 1; }

if docker image inspect "$IMAGE" >/dev/null 2>&1; then
  echo "$IMAGE exists"
  exit 0
fi
docker version >/dev/null 2>&1 || die "no Docker engine answers"
[ "$(id -u)" = 0 ] || die "debootstrap needs root"
command -v debootstrap >/dev/null || die "debootstrap is not installed"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keyring" ] || die "Debian's keys are missing (package debian-archive-keyring)"
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  awk '$1 == "Debian" && $2 == "main" && $3 !~ /^(file|cdrom)/ { print $3; exit }')
[ -n "$mirror" ] || die "apt on this machine has no Debian archive configured (run apt-get update first)"

# One at a time, also when several test processes start together.
exec 9>/var/lock/pytest-agentcompass-base-image.lock
flock 9
docker image inspect "$IMAGE" >/dev/null 2>&1 && exit 0

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
# The log names the archive: only other lines of it are shown.
debootstrap --variant=minbase --keyring="$keyring" --include="$PACKAGES" "$SUITE" "$work/root" "$mirror" \
  >"$work/log" 2>&1 || { grep -v '://' "$work/log" | tail -5 >&2; die "debootstrap failed"; }
root=$work/root
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* "$root"/debootstrap \
  "$root"/etc/apt/sources.list* "$root"/usr/share/{doc,man,info,locale}/*
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
ln -sf python3 "$root/usr/bin/python"
: >"$root/etc/resolv.conf"
echo localhost >"$root/etc/hostname"
tar -C "$root" --numeric-owner --one-file-system -cf - . |
  docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
    --change 'CMD ["/bin/bash"]' - "$IMAGE" >/dev/null
echo "made $IMAGE"
