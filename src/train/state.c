/* SPDX-License-Identifier: Apache-2.0 */
#include "train/state.h"

#include "base/error.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum field_kind { WHOLE, REAL, FLAG, HEX, TEXT } field_kind;

typedef struct field {
    const char *group; /* "": at the top. Fields of a group stand together. */
    const char *key;
    field_kind kind;
    size_t offset, cap;
} field;

#define AT(member)      offsetof(cti_state, member)
#define TEXT_AT(member) AT(member), sizeof(((cti_state *)0)->member)

/* The file, but for the list `top` and the config's text. */
static const field fields[] = {
    {"", "schema", WHOLE, AT(schema), 0},
    {"", "why", TEXT, TEXT_AT(why)},
    {"", "step", WHOLE, AT(step), 0},
    {"", "applied_steps", WHOLE, AT(applied), 0},
    {"", "skipped_steps", WHOLE, AT(skipped), 0},
    {"", "samples_seen", WHOLE, AT(samples), 0},
    {"cursor", "epoch", WHOLE, AT(epoch), 0},
    {"cursor", "batch", WHOLE, AT(batch), 0},
    {"interval", "loss", REAL, AT(interval_loss), 0},
    {"interval", "weight", REAL, AT(interval_weight), 0},
    {"interval", "samples", WHOLE, AT(interval_samples), 0},
    {"interval", "steps", WHOLE, AT(interval_steps), 0},
    {"interval", "since_eval_loss", REAL, AT(since_eval_loss), 0},
    {"interval", "since_eval_weight", REAL, AT(since_eval_weight), 0},
    {"evaluation", "due", FLAG, AT(eval_due), 0},
    {"evaluation", "train_loss", REAL, AT(train_loss), 0},
    {"evaluation", "val_loss", REAL, AT(val_loss), 0},
    {"evaluation", "val_acc", REAL, AT(val_acc), 0},
    {"best", "monitor", TEXT, TEXT_AT(monitor)},
    {"best", "known", FLAG, AT(has_best), 0},
    {"best", "value", REAL, AT(best), 0},
    {"best", "step", WHOLE, AT(best_step), 0},
    {"patience", "known", FLAG, AT(has_reference), 0},
    {"patience", "reference", REAL, AT(reference), 0},
    {"patience", "evals_without_improvement", WHOLE, AT(evals_without), 0},
    {"scaler", "scale", REAL, AT(loss_scale), 0},
    {"scaler", "growth_tracker", WHOLE, AT(growth_tracker), 0},
    {"schedule", "name", TEXT, TEXT_AT(schedule)},
    {"schedule", "total_steps", WHOLE, AT(total_steps), 0},
    {"schedule", "steps_per_epoch", WHOLE, AT(steps_per_epoch), 0},
    {"dataset", "name", TEXT, TEXT_AT(dataset)},
    {"dataset", "fingerprint", HEX, AT(fingerprint), 0},
    {"dataset", "val_fingerprint", HEX, AT(val_fingerprint), 0},
    {"dataset", "train_count", WHOLE, AT(train_count), 0},
    {"dataset", "val_count", WHOLE, AT(val_count), 0},
    {"dataset", "classes", WHOLE, AT(n_classes), 0},
    {"build", "seed", WHOLE, AT(seed), 0},
    {"build", "threads", WHOLE, AT(threads), 0},
    {"build", "ctrain", TEXT, TEXT_AT(version)},
    {"build", "device", TEXT, TEXT_AT(device)},
    {"build", "isa", TEXT, TEXT_AT(isa)},
    {"build", "libraries", TEXT, TEXT_AT(libraries)},
    {"build", "precision", TEXT, TEXT_AT(precision)},
};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

void cti_state_clear(cti_state *s)
{
    if (!s)
        return;
    if (s->mem)
        cti_free(s->mem, s->config);
    *s = (cti_state){0};
}

/* ---- writing ---- */

