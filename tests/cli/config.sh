#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mistakes in a config and in --set: text, place, exit code 2.
. "$(dirname "$0")/lib.sh"

good good.ini

# Three mistakes in a file give three errors, each with file, line, section, key and the likely one meant.
cat >three.ini <<'EOF'
[data]
batchsize = 64
[model]
name = mlp
[optimizer]
nme = sgd
[train]
  epocs = 3
EOF
run check three.ini
refused 2 "three.ini:2:1: unknown key 'batchsize' in [data]; did you mean 'batch_size'?"
has err "three.ini:6:1: unknown key 'nme' in [optimizer]; did you mean 'name'?"
has err "three.ini:8:3: unknown key 'epocs' in [train]; did you mean 'epochs'?"
lines err 3
run three.ini
refused 2 "three.ini:2:1: "

# They come in the file's order, whatever they are.
cat >mixed.ini <<'EOF'
loose = 1
[train]
epochs = many
epochs = 2
no equals here
[modle]
name = mlp
hidden = 3
[optimizer]
lr = -1
nope_at_all = 1
[model]
name = mlp
EOF
run check mixed.ini
refused 2 "mixed.ini:1:1: the key stands before the first [section]"
has err "mixed.ini:3:1: [train] epochs = many: not a whole number; allowed: 0 or more"
has err "mixed.ini:4:1: key 'epochs' in [train] was given before, at line 3"
has err "mixed.ini:5:1: no '=' in this line"
has err "mixed.ini:6:1: unknown section [modle]; did you mean [model]?"
has err "mixed.ini:10:1: [optimizer] lr = -1: out of range; allowed: 0 or more"
has err "mixed.ini:11:1: unknown key 'nope_at_all' in [optimizer] (ctrain keys optimizer lists them)"
lines err 7
cut -d: -f3 err >order
ok "in the order of the file" sort -nc order

# Values, by type.
set_wrong() {
    run check good.ini --set "$1=$2"
    refused 2 "--set $1: [${1%.*}] ${1##*.} = $2: $3"
    lines err 1
}
set_wrong run.seed 1.5 "not a whole number; allowed: 0 or more"
set_wrong run.seed 0x10 "not a whole number"
set_wrong run.seed 99999999999999999999 "not a whole number"
set_wrong data.batch_size 0 "out of range; allowed: 1 or more"
set_wrong data.workers 257 "out of range; allowed: 0 to 256"
set_wrong checkpoint.keep_best 17 "out of range; allowed: 0 to 16"
set_wrong optimizer.lr nan "not a number; allowed: 0 or more"
set_wrong optimizer.lr 1e999 "not a number"
set_wrong optimizer.lr 0,1 "not a number"
set_wrong optimizer.lr "" "not a number"
set_wrong optimizer.beta1 1 "out of range; allowed: 0 or more, under 1"
set_wrong data.val.fraction 0 "out of range; allowed: over 0, under 1"
set_wrong data.val.fraction 1 "out of range; allowed: over 0, under 1"
set_wrong data.shuffle yes "neither true nor false; allowed: true, false"
set_wrong data.shuffle TRUE "neither true nor false"
set_wrong optimizer.name adamm "allowed: sgd adam adamw; did you mean 'adam'?"
set_wrong optimizer.name "sgd|adam" "allowed: sgd adam adamw"
set_wrong schedule.name "" "allowed: constant onecycle cosine step"
set_wrong checkpoint.every 3d "not an interval; allowed: e.g. 500st, 2ep, 10min"
set_wrong checkpoint.every 1.5ep "not an interval"
set_wrong log.every -1 "not an interval"
set_wrong run.device gpu "allowed: auto cpu cuda cuda:N"
set_wrong run.device cuda: "allowed: auto cpu cuda cuda:N"
set_wrong run.name a/b "not the name of a folder"
set_wrong run.name "" "not the name of a folder"
set_wrong run.name .. "not the name of a folder"
set_wrong data.dataset minst "allowed: digits mnist; did you mean 'mnist'?"

# --set itself.
run check good.ini --set optimizer.lr
refused 2 "--set optimizer.lr: expected section.key=value"
run check good.ini --set lr=1
refused 2 "--set lr=1: expected section.key=value, for example train.epochs=3"
run check good.ini --set .lr=1
refused 2 "expected section.key=value"
run check good.ini --set optimizr.lr=1
refused 2 "--set optimizr.lr: unknown section [optimizr]; did you mean [optimizer]?"
run check good.ini --set train.lr=1
refused 2 "--set train.lr: unknown key 'lr' in [train]; did you mean 'lr' in [optimizer]?"
run check good.ini --set optimizer.lr=x --set optimizer.lr=0.5
rc 0
run check good.ini --set a.b=1 --set "optimizer.lr = q" --set=c
refused 2 "--set a.b: unknown section [a]"
has err "--set optimizer.lr: [optimizer] lr = q: not a number"
has err "--set c: expected section.key=value"
lines err 3

