#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check pack takes the programs and libraries of a build, and not Meson's folders beside them.
#
#   tests/cuda/pack.sh SOURCE_ROOT
set -eu
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
B=$WORK/build
mkdir -p "$B/tests/cuda" "$B/src/backend/cuda" "$WORK/bin"
for program in ctrain tests/test-ops tests/test-train tests/test-semantics tests/cuda/test-gpu-conv \
    tests/cuda/test-cuda-capture tests/cuda/devprop-dump libctrain.so.0 src/backend/cuda/libctrain-cuda.so; do
    mkdir -p "$B/$program.p"
    echo "$program" >"$B/$program"
done
printf '#!/bin/sh\n' >"$WORK/bin/ninja"
chmod +x "$WORK/bin/ninja"
PATH=$WORK/bin:$PATH BUILD=$B "$1/scripts/gpu-check" pack "$WORK/to" >"$WORK/log" 2>&1 || {
    cat "$WORK/log"
    exit 1
}
for file in bin/ctrain bin/test-gpu-conv bin/devprop-dump lib/libctrain.so.0 lib/libctrain-cuda.so gpu-check \
    tests/golden/common.py configs/digits.ini; do
    [ -f "$WORK/to/$file" ] || {
        echo "pack: $file is missing"
        exit 1
    }
done
if find "$WORK/to" -name '*.p' | grep .; then
    echo "pack: folders of objects came along"
    exit 1
fi
