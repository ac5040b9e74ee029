#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every operation graph that the op harness and the runs ask the double's cuDNN for is given to the real
# cuDNN, for a described device: it must have a plan for each. Arguments: plans, the fake driver, the
# folder of cuDNN, the device's JSON, then the test programs that ask.
set -eu
plans=$1 driver=$2 cudnn=$3 json=$4
shift 4
work=$(mktemp -d "${TMPDIR:-/tmp}/ctrain-plans.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cp "$driver" "$work/libcuda.so.1"
CTD_PLANS=$work/graphs
export CTD_PLANS
for program in "$@"; do
    "$program" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done
unset CTD_PLANS
LD_LIBRARY_PATH=$work:$cudnn${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$plans" "$json" "$work/graphs"
