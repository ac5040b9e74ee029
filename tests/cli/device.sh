#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# device = auto, cuda and cpu where there is no driver, no plug-in or the wrong one. Arguments: the program,
# then the plug-ins: of another interface, of another version, without kernels, on the software double (may
# be missing).
OTHER_ABI=$2 OTHER_VERSION=$3 EMPTY=$4 DOUBLE=${5:-}
. "$(dirname "$0")/lib.sh"
unset CTRAIN_CUDA_PLUGIN
absolute() {
    case $1 in
    /* | '') echo "$1" ;;
    *) echo "$OLDPWD/$1" ;;
    esac
}
OTHER_ABI=$(absolute "$OTHER_ABI") OTHER_VERSION=$(absolute "$OTHER_VERSION")
EMPTY=$(absolute "$EMPTY") DOUBLE=$(absolute "$DOUBLE")
good good.ini
N=0

# falls_back TEXT: auto trains on the CPU and says why in one line; cuda is refused; --version says it too.
falls_back() {
    N=$((N + 1))
    run good.ini --set run.dir="auto$N"
    rc 0
    empty err
    has out "device auto: "
    has out "$1"
    has out "; using cpu"
    CHECKS=$((CHECKS + 1))
    [ "$(grep -c 'device auto' out)" -eq 1 ] || failed "expected one line about the device"
    run good.ini --set run.dir="cuda$N" --set run.device=cuda
    refused 6 "$1"
    has err "device cuda is not there: "
    lines err 1
    ok "no run directory" test ! -e "cuda$N"
    run check good.ini --set run.device=cuda
    refused 6 "$1"
    run --version
    rc 0
    has out "cuda       not available: "
    has out "$1"
}

# The CPU asked for: not a word.
run good.ini --set run.dir=cpu --set run.device=cpu
rc 0
hasnt out "device auto"
hasnt out "cuda"

# No driver. (A machine that has one is not this test's.)
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    falls_back "no NVIDIA driver (libcuda.so.1 not found)"
    run good.ini --set run.device=cuda:3
    refused 6 "device cuda:3 is not there: no NVIDIA driver"
fi

# A driver, but no plug-in: any library called so will do for the probe.
mkdir driver
cp "$OTHER_ABI" driver/libcuda.so.1
LD_LIBRARY_PATH=$WORK/driver
export LD_LIBRARY_PATH
run --version
if grep -q 'not available' out; then
    falls_back "the CUDA plug-in can't be opened: libctrain-cuda.so: cannot open shared object file"
fi
unset LD_LIBRARY_PATH

# A named plug-in that is missing, no library, none of ours, of another interface, of another version.
export CTRAIN_CUDA_PLUGIN
CTRAIN_CUDA_PLUGIN=$WORK/none.so
falls_back "the CUDA plug-in can't be opened: $WORK/none.so: cannot open shared object file"
echo "no library" >text.so
CTRAIN_CUDA_PLUGIN=$WORK/text.so
falls_back "text.so: "
CTRAIN_CUDA_PLUGIN=libc.so.6
falls_back "the CUDA plug-in has no symbol ctrain_backend: it is of another program"
CTRAIN_CUDA_PLUGIN=$OTHER_ABI
falls_back "the CUDA plug-in is of another version: its interface is "
CTRAIN_CUDA_PLUGIN=$OTHER_VERSION
falls_back "the CUDA plug-in is of version 0.0.0, ctrain of "
CTRAIN_CUDA_PLUGIN=$EMPTY
falls_back "the CUDA plug-in lacks a kernel of family mem"

# On the double: no device, one too old, one that isn't there, one that is.
if [ -n "$DOUBLE" ]; then
    CTRAIN_CUDA_PLUGIN=$DOUBLE
    export CTD_DEVICES=0
    falls_back "no NVIDIA device"
    unset CTD_DEVICES
    export CTD_CC=70
    falls_back "is too old: compute capability 7.0, 8.0 is needed"
    unset CTD_CC
    run good.ini --set run.device=cuda:5 --set run.dir=five
    refused 6 "there is no cuda:5; there is 1 device"
    run good.ini --set run.device=cuda --set run.precision=fp64
    refused 2 "run.precision = fp64 works on the cpu alone, not on cuda"
    run --version
    rc 0
    hasnt out "not available"
    has out "sm_90"
    run good.ini --set run.dir=there
    rc 0
    empty err
    has out "cuda:0"
    hasnt out "device auto"
fi
finish
