#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, and twice in one file, as C11 and as C++17, without a warning.
#
#     check.sh INCLUDE_DIR [CC] [CXX]
set -u
if [ $# -lt 1 ] || [ ! -d "$1/ctrain" ]; then
    echo "usage: check.sh INCLUDE_DIR [CC] [CXX], with INCLUDE_DIR/ctrain in it" >&2
    exit 2
fi
include=$1
cc=${2:-${CC:-cc}}
cxx=${3:-${CXX:-c++}}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' HUP INT TERM

warn="-fsyntax-only -pedantic -Wall -Wextra -Wundef -Werror"
failed=0
n=0

# $1: language, $2: standard, $3: source file, the rest: the compiler, which may be several words
compiles() {
    lang=$1 std=$2 file=$3
    shift 3
    # shellcheck disable=SC2086
    "$@" -x "$lang" "-std=$std" $warn -I "$include" "$file" >"$work/out" 2>&1 && return 0
    echo "FAILED as $std: $(sed -n 's/^#include //p' "$file" | head -n 1)"
    cat "$work/out"
    return 1
}

# shellcheck disable=SC2086
if ! $cc --version >/dev/null 2>&1; then
    echo "no C compiler: $cc" >&2
    exit 2
fi
# shellcheck disable=SC2086
if $cxx --version >/dev/null 2>&1; then
    has_cxx=1
else
    has_cxx=0
    echo "no C++ compiler ($cxx): the C++17 part is skipped"
fi

for header in "$include"/ctrain/*.h; do
    name=ctrain/${header##*/}
    printf '#include <%s>\n#include <%s>\nint check_nothing_else(void);\n' "$name" "$name" >"$work/alone.c"
    # shellcheck disable=SC2086
    compiles c c11 "$work/alone.c" $cc || failed=1
    if [ $has_cxx = 1 ]; then
        # shellcheck disable=SC2086
        compiles c++ c++17 "$work/alone.c" $cxx || failed=1
    fi
    # All of ctrain is in ctrain.h.
    if [ "$name" != ctrain/ctrain.h ] && ! grep -q "#include <$name>" "$include/ctrain/ctrain.h"; then
        echo "FAILED: ctrain/ctrain.h does not include <$name>"
        failed=1
    fi
    n=$((n + 1))
done
[ $failed = 0 ] && echo "$n headers compile alone"
exit $failed
