#!/usr/bin/env bash
# Installs the Debian packages of lists (one name a line) that are missing, as root or with sudo.
# Usage: tools/apt.sh <list>...
set -euo pipefail

# A tool may be installed without its Debian package (a Python built from source, another g++), so
# this looks for the tool itself. It asks dpkg only about the other packages.
present() {
  case $1 in
    g++ | make | git | ccache) command -v "$1" >/dev/null ;;
    python3) command -v python3 >/dev/null ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    python3-dev)
      python3 -c 'import os, sysconfig
assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ;;
    *) [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
  esac
}

[ $# -gt 0 ] || { echo "usage: tools/apt.sh <list>..." >&2; exit 2; }
names=$(cat "$@")  # a separate command, because `for` would ignore its failure
missing=()
for package in $names; do
  present "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

by_hand() {
  echo "These packages are missing, and $1. Install them, then run this again:" >&2
  echo "  apt-get install ${missing[*]}" >&2
  exit 1
}

command -v apt-get >/dev/null || by_hand "there is no apt-get here (the names are Debian's)"
if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  sudo=sudo
else
  by_hand "installing them needs root"
fi
echo "installing: ${missing[*]}"
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
  "${missing[@]}"
