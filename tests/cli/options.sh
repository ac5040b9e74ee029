#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options, commands, help, version, keys.
. "$(dirname "$0")/lib.sh"

good good.ini

run
refused 2 "usage: ctrain CONFIG"
run --set
refused 2 "option '--set' needs a value: --set section.key=value"
run -q
refused 2 "usage: ctrain CONFIG"
run --resum good.ini
refused 2 "unknown option '--resum'; did you mean '--resume'?"
run good.ini --overfit
refused 2 "unknown option '--overfit'; did you mean '--overfit-one-batch'?"
run good.ini --zzzzzz=1
refused 2 "unknown option '--zzzzzz' (ctrain --help lists them)"
run good.ini -x
refused 2 "unknown option '-x'"
run good.ini -qx
refused 2 "unknown option '-qx'"
run good.ini ---
refused 2 "unknown option '---'"
run good.ini --=1
refused 2 "unknown option '--'"
run good.ini --dry-run=yes
refused 2 "option '--dry-run' takes no value"
run good.ini --resume=
refused 2 "option '--resume=' has no value: expected --resume=last|best|DIR"
run good.ini --set=
refused 2 "option '--set=' has no value"
run good.ini --resume last
refused 2 "unexpected 'last'; did you mean '--resume=last'?"
run good.ini other.ini
refused 2 "unexpected 'other.ini' (ctrain --help tells more)"
run good.ini -q -v
refused 2 "-q and -v don't go together"
run good.ini --dry-run --resume
refused 2 "--resume and --dry-run don't go together"
run good.ini --dry-run --overfit-one-batch
refused 2 "--overfit-one-batch and --dry-run don't go together"
run good.ini --resume --overfit-one-batch
refused 2 "--resume and --overfit-one-batch don't go together"
run good.ini --json
refused 2 "option '--json' is not for training"
run check good.ini --resume
refused 2 "option '--resume' is not for ctrain check (ctrain check --help lists its options)"
run check
refused 2 "ctrain check needs CONFIG"
run eval
refused 2 "ctrain eval needs RUN_OR_CHECKPOINT_DIR"
run eval a b
refused 2 "unexpected 'b'"
run keys a b
refused 2 "unexpected 'b'"

# Commands.
run evla
refused 2 "'evla' is neither a command nor a config file; did you mean 'eval'?"
has err "commands: check, eval, keys, help"
run predictions good.ini
refused 2 "'predictions' is neither a command nor a config file"
run help evla
refused 2 "did you mean 'eval'?"
# A file named like a command.
cp good.ini check
cp good.ini plain
run check
refused 2 "ctrain check needs CONFIG"
run ./check --dry-run
rc 0
run --dry-run -- check
rc 0
run plain --dry-run
rc 0
run --dry-run -- --no-such
refused 2 "--no-such: No such file"

# Before and after CONFIG, both forms of --set, quiet and verbose.
run --dry-run --set train.steps=7 good.ini
rc 0
has out "the config is fine: 7 steps"
empty err
run good.ini --dry-run --set=train.steps=8
rc 0
has out "8 steps"
run check --set train.steps=9 good.ini
rc 0
has out "9 steps"
run --set train.steps=9 check good.ini
rc 0
has out "9 steps"
run check good.ini -q
rc 0
empty out
empty err
run check -v good.ini
rc 0
ok "a dry run writes nothing" test ! -e runs

# Help: to stdout, exit code 0, whatever else is on the line.
for words in --help -h help "check --help" "eval --help" "keys --help" "help --help" "help check" "help eval" \
    "help keys" "good.ini --help" "eval --nonsense --help" "--set --help -h"; do
    run $words
    rc 0
    has out "Usage: ctrain"
    empty err
done
run --help
for word in --resume --overfit-one-batch --dry-run --set -q -v --help --version "check CONFIG" eval keys help 75; do
    has out "$word"
done
ok "help fits 100 columns" test -z "$(awk 'length > 100' out)"
run eval --help
has out "--json"
has out "Usage: ctrain eval RUN_OR_CHECKPOINT_DIR"
run nonsense --help
refused 2 "neither a command nor a config file"

run --version
rc 0
empty err
has out "ctrain "
for word in backend libraries oneDNN isa threads; do
    has out "$word"
done
run -V
rc 0

# Keys.
run keys
rc 0
empty err
for word in "[run]" "[data]" "[data.val]" "[model]" "[loss]" "[optimizer]" "[schedule]" "[train]" "[checkpoint]" \
    "[log]" "[model] with name = mlp" "[model] with name = lenet" label_smoothing "sgd|adam|adamw" 0.001; do
    has out "$word"
done
run keys optimizer
rc 0
has out "weight_decay"
hasnt out "[train]"
run keys data.val
rc 0
has out "fraction"
hasnt out "batch_size"
run keys optimizer.lr
rc 0
lines out 2
run keys model
has out "[model] with name = mlp"
has out "hidden"
run keys modle
refused 2 "there is no section or key 'modle'; did you mean 'model'?"
has err "sections: run, data, data.val, model"
run keys --json
rc 0
has out '{"section": "optimizer", "key": "lr", "type": "number", "default": "0.001", "allowed": "0 or more"'
has out '"model": "mlp"}'
if command -v python3 >/dev/null; then
    ok "JSON parses" python3 -c 'import json; d = json.load(open("out")); assert len(d) > 50'
fi

# Output that can't be written is told; a reader that went away is not.
if [ -c /dev/full ]; then
    WHAT="ctrain keys >/dev/full"
    "$CTRAIN" keys >/dev/full 2>err
    RC=$?
    : >out
    refused 7 "standard output can't be written: No space left on device"
fi
WHAT="ctrain keys | true"
{ "$CTRAIN" keys 2>err; echo $? >code; } | true
RC=$(cat code)
: >out
rc 0
empty err
WHAT="ctrain keys >&-"
"$CTRAIN" keys >&- 2>err
RC=$?
refused 7 "standard output can't be written"

finish
