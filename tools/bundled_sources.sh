#!/bin/sh
# Unpacks the sources of the bundled libraries (cmake/TenfoldBundled.cmake) into a folder, for
# -D TENFOLD_BUNDLED_SOURCES. It takes them from Debian's source packages of the same versions, for
# machines that can reach Debian's archive but not the web. Needs no root, because the lists and the
# cache of apt are in the folder. apt checks Debian's signature.
# Usage: tools/bundled_sources.sh <folder>
set -eu
folder=$1
release=trixie
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
folder=$(cd "$folder" && pwd)

# The first archive that this machine uses: deb822 files, then one-line files.
archive=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
  sed -n 's/^URIs: *\([^ ]*debian\)\/\{0,1\}$/\1/p' | head -n 1)
[ -n "$archive" ] || archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
  sed -n 's/^deb *\(\[[^]]*\]\)\{0,1\} *\([^ ]*debian\)\/\{0,1\} .*/\2/p' | head -n 1)
[ -n "$archive" ] || { echo "bundled_sources.sh: no Debian archive in /etc/apt" >&2; exit 1; }
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$keys] $archive $release main" > "$folder/apt/sources.list"

apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" \
    -o APT::Sandbox::User=root "$@"
}

apt update
cd "$folder/apt"
# source package, upstream's version, library
while read -r package version library; do
  rm -f "${package}_"*
  apt source --only-source --download-only --tar-only "$package"
  case $(echo "${package}_"*.orig.tar.?z*) in
    "${package}_$version.orig."* | "${package}_$version+"* | "${package}_"*"+really$version.orig."*) ;;
    *) echo "bundled_sources.sh: Debian's $package is not of version $version" >&2; exit 1 ;;
  esac
  rm -rf "${folder:?}/$library"
  mkdir "$folder/$library"
  tar -xf "${package}_"*.orig.tar.?z* --strip-components=1 -C "$folder/$library"
done <<END
xxhash 0.8.3 xxhash
libdeflate 1.23 libdeflate
zlib 1.3.1 zlib
libzstd 1.5.7 zstd
bzip2 1.0.8 bzip2
xz-utils 5.8.1 xz
fmtlib 10.1.1 fmt
cli11 2.4.1 cli11
END
touch "$folder/.ok"