static void put_field(cti_jw *w, const field *f, const cti_state *s)
{
    const void *p = (const char *)s + f->offset;

    switch (f->kind) {
    case WHOLE:
        cti_jw_i64(w, f->key, *(const int64_t *)p);
        break;
    case REAL:
        cti_jw_f64(w, f->key, *(const double *)p);
        break;
    case FLAG:
        cti_jw_bool(w, f->key, *(const bool *)p);
        break;
    case HEX:
        cti_jw_u64_hex(w, f->key, *(const uint64_t *)p);
        break;
    case TEXT:
        cti_jw_string(w, f->key, p);
        break;
    }
}

static void put_all(cti_jw *w, const cti_state *s)
{
    const char *group = "";

    cti_jw_object(w, NULL);
    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].group, group) != 0) {
            if (group[0])
                cti_jw_end(w);
            group = fields[i].group;
            cti_jw_object(w, group);
        }
        put_field(w, &fields[i], s);
    }
    cti_jw_end(w);
    cti_jw_array(w, "top");
    for (int i = 0; i < s->n_top; i++) {
        cti_jw_object(w, NULL);
        cti_jw_i64(w, "step", s->top[i].step);
        cti_jw_f64(w, "value", s->top[i].value);
        cti_jw_end(w);
    }
    cti_jw_end(w);
    cti_jw_string(w, "config", s->config ? s->config : "");
    cti_jw_end(w);
}

char *cti_state_print(cti_mem *m, const cti_state *s, size_t *bytes)
{
    cti_jw *w = cti_jw_new(m, true);
    const char *text;
    char *copy = NULL;
    size_t n;

    if (!w)
        return NULL;
    put_all(w, s);
    text = cti_jw_text(w, &n);
    if (text)
        copy = cti_alloc(m, n + 2, "state.json");
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\n';
        *bytes = n + 1;
    }
    cti_jw_free(w);
    return copy;
}

/* ---- reading ---- */

static bool get_hex(const cti_json *j, uint64_t *out)
{
    const char *s = cti_json_string(j);
    char *end;

    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
        return false;
    *out = strtoull(s, &end, 16);
    return true;
}

static bool get_field(const cti_json *j, const field *f, cti_state *s)
{
    void *p = (char *)s + f->offset;
    const char *text;

    if (!j)
        return false;
    switch (f->kind) {
    case WHOLE:
        return cti_json_i64(j, p);
    case REAL:
        return cti_json_f64(j, p);
    case FLAG:
        return cti_json_bool(j, p);
    case HEX:
        return get_hex(j, p);
    case TEXT:
        text = cti_json_string(j);
        if (!text || strlen(text) >= f->cap)
            return false;
        memcpy(p, text, strlen(text) + 1);
        return true;
    }
    return false;
}

static bool get_top(const cti_json *list, cti_state *s)
{
    if (!list || !cti_json_is_array(list) || cti_json_len(list) > CTI_TOP_MAX)
        return false;
    for (const cti_json *j = cti_json_first(list); j; j = cti_json_next(j), s->n_top++)
        if (!cti_json_i64(cti_json_get(j, "step"), &s->top[s->n_top].step) ||
            !cti_json_f64(cti_json_get(j, "value"), &s->top[s->n_top].value))
            return false;
    return true;
}

static int get_all(const cti_json *doc, const char *what, cti_state *s, ct_error *err)
{
    const char *config;

    for (int i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        const cti_json *in = f->group[0] ? cti_json_get(doc, f->group) : doc;
        if (!in && strcmp(f->group, "scaler") == 0)
            continue; /* written before there was one */
        if (!get_field(in ? cti_json_get(in, f->key) : NULL, f, s))
            return cti_fail(err, CT_EFORMAT, "%s: %s%s%s is missing or not what it should be", what,
                            f->group, f->group[0] ? "." : "", f->key);
        if (i == 0 && s->schema != CTI_STATE_SCHEMA)
            return cti_fail(err, CT_EFORMAT,
                            "%s: schema %" PRId64 " is not known (%d is): a newer ctrain wrote it",
                            what, s->schema, CTI_STATE_SCHEMA);
    }
    config = cti_json_string(cti_json_get(doc, "config"));
    if (!get_top(cti_json_get(doc, "top"), s) || !config)
        return cti_fail(err, CT_EFORMAT, "%s: top or config is missing or not what it should be",
                        what);
    if (s->step < 0 || s->epoch < 0 || s->batch < 0 || s->applied < 0 || s->skipped < 0 ||
        s->threads < 0)
        return cti_fail(err, CT_EFORMAT, "%s: a counter is negative", what);
    s->config = cti_strdup(s->mem, config);
    return s->config ? CT_OK : cti_fail(err, CT_ENOMEM, "%s: out of memory", what);
}

