/* SPDX-License-Identifier: Apache-2.0 */
#include "train/keys.h"

#include "train/state.h"

#include <float.h>
#include <string.h>

#define FREE    CTI_RESUME_FREE
#define CHANGES CTI_RESUME_CHANGES
#define REFUSED CTI_RESUME_REFUSED
#define BIG     9007199254740992.0 /* 2^53: integers are exact up to here */
#define ANY     DBL_MAX            /* numbers */

/* To add a key: one line here, and the places that CONTRIBUTING.md names. */
const cti_key cti_keys[] = {
    {"run", "name", CTI_KEY_STRING, "run", "", 0, 0, false, FREE,
     "names the run directory: runs/NAME-YYYYMMDD-HHMMSS"},
    {"run", "dir", CTI_KEY_PATH, "", "", 0, 0, false, FREE, "exactly this run directory instead"},
    {"run", "seed", CTI_KEY_INT, "0", "0 or more", 0, BIG, false, REFUSED,
     "of initial weights, shuffling and dropout"},
    {"run", "device", CTI_KEY_STRING, "auto", "auto, cpu, cuda, cuda:N", 0, 0, false, CHANGES,
     "where to compute"},
    {"run", "threads", CTI_KEY_INT, "0", "0 (all) to 4096", 0, 4096, false, CHANGES,
     "CPU threads; byte equality holds for one number of threads"},
    {"run", "precision", CTI_KEY_CHOICE, "fp32", "fp32|bf16|fp16|fp64", 0, 0, false, REFUSED,
     "fp64: CPU only, for checks"},
    {"run", "tf32", CTI_KEY_BOOL, "false", "true, false", 0, 0, false, CHANGES,
     "cuda: float32 products may round their operands to 10 bits of mantissa"},
    {"run", "capture", CTI_KEY_BOOL, "true", "true, false", 0, 0, false, FREE,
     "cuda: replay steps of one shape as a captured graph; the same numbers"},
    {"run", "conv", CTI_KEY_CHOICE, "direct", "direct|auto", 0, 0, false, CHANGES,
     "convolution algorithm"},

    {"data", "dataset", CTI_KEY_CHOICE, "digits", "digits|mnist", 0, 0, false, REFUSED,
     "digits is built in; mnist reads IDX files in data.path"},
    {"data", "path", CTI_KEY_PATH, "", "", 0, 0, false, CHANGES, "folder of the data"},
    {"data", "batch_size", CTI_KEY_INT, "32", "1 or more", 1, BIG, false, REFUSED,
     "samples per micro-batch"},
    {"data", "workers", CTI_KEY_INT, "0", "0 to 256", 0, 256, false, FREE,
     "loader threads; 0 decodes in the training thread"},
    {"data", "prefetch", CTI_KEY_INT, "2", "1 to 1024", 1, 1024, false, FREE,
     "batches made ahead by the workers"},
    {"data", "pin_memory", CTI_KEY_BOOL, "true", "true, false", 0, 0, false, FREE,
     "cuda: batches in pinned memory, copied beside the computation"},
    {"data", "shuffle", CTI_KEY_BOOL, "true", "true, false", 0, 0, false, REFUSED,
     "a new order each epoch; false keeps the file's"},
    {"data", "drop_last", CTI_KEY_BOOL, "false", "true, false", 0, 0, false, REFUSED,
     "leave out a last batch that is not full"},

    {"data.val", "dataset", CTI_KEY_CHOICE, "auto", "auto|digits|mnist", 0, 0, false, CHANGES,
     "auto: the source's own test split, else a part of data.dataset"},
    {"data.val", "path", CTI_KEY_PATH, "", "", 0, 0, false, CHANGES,
     "folder of the validation data; empty: data.path"},
    {"data.val", "fraction", CTI_KEY_FLOAT, "0.2", "over 0, under 1", 0, 1, true, REFUSED,
     "part held out when the source has no test split; keyed to the dataset, not to the seed"},

    {"model", "name", CTI_KEY_STRING, "", "a model of the zoo, or layers", 0, 0, false, REFUSED,
     "which model; each has keys of its own"},
    {"model", "layers", CTI_KEY_STRING, "", "", 0, 0, false, REFUSED,
     "for name = layers: an nn.Sequential, input sizes inferred"},
    {"model", "init", CTI_KEY_PATH, "", "", 0, 0, false, REFUSED,
     "safetensors file with the initial weights, loaded strictly by name"},

    {"loss", "name", CTI_KEY_CHOICE, "cross_entropy", "cross_entropy", 0, 0, false, REFUSED,
     "what is minimised"},
    {"loss", "label_smoothing", CTI_KEY_FLOAT, "0", "0 to 1", 0, 1, false, CHANGES,
     "of cross_entropy, in training alone"},

    {"optimizer", "name", CTI_KEY_CHOICE, "adamw", "sgd|adam|adamw", 0, 0, false, REFUSED, ""},
    {"optimizer", "lr", CTI_KEY_FLOAT, "0.001", "0 or more", 0, ANY, false, CHANGES,
     "learning rate; the base of the schedule"},
    {"optimizer", "weight_decay", CTI_KEY_FLOAT, "", "0 or more; default 0.01 for adamw, else 0", 0,
     ANY, false, CHANGES, "adamw: decoupled; adam, sgd: added to the gradient"},
    {"optimizer", "momentum", CTI_KEY_FLOAT, "0", "0 or more, under 1", 0, 0.999999999, false,
     CHANGES, "of sgd"},
    {"optimizer", "dampening", CTI_KEY_FLOAT, "0", "0 or more", 0, ANY, false, CHANGES, "of sgd"},
    {"optimizer", "nesterov", CTI_KEY_BOOL, "false", "true, false", 0, 0, false, CHANGES, "of sgd"},
    {"optimizer", "beta1", CTI_KEY_FLOAT, "0.9", "0 or more, under 1", 0, 0.999999999, false,
     CHANGES, "of adam and adamw"},
    {"optimizer", "beta2", CTI_KEY_FLOAT, "0.999", "0 or more, under 1", 0, 0.999999999999, false,
     CHANGES, "of adam and adamw"},
    {"optimizer", "eps", CTI_KEY_FLOAT, "1e-8", "0 or more", 0, ANY, false, CHANGES,
     "of adam and adamw"},

    {"schedule", "name", CTI_KEY_CHOICE, "constant", "constant|onecycle|cosine|step", 0, 0, false,
     CHANGES, "of the learning rate, over the optimizer steps of the whole run"},
    {"schedule", "max_lr", CTI_KEY_FLOAT, "", "over 0; default optimizer.lr", 0, ANY, true, CHANGES,
     "the peak (onecycle), the base (cosine, step)"},
    {"schedule", "pct_start", CTI_KEY_FLOAT, "0.3", "0 or more, under 1", 0, 0.999999999, false,
     CHANGES, "onecycle: the rising part"},
    {"schedule", "div_factor", CTI_KEY_FLOAT, "25", "over 0", 0, ANY, true, CHANGES,
     "onecycle: first lr = max_lr / div_factor"},
    {"schedule", "final_div_factor", CTI_KEY_FLOAT, "1e4", "over 0", 0, ANY, true, CHANGES,
     "onecycle: last lr = first lr / final_div_factor"},
    {"schedule", "three_phase", CTI_KEY_BOOL, "false", "true, false", 0, 0, false, CHANGES,
     "onecycle: up, down to the first lr, down to the last"},
    {"schedule", "anneal", CTI_KEY_CHOICE, "cos", "cos|linear", 0, 0, false, CHANGES, "onecycle"},
    {"schedule", "cycle_momentum", CTI_KEY_BOOL, "true", "true, false", 0, 0, false, CHANGES,
     "onecycle: momentum (adam: beta1) falls while lr rises"},
    {"schedule", "base_momentum", CTI_KEY_FLOAT, "0.85", "0 or more, under 1", 0, 0.999999999,
     false, CHANGES, "onecycle: the lowest momentum"},
    {"schedule", "max_momentum", CTI_KEY_FLOAT, "0.95", "0 or more, under 1", 0, 0.999999999, false,
     CHANGES, "onecycle: the highest momentum"},
    {"schedule", "warmup_steps", CTI_KEY_INT, "0", "0 or more", 0, BIG, false, CHANGES,
     "cosine: linear warm-up first"},
    {"schedule", "warmup_start", CTI_KEY_FLOAT, "0", "0 to 1", 0, 1, false, CHANGES,
     "cosine: warm-up begins at this part of max_lr"},
    {"schedule", "min_lr", CTI_KEY_FLOAT, "0", "0 or more", 0, ANY, false, CHANGES,
     "cosine: the last lr"},
    {"schedule", "step_size", CTI_KEY_INT, "1000", "1 or more", 1, BIG, false, CHANGES,
     "step: optimizer steps between cuts"},
    {"schedule", "gamma", CTI_KEY_FLOAT, "0.1", "over 0", 0, ANY, true, CHANGES,
     "step: the factor of each cut"},

    {"train", "epochs", CTI_KEY_INT, "10", "0 or more", 0, BIG, false, CHANGES,
     "passes over the training data"},
    {"train", "steps", CTI_KEY_INT, "0", "0 (epochs rule) or more", 0, BIG, false, CHANGES,
     "optimizer steps instead of epochs"},
    {"train", "accumulate", CTI_KEY_INT, "1", "1 or more", 1, BIG, false, REFUSED,
     "micro-batches per optimizer step; a window equals one big batch"},
    {"train", "clip_norm", CTI_KEY_FLOAT, "0", "0 (off) or more", 0, ANY, false, CHANGES,
     "clip the norm of all gradients together"},
    {"train", "nonfinite", CTI_KEY_CHOICE, "stop", "stop|skip", 0, 0, false, CHANGES,
     "what a NaN or Inf in loss or gradient does"},
    {"train", "monitor", CTI_KEY_CHOICE, "val_acc", "val_acc|val_loss", 0, 0, false, CHANGES,
     "what decides which checkpoint is best, and early stopping"},
    {"train", "early_stop_patience", CTI_KEY_INT, "0", "0 (off) or more", 0, BIG, false, CHANGES,
     "evaluations without improvement until the run ends"},
    {"train", "early_stop_min_delta", CTI_KEY_FLOAT, "0", "0 or more", 0, ANY, false, CHANGES,
     "what counts as improvement"},

    {"checkpoint", "every", CTI_KEY_INTERVAL, "1ep", "e.g. 500st, 2ep, 10min; a bare number: steps",
     0, 0, false, FREE, "a checkpoint is also saved at the end; 0: only there"},
    {"checkpoint", "keep_last", CTI_KEY_INT, "2", "1 or more", 1, BIG, false, FREE,
     "how many of the newest are kept"},
    {"checkpoint", "keep_best", CTI_KEY_INT, "1", "0 to 16", 0, CTI_TOP_MAX, false, FREE,
     "how many of the best by train.monitor are kept besides"},

    {"log", "every", CTI_KEY_INTERVAL, "10", "e.g. 10, 1ep; 0: never", 0, 0, false, FREE,
     "how often a step goes into metrics.jsonl and the log"},
};

const int cti_n_keys = (int)(sizeof cti_keys / sizeof cti_keys[0]);

const cti_key *cti_key_find(const char *section, const char *name)
{
    for (int i = 0; i < cti_n_keys; i++) {
        if (strcmp(cti_keys[i].section, section) == 0 && strcmp(cti_keys[i].name, name) == 0)
            return &cti_keys[i];
    }
    return NULL;
}
