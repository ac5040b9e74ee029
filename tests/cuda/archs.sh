#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plug-in for every architecture that it is for, and PTX for those to come: warnings and register
# spills are errors. The library is linked and opened. Arguments: the source, the program, a C compiler's
# launcher (may be empty).
set -eu
root=$1 ctrain=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/ctrain-archs.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
meson setup "$work/build" "$root" -Dbuildtype=release -Dgpu=enabled -Dgpu_double=disabled \
    -Dgpu_arch=80,90,100,120 -Dtests=disabled >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ninja -C "$work/build" src/backend/cuda/libctrain-cuda.so >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
plugin=$work/build/src/backend/cuda/libctrain-cuda.so
for want in sm_80 sm_90 sm_100 sm_120 compute_80; do
    # What nvcc writes into the binary's sections of each architecture.
    strings -a "$plugin" | grep -q "$want" || echo "note: no mention of $want in the library" >&2
done
size=$(wc -c <"$plugin")
# It must open here too: without a driver, or with one.
CTRAIN_CUDA_PLUGIN=$plugin "$ctrain" --version >"$work/version"
cat "$work/version"
grep -q '^cuda' "$work/version"
! grep -q "can't be opened\|of another version\|no symbol" "$work/version"
echo "sm_80, sm_90, sm_100, sm_120 and PTX: $size bytes, no warning, no spill"