int cti_state_parse(cti_mem *m, const char *text, size_t bytes, const char *what, cti_state *out,
                    ct_error *err)
{
    cti_json *doc = cti_json_parse(text, bytes, what, err);
    int r;

    *out = (cti_state){.mem = m};
    if (!doc)
        return err && err->code ? err->code : CT_EFORMAT;
    if (cti_json_is_object(doc))
        r = get_all(doc, what, out, err);
    else
        r = cti_fail(err, CT_EFORMAT, "%s: it is no JSON object", what);
    cti_json_free(doc);
    if (r < 0)
        cti_state_clear(out);
    return r;
}

/* ---- training loss ---- */

/* An interval in which nonfinite = skip has passed over a step has no finite sum: it doesn't count,
 * and what an evaluation in its middle has taken of it before is forgotten with it. */
void cti_state_end_interval(cti_state *s)
{
    if (isfinite(s->interval_loss)) {
        s->since_eval_loss += s->interval_loss;
        s->since_eval_weight += s->interval_weight;
    } else if (s->since_eval_weight < 0) {
        s->since_eval_loss = s->since_eval_weight = 0;
    }
    s->interval_loss = s->interval_weight = 0;
    s->interval_samples = s->interval_steps = 0;
}

void cti_state_take_train_loss(cti_state *s)
{
    bool finite = isfinite(s->interval_loss);
    double loss = s->since_eval_loss + (finite ? s->interval_loss : 0);
    double weight = s->since_eval_weight + (finite ? s->interval_weight : 0);

    s->train_loss = weight > 0 ? loss / weight : NAN;
    /* The interval goes on: at its end this part of it is no loss of the next evaluation's. */
    s->since_eval_loss = finite ? -s->interval_loss : 0;
    s->since_eval_weight = finite ? -s->interval_weight : 0;
}

/* ---- best, patience ---- */

static void enter_top(cti_state *s, double value, bool larger)
{
    int64_t at = s->n_top;

    while (at > 0 && (larger ? value > s->top[at - 1].value : value < s->top[at - 1].value))
        at--;
    if (at == CTI_TOP_MAX)
        return;
    if (s->n_top < CTI_TOP_MAX)
        s->n_top++;
    memmove(&s->top[at + 1], &s->top[at], (size_t)(s->n_top - 1 - at) * sizeof s->top[0]);
    s->top[at] = (cti_top){.step = s->step, .value = value};
}

bool cti_state_judge(cti_state *s, double value, bool larger_is_better, double min_delta)
{
    double sign = larger_is_better ? 1 : -1;
    bool better = isfinite(value) && (!s->has_best || sign * value > sign * s->best);

    /* Patience compares with what it was when it last rose enough: many small steps don't count. */
    if (isfinite(value) && (!s->has_reference || sign * value > sign * s->reference + min_delta)) {
        s->has_reference = true;
        s->reference = value;
        s->evals_without = 0;
    } else {
        s->evals_without++;
    }
    if (isfinite(value))
        enter_top(s, value, larger_is_better);
    if (better) {
        s->has_best = true;
        s->best = value;
        s->best_step = s->step;
    }
    return better;
}

bool cti_state_is_top(const cti_state *s, int64_t n, int64_t step)
{
    for (int i = 0; i < s->n_top && i < n; i++)
        if (s->top[i].step == step)
            return true;
    return false;
}
