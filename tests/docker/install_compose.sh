#!/bin/bash
# Install Docker Compose v2 as /usr/local/bin/docker-compose, unless a version 2 is there already.
#
# Debian 12 has only the old version 1; the next release's package holds one static program. It is
# downloaded with apt, through a private package list derived from the sources that this machine's
# apt uses already, and unpacked: nothing is installed as a package and apt's own lists stay as they are.
set -euo pipefail

SUITE=trixie
TARGET=/usr/local/bin/docker-compose

die() { echo "install_compose: $*" >&2; exit 1; }

version2() {
  docker compose version >/dev/null 2>&1 && return
  command -v docker-compose >/dev/null && docker-compose version 2>/dev/null | grep -q 'v\?2\.[0-9]'
}

if version2; then
  echo "Docker Compose v2 is there already"
  exit 0
fi
[ "$(id -u)" = 0 ] || die "writing $TARGET needs root"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keyring" ] || die "Debian's keys are missing (apt-get install debian-archive-keyring)"

mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  awk '$1 == "Debian" && $2 == "main" && $3 !~ /^(file|cdrom)/ { print $3; exit }')
[ -n "$mirror" ] || die "apt on this machine has no Debian archive configured (run apt-get update first)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,out}
chmod 755 "$work"
echo "deb [signed-by=$keyring] $mirror $SUITE main" >"$work/sources.list"
options=(
  -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache"
  -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false
)
# The output names the mirror, so it is shown only in part, and only on failure.
apt-get "${options[@]}" update >"$work/log" 2>&1 ||
  { grep -v '://' "$work/log" | tail -5 >&2; die "the package list of $SUITE cannot be read"; }
(cd "$work/out" && apt-get "${options[@]}" download docker-compose) >"$work/log" 2>&1 ||
  { grep -v '://' "$work/log" | tail -5 >&2; die "the package docker-compose cannot be downloaded"; }
dpkg-deb -x "$work"/out/docker-compose_*.deb "$work/root"
program=$(find "$work/root" -type f -name docker-compose -perm -u+x | head -1)
[ -n "$program" ] || die "the package holds no program docker-compose"
install -m 755 "$program" "$TARGET"
"$TARGET" version
