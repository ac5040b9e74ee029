# SPDX-License-Identifier: Apache-2.0
# Helpers of the command line's tests: `. lib.sh` after $1 (the program) is given. Each script runs in a folder
# of its own, prints what failed, and ends with `finish`.
set -u
LC_ALL=C
TERM=dumb
export LC_ALL TERM
[ $# -ge 1 ] || { echo "usage: $0 CTRAIN" >&2; exit 2; }
case $1 in
/*) CTRAIN=$1 ;;
*) CTRAIN=$PWD/$1 ;;
esac
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ctrain-cli.XXXXXX") || exit 1
trap 'rm -rf "$WORK"' EXIT
trap 'exit 1' HUP INT TERM
cd "$WORK" || exit 1
"$CTRAIN" --help >/dev/null || { echo "$CTRAIN does not start"; exit 1; }
CHECKS=0
FAILED=0
WHAT=

# run ARG...: the program's stdout, stderr and exit code go into files out, err and into $RC.
run() {
    WHAT="ctrain $*"
    "$CTRAIN" "$@" >out 2>err </dev/null
    RC=$?
}

failed() {
    FAILED=$((FAILED + 1))
    echo "FAILED: $WHAT: $1"
    echo "  exit code $RC; stdout:"
    sed 's/^/    /' out | head -20
    echo "  stderr:"
    sed 's/^/    /' err | head -20
}

# rc N
rc() {
    CHECKS=$((CHECKS + 1))
    [ "$RC" -eq "$1" ] || failed "expected exit code $1"
}

# has FILE TEXT: the file has it, as it is, in one line
has() {
    CHECKS=$((CHECKS + 1))
    grep -qF -e "$2" "$1" || failed "no '$2' in $1"
}

hasnt() {
    CHECKS=$((CHECKS + 1))
    ! grep -qF -e "$2" "$1" || failed "'$2' is in $1"
}

# lines FILE N
lines() {
    CHECKS=$((CHECKS + 1))
    [ "$(wc -l <"$1")" -eq "$2" ] || failed "expected $2 lines in $1"
}

empty() {
    CHECKS=$((CHECKS + 1))
    [ ! -s "$1" ] || failed "$1 is not empty"
}

# ok TEXT COMMAND...: the command succeeds
ok() {
    CHECKS=$((CHECKS + 1))
    text=$1
    shift
    "$@" || failed "$text"
}

# refused N TEXT: exit code, the text in stderr, every line of it marked, nothing on stdout
refused() {
    rc "$1"
    has err "$2"
    empty out
    CHECKS=$((CHECKS + 1))
    ! grep -qv '^ctrain: ' err || failed "a line of stderr does not begin with 'ctrain: '"
}

# A config of a net that trains in no time: good NAME
good() {
    cat >"$1" <<EOF
[run]
name = test
threads = 1
[data]
batch_size = 64
[model]
name = mlp
hidden = 8
[train]
steps = 6
[checkpoint]
every = 3
[log]
every = 2
EOF
}

finish() {
    echo "$(basename "$0"): $CHECKS checks, $FAILED failed"
    [ "$FAILED" -eq 0 ]
    exit
}