# The model.
run check good.ini --set model.name=mpl
refused 2 "--set model.name: [model] name = mpl: unknown model; allowed: mlp"
has err "did you mean 'mlp'?"
lines err 1 # nothing of its keys
run check good.ini --set "model.name = lenet"
refused 2 "good.ini:8:1: key 'hidden' in [model] is one of model mlp, not of lenet"
printf '[train]\nepochs = 1\n' >nomodel.ini
run check nomodel.ini
refused 2 "nomodel.ini: [model] name is missing; allowed: mlp"
printf '[model]\nname = layers\n' >nolayers.ini
run check nolayers.ini
refused 2 "[model] name = layers needs the key layers, for example"
printf '[model]\nname = mlp\nlayers = relu\n' >mlplayers.ini
run check mlplayers.ini
refused 2 "mlplayers.ini:3:1: [model] layers is only for name = layers, this model is mlp"
printf '[model]\nname = mlp\nhidden = 8 x\n' >badhidden.ini
run check badhidden.ini
refused 2 "model.hidden = 8 x"
printf '[model]\nname = layers\nlayers = flatten linaer(10)\n' >badlayers.ini
run check badlayers.ini
refused 2 "linaer"
has err "linear"
printf '[model]\nname = layers\nlayers = flatten linear(9)\n' >classes.ini
run check classes.ini
refused 2 "10 classes"

# The file.
run check nosuch.ini
refused 2 "nosuch.ini: No such file or directory"
mkdir folder
run check folder
refused 2 "folder: it is a directory"
run good.ini/x.ini
refused 2 "good.ini/x.ini: Not a directory"
: >empty.ini
run check empty.ini
refused 2 "empty.ini: [model] name is missing"
printf '[run]\nname = \377\n[model]\nname = mlp\n' >latin.ini
run check latin.ini
refused 2 "latin.ini:2:8: byte 0xff is not UTF-8"
printf '[run\nname = a\n[model]\nname = mlp\n' >header.ini
run check header.ini
refused 2 "header.ini:1:1: this section header has no ']'"
printf '[model]\r\nname = mlp\r\nhidden = 8\r\n' >crlf.ini
run check crlf.ini
rc 0
printf '\357\273\277[model]\nname = mlp\n' >bom.ini
run check bom.ini
rc 0
head -c 3000 /dev/zero | tr '\0' x >long.txt
{ printf '[model]\nname = mlp\n[optimizer]\nlr = '; cat long.txt; echo; } >long.ini
run check long.ini
refused 2 "...: not a number; allowed: 0 or more"
{ echo '[train]'; for i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8 9; do echo "bad$i$j = 1"; done; done; } >many.ini
run check many.ini
refused 2 "many.ini:2:1: unknown key 'bad11'"
has err "ctrain: ... and "
# Nothing of a file may steer a terminal.
printf '[model]\nname = "a\\x1b[2Jb"\n' >escape.ini
run check escape.ini
refused 2 "[model] name = a [2Jb: unknown model"

# Missing data.
run check good.ini --set data.dataset=mnist
refused 2 "[data] dataset = mnist needs the key path"
run check good.ini --set data.dataset=mnist --set data.path=nowhere
refused 3 "$WORK/nowhere"
mkdir bare
run check good.ini --set data.dataset=mnist --set data.path=bare
refused 3 "train-images"
# Batches larger than the data.
run check good.ini --set data.batch_size=5000
refused 2 "5000 is larger than the dataset"

# A path in the file is relative to the file, one of --set to where the command runs.
mkdir -p sub/deep
cat >sub/m.ini <<'EOF'
[data]
dataset = mnist
path = deep/mn
[model]
name = mlp
EOF
run check sub/m.ini
refused 3 "$WORK/sub/deep/mn"
run check sub/m.ini --set data.path=deep/mn
refused 3 "$WORK/deep/mn"

# Initial weights.
run check good.ini --set model.init=none.safetensors
refused 3 "none.safetensors"
echo "not weights" >junk.safetensors
run check good.ini --set model.init=junk.safetensors
refused 3 "junk.safetensors"

# Device and precision.
run check good.ini --set run.device=cuda
rc 6
has err "cuda"
run check good.ini --set run.precision=half
refused 2 "run.precision"
has err "allowed: fp32 bf16 fp16 fp64"
run check good.ini --set run.device=cpu --set run.precision=fp16
rc 0
has err "run.precision = fp16: this device computes float16 in float32"

finish
