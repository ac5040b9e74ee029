#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs, as a user sees them: output, run directory, resume, eval, signals, exit codes.
. "$(dirname "$0")/lib.sh"

good good.ini

# A run: plain lines on stdout, nothing on stderr, no carriage return.
run good.ini --set run.dir=r
rc 0
empty err
has out "step 6/6"
has out "$WORK/r"
CR=$(printf '\r')
ESC=$(printf '\033')
hasnt out "$CR"
hasnt out "$ESC"
for name in config.ini env.json log.txt metrics.jsonl checkpoints/last checkpoints/best \
    checkpoints/step-00000006/model.safetensors; do
    ok "$name is there" test -f "r/$name"
done

# The saved config gives the same run.
run r/config.ini --set run.dir=again -q
rc 0
empty out
empty err
ok "the same weights" cmp r/checkpoints/step-00000006/model.safetensors \
    again/checkpoints/step-00000006/model.safetensors

# A directory that holds a run.
run good.ini --set run.dir=r
refused 2 "holds a run with checkpoints; go on with it by --resume"
run good.ini --set run.dir=r --resume
rc 0
has out "this run is done"
has out "to go on, raise train."
run good.ini --resume=r --set train.steps=8 -v
rc 0
has out "step 8/8"
run good.ini --set run.dir=r --set run.seed=7 --set train.steps=9 --resume
rc 2
has err "resume: [run] seed: '0' -> '7' (refused)"
run good.ini --set run.dir=r --resume=best --set train.steps=9
rc 0

# The newest run of that name.
run good.ini
rc 0
run good.ini --resume --set train.steps=7
rc 0
has out "step 7/7"
ok "one run directory" test "$(ls runs | wc -l)" -eq 1

# Nothing to resume.
run good.ini --resume=nowhere
refused 3 "nothing to resume: there is no directory nowhere"
run good.ini --resume=last --set run.dir=nowhere
refused 3 "nothing to resume"
mkdir plain
run good.ini --resume=plain
refused 3 "plain is neither a run directory nor a checkpoint"

# A run directory in use.
if command -v flock >/dev/null; then
    mkdir busy
    run_busy() { flock busy/.lock "$CTRAIN" good.ini --set run.dir=busy >out 2>err; RC=$?; }
    WHAT="ctrain in a locked directory"
    run_busy
    refused 2 "run directory $WORK/busy is in use by another process"
fi

# No way to write there. (Rights mean nothing to root: a regular file in the way does.)
run good.ini --set run.dir=good.ini/run
refused 7 "$WORK/good.ini"
touch runfile
run good.ini --set run.dir=runfile
rc 7
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 555 locked
    run good.ini --set run.dir=locked/run
    refused 7 "Permission denied"
    cp good.ini secret.ini
    chmod 000 secret.ini
    run check secret.ini
    refused 7 "secret.ini: Permission denied"
fi

# eval.
run eval r
rc 0
empty err
for word in checkpoint "step " "samples     359" "loss " "accuracy "; do
    has out "$word"
done
run eval again/checkpoints/step-00000006
rc 0
has out "step        6"
run eval --json again/checkpoints/step-00000006
rc 0
lines out 1
has out '"step": 6, "samples": 359, "loss": '
run eval again --set data.val.fraction=0.1
rc 0
has out "samples     180"
run eval again --set data.val.frction=0.1
refused 2 "--set data.val.frction: unknown key 'frction' in [data.val]; did you mean 'fraction'?"
run eval nowhere
refused 3 "nowhere"
run eval plain
refused 3 "plain is neither a run directory"
run eval good.ini
refused 3 "good.ini"
cp -r again hurt
printf x | dd of=hurt/checkpoints/step-00000006/model.safetensors bs=1 seek=400 conv=notrunc 2>dd.log
run eval hurt/checkpoints/step-00000006
refused 3 "model.safetensors"
run good.ini --resume=hurt/checkpoints/step-00000006
rc 3

# Diverged.
run good.ini --set run.dir=nan --set optimizer.name=sgd --set optimizer.lr=1e30 --set train.steps=20
rc 4

# Overfit one batch.
run good.ini --overfit-one-batch --set optimizer.lr=0 --set model.hidden=32
rc 5
has err "optimizer.lr is 0"
run good.ini --overfit-one-batch --set optimizer.lr=0.01 --set model.hidden=64
rc 0
has out "PASS"

# A signal saves and stops; the run can go on.
for sig in TERM INT; do
    rm -rf stop
    WHAT="ctrain, killed by $sig"
    # Background jobs of a script ignore SIGINT: the program takes it all the same.
    "$CTRAIN" good.ini --set run.dir=stop --set train.steps=1000000 --set log.every=0 \
        --set checkpoint.every=0 >out 2>err &
    pid=$!
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s stop/metrics.jsonl ] && break
        sleep 0.5
    done
    sleep 0.5
    kill -$sig $pid
    wait $pid
    RC=$?
    rc 75
    has err "ctrain: stopping after this step and saving"
    has err "go on with --resume"
    ok "a checkpoint is there" test -f stop/checkpoints/last
    run good.ini --set run.dir=stop --resume --set train.steps=0 --set train.epochs=0
    rc 0
done

# A reader that goes away does not end a run, nor does a full device.
WHAT="ctrain | true"
{ "$CTRAIN" good.ini --set run.dir=pipe 2>err; echo $? >code; } | true
RC=$(cat code)
: >out
rc 0
ok "the run went on" test -f pipe/checkpoints/step-00000006/model.safetensors
if [ -c /dev/full ]; then
    WHAT="ctrain >/dev/full"
    "$CTRAIN" good.ini --set run.dir=full >/dev/full 2>err
    RC=$?
    rc 0
    has err "standard output can't be written any more (No space left on device); the run goes on"
    has full/log.txt "done:"
fi
WHAT="ctrain <&- >&- 2>&-"
"$CTRAIN" good.ini --set run.dir=closed <&- >&- 2>&-
RC=$?
rc 0
ok "no line for people in a file" cmp again/checkpoints/step-00000006/model.safetensors \
    closed/checkpoints/step-00000006/model.safetensors

finish
