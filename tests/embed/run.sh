#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs of other people, built against an installed copy with pkg-config alone: they run, they
# don't leak; and the library gives nothing away but ct_* symbols.
#
#     run.sh BUILD_DIR SRC_DIR
set -u
if [ $# -ne 2 ] || [ ! -d "$1/meson-info" ] || [ ! -f "$2/examples/embed/embed.c" ]; then
    echo "usage: run.sh BUILD_DIR SRC_DIR" >&2
    exit 2
fi
build=$(cd "$1" && pwd) && src=$(cd "$2" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM
cc=${CC:-cc}
cxx=${CXX:-c++}

fail() {
    echo "FAILED: $1"
    shift
    for file; do
        cat "$file"
    done
    exit 1
}

# $@: a command that must succeed, told in full when it does not
must() {
    "$@" >"$work/out" 2>&1 || fail "$*" "$work/out"
}

# ---- an installed copy ----
must meson install -C "$build" --no-rebuild --destdir "$work/dest"
lib=$(find "$work/dest" -name 'libctrain.so' | head -n 1)
pc=$(find "$work/dest" -name 'ctrain.pc' | head -n 1)
[ -n "$lib" ] || fail "libctrain.so was not installed"
[ -n "$pc" ] || fail "ctrain.pc was not installed"
libdir=${lib%/*}
prefix=$(sed -n 's/^prefix=//p' "$pc")
PKG_CONFIG_PATH=${pc%/*}
export PKG_CONFIG_PATH
flags() {
    pkg-config "--define-variable=prefix=$work/dest$prefix" "$@" ctrain
}
must flags --cflags --libs
cflags=$(flags --cflags)
libs=$(flags --libs)
case "$cflags" in
*"$src"*) fail "the installed flags point into the source: $cflags" ;;
esac

# ---- only ct_* ----
nm -D --defined-only "$lib" >"$work/symbols" || fail "nm -D $lib"
grep -q ' T ct_ctx_new' "$work/symbols" || fail "ct_ctx_new is not exported" "$work/symbols"
# Of a version script the linker may list the version itself, of kind A.
awk '$2 != "A" && $NF !~ /^ct_/' "$work/symbols" >"$work/foreign"
[ ! -s "$work/foreign" ] || fail "exported, and not of the API:" "$work/foreign"
echo "exports: $(grep -c ' ct_' "$work/symbols") ct_* symbols, no others"

# ---- the programs ----
sanitize=
if nm -D "$lib" | grep -q '__asan_init'; then
    sanitize=-fsanitize=address
fi

# $1: program, $2: words that it must print ("": none)
runs() {
    program=$work/$1
    LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions="$work/lsan" \
        "$program" >"$work/out" 2>&1 || fail "$1 ended with $?" "$work/out"
    if [ -n "$2" ]; then
        grep -q "$2" "$work/out" || fail "$1 did not say '$2'" "$work/out"
    fi
    cat "$work/out"
    [ -z "$sanitize" ] || { echo "$1: no leak under AddressSanitizer"; return; }
    if ! command -v valgrind >/dev/null 2>&1; then
        echo "no valgrind: leaks are not looked for"
        return
    fi
    LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OMP_NUM_THREADS=1 \
        valgrind --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=99 \
        "$program" >"$work/out" 2>&1 || fail "$1 under valgrind" "$work/out"
    grep -Eq 'definitely lost: 0 bytes|All heap blocks were freed' "$work/out" ||
        fail "$1 loses memory" "$work/out"
    echo "$1: valgrind: 0 bytes definitely lost"
}

# The OpenMP runtime's threads keep their own blocks to the end of the process.
echo 'leak:libgomp' >"$work/lsan"

warn="-O1 -g -Wall -Wextra -Werror"
# shellcheck disable=SC2086
must $cc -std=c11 $warn $sanitize -o "$work/embed" "$src/examples/embed/embed.c" $cflags $libs -lm
runs embed 'as it should: .* has 64 features, .* expects 2'

# shellcheck disable=SC2086
if $cxx --version >/dev/null 2>&1; then
    must $cxx -std=c++17 $warn $sanitize -o "$work/use" "$src/tests/embed/use.cpp" $cflags $libs
    runs use ''
else
    echo "no C++ compiler ($cxx): tests/embed/use.cpp is skipped"
fi
