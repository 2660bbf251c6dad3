"""The shell scripts that run inside containers: POSIX sh, no other program that an image may lack."""

from __future__ import annotations

from .processes import MARKER

__all__ = ["KILL", "RESET", "SNAPSHOT", "UPTIME", "WORKDIR"]

# Prints its own pid, then one NUL-ended block for each process:
#   P pid uid gid readable marker listens (name) state parent ... as in /proc/PID/stat
# Only what the caller may look into is `readable`: other users' processes hide their environment
# and files also from a container's root.
SNAPSHOT = (
    r"""
export LC_ALL=C
echo $$
cd /proc || exit 1
listening=' '
for table in net/tcp net/tcp6; do
  while read -r _ _ _ state _ _ _ _ _ inode _; do
    [ "$state" = 0A ] && listening="$listening$inode "
  done <$table
done 2>/dev/null
while read -r _ _ _ flags _ _ inode _; do
  [ "$flags" = 00010000 ] && listening="$listening$inode "
done <net/unix 2>/dev/null
for pid in [0-9]*; do
  stat=
  { while IFS= read -r line || [ -n "$line" ]; do stat="$stat$line "; done <$pid/stat; } 2>/dev/null
  [ -n "$stat" ] || continue
  uid= gid=
  { while read -r key value _; do
      case $key in Uid:) uid=$value ;; Gid:) gid=$value; break ;; esac
    done <$pid/status; } 2>/dev/null
  readable=0 marker=- listens=0
  if { true <$pid/environ; } 2>/dev/null; then
    readable=1
    { while IFS= read -r line || [ -n "$line" ]; do
        case $line in *"""
    + MARKER
    + r"""=*)
          marker=${line##*"""
    + MARKER
    + r"""=}
          rest=${marker#????????????????????????}
          marker=${marker%"$rest"}
          break ;;
        esac
      done <$pid/environ; } 2>/dev/null
    if [ "$listening" != ' ' ]; then
      for link in $(ls -l $pid/fd 2>/dev/null); do
        case $link in socket:*)
          inode=${link#socket:?}
          case $listening in *" ${inode%?} "*) listens=1; break ;; esac ;;
        esac
      done
    fi
  fi
  printf 'P %s %s %s %s %s %s %s\n\0' "$pid" "$uid" "$gid" "$readable" "$marker" "$listens" "${stat#* }"
done
"""
)

# Kills each PID:START argument if it is still that process: all are stopped first, so that none can fork.
KILL = r"""
cd /proc || exit 1
for signal in STOP KILL; do
  for target; do
    pid=${target%%:*} stat=
    { while IFS= read -r line || [ -n "$line" ]; do stat="$stat$line "; done <$pid/stat; } 2>/dev/null
    set -f
    fields=${stat##*) }
    i=1 start=
    for field in $fields; do
      [ $i = 20 ] && { start=$field; break; }
      i=$((i + 1))
    done
    [ "$start" = "${target##*:}" ] && kill -$signal "$pid" 2>/dev/null
  done
done
exit 0
"""

# reset: PATH OWNER ... A mount point cannot be removed: it is emptied.
RESET = r"""
while [ $# -gt 1 ]; do
  path=$1 owner=$2
  shift 2
  if [ -L "$path" ] || { [ -e "$path" ] && [ ! -d "$path" ]; }; then
    chattr -i -a "$path" 2>/dev/null
    rm -f -- "$path"
  elif [ -d "$path" ]; then
    rm -rf -- "$path" 2>/dev/null
    if [ -d "$path" ]; then
      chattr -R -i -a "$path" 2>/dev/null
      rm -rf -- "$path" 2>/dev/null
    fi
    if [ -d "$path" ]; then
      for item in "$path"/* "$path"/.[!.]* "$path"/..?*; do
        rm -rf -- "$item" || exit 1
      done
    fi
  fi
  mkdir -p -- "$path" && chmod 755 "$path" && chown "$owner" "$path" || exit 1
done
"""

# The clock that process start times are told in: seconds since boot.
UPTIME = "read up rest </proc/uptime && echo $up"

# workdir: PATH OWNER. Fails where the path is there already, so that nothing of another's is taken over.
WORKDIR = r"""
[ ! -e "$1" ] && [ ! -L "$1" ] && mkdir -p -- "$1" && chown "$2" "$1"
"""
