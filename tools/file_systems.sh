#!/usr/bin/env bash
# Runs the crash harness on several kinds of file systems, which it creates and mounts below a
# temporary folder. Needs root and the packages xfsprogs, btrfs-progs and bindfs; a kind that cannot
# be mounted is reported and skipped. Prints a table of the results.
# Usage: tools/file_systems.sh   (make file-systems)
set -uo pipefail
harness=${HARNESS:-build/release/tests/formats_crash_test}
work=$(mktemp -d)
trap 'for m in "$work"/*/mounted; do mountpoint -q "$m" && umount "$m"; done; rm -rf "$work"' EXIT

image() { # <folder> <size> <mkfs command>...
  local folder=$1 size=$2
  shift 2
  truncate -s "$size" "$folder/image" && "$@" "$folder/image" >/dev/null 2>&1 &&
    mount -o loop "$folder/image" "$folder/mounted"
}

mount_kind() { # <kind> <folder>
  local folder=$2
  case $1 in
    ext4) image "$folder" 256M mkfs.ext4 -q -F ;;
    xfs) image "$folder" 512M mkfs.xfs -q -f ;;
    btrfs) image "$folder" 256M mkfs.btrfs -q -f ;;
    tmpfs) mount -t tmpfs -o size=256m none "$folder/mounted" ;;
    overlay)
      mkdir "$folder/lower" "$folder/upper" "$folder/work" &&
        mount -t overlay overlay "$folder/mounted" \
          -o "lowerdir=$folder/lower,upperdir=$folder/upper,workdir=$folder/work"
      ;;
    fuse) mkdir "$folder/below" && bindfs "$folder/below" "$folder/mounted" ;;
  esac 2>/dev/null
}

failed=0
tested=0
printf '| file system | tests | result |\n| --- | --- | --- |\n'
for kind in ${KINDS:-ext4 xfs btrfs tmpfs overlay fuse}; do
  folder=$work/$kind
  mkdir -p "$folder/mounted"
  if ! mount_kind "$kind" "$folder"; then
    printf '| %s | 0 | cannot be mounted here |\n' "$kind"
    continue
  fi
  tested=1
  log=$work/$kind.log
  # The power failure tests use a model, not the file system, so none of them runs here. FUSE keeps
  # the names of files that a forked child has open (.fuse_hidden...), so their folder cannot be
  # removed while the child runs.
  without='*PowerFailure*'
  # FUSE cannot exchange two names. A save that loses a race between two steps leaves its shards.
  [ $kind = fuse ] && without+=':*AFork*:*SecondWriter*/SafetensorsShards:*OfTwo/SafetensorsShards'
  TENFOLD_TEST_FOLDER=$folder/mounted "$harness" --gtest_filter="-$without" >"$log" 2>&1
  result=$?
  tests=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\{0,1\}\..*/\1/p' "$log")
  if [ $result = 0 ]; then
    printf '| %s | %s | passed |\n' "$kind" "$tests"
  else
    failed=1
    printf '| %s | %s | FAILED |\n' "$kind" "$tests"
    grep -A 12 'Failure$' "$log" | head -n 40 >&2
  fi
  umount "$folder/mounted"
done
[ $tested = 1 ] || { echo "no file system could be mounted: needs root" >&2; exit 2; }
exit $failed
