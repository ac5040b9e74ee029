/* SPDX-License-Identifier: Apache-2.0 */
/* A network from text: "conv2d(32, 3, padding=1) relu flatten linear(10)".
 *
 *     layers   = layer*                       separated by blanks or new lines
 *     layer    = NAME [ "(" arguments ")" ] | "residual" "(" layers ")"
 *     argument = [ NAME "=" ] value           by position first, then by name
 *     value    = NUMBER | "(" NUMBER "," NUMBER ")" | true | false | WORD | 'WORD'
 *
 * All there is about a layer is its row in layer_table.c. */
#include "nn/layers.h"

#include "base/error.h"
#include "base/ini.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NEST = 16, MAX_SIZE = 0x7fffffff };

static const char *const kind_text[CTI_ARG_KINDS] = {"an integer",
                                                     "an integer or a pair (height, width)",
                                                     "an integer, a pair (height, width) or none",
                                                     "an integer, a pair (height, width) or same",
                                                     "a number",
                                                     "true or false",
                                                     "none or tanh"};

static ct_module *read_layers(cti_layers *p, cti_flow *f);

/* ---- errors ---- */

int cti_layers_fail(cti_layers *p, const char *at, const char *fmt, ...)
{
    int line = 1, column = 1;
    char what[1024], place[64];
    va_list args;

    for (const char *c = p->text; c < at; c++) {
        if (*c == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*c & 0xC0) != 0x80) {
            column++;
        }
    }
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (strchr(p->text, '\n'))
        snprintf(place, sizeof place, "line %d, column %d", line, column);
    else
        snprintf(place, sizeof place, "column %d", column);
    return ct_error_raise(p->ctx, CT_ECONFIG, "layers", "layers, %s: %s%s", place, p->label, what);
}

/* conv2d(out_channels, kernel_size, stride=1, ...) */
static const char *signature(const cti_layer_spec *s, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "%s(", s->name);

    for (int i = 0; i < CTI_LAYER_ARGS && s->arg[i].name && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%s%s%s", i ? ", " : "", s->arg[i].name,
                              s->arg[i].def ? "=" : "", s->arg[i].def ? s->arg[i].def : "");
    if (n < cap)
        snprintf(buf + n, cap - n, ")");
    return buf;
}

static int arg_count(const cti_layer_spec *s)
{
    int n = 0;

    while (n < CTI_LAYER_ARGS && s->arg[n].name)
        n++;
    return n;
}

ct_module *cti_layers_fail_shape(cti_layers *p, const cti_flow *f, const char *wanted)
{
    char got[192];

    cti_layers_fail(p, p->layer_at, "expected an input of shape %s, got %s", wanted,
                    cti_shape_text(f->ndim, f->shape, got, sizeof got));
    return NULL;
}

/* A constructor's own refusal gets the place in front. */
static ct_module *placed(cti_layers *p, ct_module *m)
{
    ct_error *err = ct_error_record(p->ctx);
    char text[sizeof err->text];

    if (m || err->code != CT_EINVAL)
        return m;
    snprintf(text, sizeof text, "%s", err->text);
    ct_error_clear(p->ctx);
    cti_layers_fail(p, p->layer_at, "%s", text);
    return NULL;
}

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void skip(cti_layers *p)
{
    while (is_blank(*p->at))
        p->at++;
}

/* A word of letters, digits and '_' into buf (cut when too long); its length. */
static size_t read_word(cti_layers *p, char *buf, size_t cap)
{
    const char *from = p->at;
    size_t n;

    while (is_word(*p->at))
        p->at++;
    n = (size_t)(p->at - from);
    snprintf(buf, cap, "%.*s", (int)(n < cap ? n : cap - 1), from);
    return n;
}

/* What stands at `at` up to the next separator, for "got '...'". */
static const char *quote(const char *at, char *buf, size_t cap)
{
    size_t n = strcspn(at, at[0] == '(' ? ")" : " \t\r\n,)");

    if (at[0] == '(' && at[n] == ')')
        n++;
    if (at[0] == '\0')
        snprintf(buf, cap, "the end");
    else
        snprintf(buf, cap, "'%.*s'", n < 40 ? n ? (int)n : 1 : 40, at);
    return buf;
}

/* The nearest of the names within 2 edits, or NULL. */
static void nearest(const char *got, const char *name, int *best, const char **who)
{
    int d = cti_edit_distance(got, name, 2);

    if (d < *best) {
        *best = d;
        *who = name;
    }
}

/* ---- values ---- */

static bool read_int(cti_layers *p, int64_t *out)
{
    char *end;
    long long v;

    skip(p);
    errno = 0;
    v = strtoll(p->at, &end, 10);
    if (end == p->at || errno || is_word(*end) || *end == '.' || v > MAX_SIZE || v < -MAX_SIZE)
        return false;
    *out = v;
    p->at = end;
    return true;
}

static bool read_pair(cti_layers *p, int64_t out[2])
{
    if (*p->at != '(') {
        if (!read_int(p, &out[0]))
            return false;
        out[1] = out[0];
        return true;
    }
    p->at++;
    if (!read_int(p, &out[0]))
        return false;
    skip(p);
    if (*p->at++ != ',' || !read_int(p, &out[1]))
        return false;
    skip(p);
    return *p->at++ == ')';
}

static bool read_real(cti_layers *p, double *out)
{
    char *end;

    *out = strtod(p->at, &end);
    if (end == p->at || is_word(*end) || !isfinite(*out))
        return false;
    p->at = end;
    return true;
}

/* One of two words (PyTorch's True and None too, quotes allowed): *out is true for the second. */
static bool read_choice(cti_layers *p, const char *no, const char *yes, bool *out)
{
    const char *from = p->at;
    char word[16], q = *p->at == '\'' || *p->at == '"' ? *p->at : '\0';

    p->at += q != '\0';
    if (read_word(p, word, sizeof word) < sizeof word && (!q || *p->at == q)) {
        p->at += q != '\0';
        *out = cti_edit_distance(word, yes, 0) == 0;
        if (*out || cti_edit_distance(word, no, 0) == 0)
            return true;
    }
    p->at = from;
    return false;
}

/* At the value: reads it as `a` says. False with p->at anywhere when it is none. */
static bool read_value(cti_layers *p, const cti_arg_spec *a, cti_arg *v)
{
    bool ok;

    v->word = false;
    switch (a->kind) {
    case CTI_ARG_REAL:
        return read_real(p, &v->real);
    case CTI_ARG_BOOL:
        return read_choice(p, "false", "true", &v->word);
    case CTI_ARG_APPROX:
        return read_choice(p, "none", "tanh", &v->word);
    case CTI_ARG_RESIZE:
        return read_choice(p, "nearest", "bilinear", &v->word);
    case CTI_ARG_STRIDE:
        v->i[0] = v->i[1] = 0;
        if (read_choice(p, "none", "none", &v->word))
            return true;
        break;
    case CTI_ARG_PAD:
        v->i[0] = v->i[1] = 0;
        if (read_choice(p, "same", "same", &v->word))
            return true;
        break;
    default:
        break;
    }
    ok = a->kind == CTI_ARG_INT ? read_int(p, &v->i[0]) : read_pair(p, v->i);
    if (a->kind == CTI_ARG_INT)
        v->i[1] = v->i[0];
    return ok && v->i[0] >= a->min && v->i[1] >= a->min;
}

static int wrong_value(cti_layers *p, const cti_arg_spec *a, const char *at)
{
    char got[64], least[48] = "";

    if (a->kind <= CTI_ARG_PAD && a->min >= 0)
        snprintf(least, sizeof least, ", at least %lld", (long long)a->min);
    return cti_layers_fail(p, at, "%s: expected %s%s, got %s", a->name, kind_text[a->kind], least,
                           quote(at, got, sizeof got));
}

/* ---- arguments ---- */

/* At an argument: which one? -1 with the error set. */
static int which_arg(cti_layers *p, const cti_layer_spec *s, int position, bool *named)
{
    const char *from = p->at, *who = NULL;
    char word[32], sig[256];
    int n = arg_count(s), best = 3;

    if (read_word(p, word, sizeof word) > 0) {
        skip(p);
        if (*p->at == '=') {
            p->at++;
            skip(p);
            *named = true;
            for (int i = 0; i < n; i++) {
                if (strcmp(s->arg[i].name, word) == 0)
                    return i;
                nearest(word, s->arg[i].name, &best, &who);
            }
            cti_layers_fail(p, from, "no argument '%s' in %s%s%s%s", word,
                            signature(s, sig, sizeof sig), who ? "; did you mean '" : "",
                            who ? who : "", who ? "'?" : "");
            return -1;
        }
    }
    p->at = from;
    if (*named) {
        cti_layers_fail(p, from, "an argument by position can't follow one by name");
        return -1;
    }
    if (position >= n || s->arg[position].by_name) {
        char got[64];

        cti_layers_fail(p, from, "too many arguments: %s is one more than %s takes by position",
                        quote(from, got, sizeof got), signature(s, sig, sizeof sig));
        return -1;
    }
    return position;
}

/* After '(': all arguments and the ')'. */
static int read_args(cti_layers *p, const cti_layer_spec *s, cti_arg *v, bool *given)
{
    const char *open = p->at - 1;
    bool named = false;
    char got[64];

    skip(p);
    for (int position = 0; *p->at != ')'; position++) {
        const char *from;
        int i;

        if (!*p->at)
            return cti_layers_fail(p, open, "the '(' is never closed");
        if ((i = which_arg(p, s, position, &named)) < 0)
            return CT_ECONFIG;
        from = p->at;
        if (given[i])
            return cti_layers_fail(p, from, "%s is given twice", s->arg[i].name);
        given[i] = true;
        if (!read_value(p, &s->arg[i], &v[i]))
            return wrong_value(p, &s->arg[i], from);
        skip(p);
        if (*p->at == ',') {
            p->at++;
            skip(p);
        } else if (*p->at && *p->at != ')') {
            return cti_layers_fail(p, p->at, "expected ',' or ')', got %s",
                                   quote(p->at, got, sizeof got));
        }
    }
    p->at++;
    return CT_OK;
}

/* After a layer's name: its arguments, defaults for those not given. */
static int arguments(cti_layers *p, const cti_layer_spec *s, cti_arg *v)
{
    bool given[CTI_LAYER_ARGS] = {false};
    const char *after_name = p->at;
    char sig[256];
    int rc = CT_OK;

    skip(p);
    if (*p->at == '(') {
        p->at++;
        rc = read_args(p, s, v, given);
    } else {
        p->at = after_name;
    }
    for (int i = 0; i < arg_count(s) && rc == CT_OK; i++) {
        cti_layers def = {.ctx = p->ctx, .at = s->arg[i].def};

        if (given[i])
            continue;
        if (!def.at)
            return cti_layers_fail(p, p->layer_at, "%s is missing: %s", s->arg[i].name,
                                   signature(s, sig, sizeof sig));
        if (!read_value(&def, &s->arg[i], &v[i]))
            return ct_error_raise(p->ctx, CT_EINTERNAL, "layers", "default of %s", s->arg[i].name);
    }
    return rc;
}

/* ---- reading ---- */

static const cti_layer_spec *find_layer(cti_layers *p, const char *name)
{
    char all[512];
    const char *who = NULL;
    int best = 3;
    size_t n = 0;

    for (const cti_layer_spec *s = cti_layer_table; s->name; s++) {
        if (strcmp(s->name, name) == 0)
            return s;
        nearest(name, s->name, &best, &who);
        n += (size_t)snprintf(all + n, n < sizeof all ? sizeof all - n : 0, "%s, ", s->name);
    }
    nearest(name, "residual", &best, &who);
    cti_layers_fail(p, p->layer_at, "unknown layer '%s'; %s%s%sthere are %sresidual", name,
                    who ? "did you mean '" : "", who ? who : "", who ? "'? " : "", all);
    return NULL;
}

static ct_module *read_residual(cti_layers *p, cti_flow *f, int index)
{
    const char *layer_at = p->layer_at, *open;
    char label[sizeof p->label], in[192], out[192];
    cti_flow inner = *f;
    ct_module *body;
    size_t n = strlen(p->path);

    skip(p);
    open = p->at;
    if (*p->at != '(') {
        cti_layers_fail(p, layer_at, "expected residual( layers ), got no '('");
        return NULL;
    }
    if (p->nest >= MAX_NEST || n + 24 > sizeof p->path) {
        cti_layers_fail(p, layer_at, "nested too deeply (at most %d)", MAX_NEST);
        return NULL;
    }
    snprintf(label, sizeof label, "%s", p->label);
    snprintf(p->path + n, sizeof p->path - n, "%d.body.", index);
    p->at++;
    p->nest++;
    body = read_layers(p, &inner);
    p->nest--;
    p->path[n] = '\0';
    snprintf(p->label, sizeof p->label, "%s", label);
    p->layer_at = layer_at;
    if (!body)
        return NULL;
    if (*p->at != ')') {
        cti_layers_fail(p, open, "the '(' is never closed");
    } else if (inner.ndim != f->ndim ||
               memcmp(inner.shape, f->shape, sizeof *f->shape * (size_t)f->ndim)) {
        cti_layers_fail(p, layer_at, "its layers give %s, its input is %s: shapes must be equal",
                        cti_shape_text(inner.ndim, inner.shape, out, sizeof out),
                        cti_shape_text(f->ndim, f->shape, in, sizeof in));
    } else {
        p->at++;
        return ct_nn_residual_new(p->ctx, body, NULL);
    }
    ct_module_free(body);
    return NULL;
}

static ct_module *read_layer(cti_layers *p, cti_flow *f, int index)
{
    cti_arg v[CTI_LAYER_ARGS] = {{{0}, 0, false}};
    const cti_layer_spec *s;
    char name[32], got[64];

    p->layer_at = p->at;
    snprintf(p->label, sizeof p->label, "layer %s%d: ", p->path, index);
    if (*p->at == ',') {
        cti_layers_fail(p, p->at, "layers are separated by blanks or new lines, not by ','");
        return NULL;
    }
    if (read_word(p, name, sizeof name) == 0) {
        cti_layers_fail(p, p->at, "expected a layer's name, got %s", quote(p->at, got, sizeof got));
        return NULL;
    }
    if (strcmp(name, "residual") == 0) {
        snprintf(p->label, sizeof p->label, "layer %s%d (%s): ", p->path, index, name);
        return read_residual(p, f, index);
    }
    s = find_layer(p, name);
    if (!s)
        return NULL;
    snprintf(p->label, sizeof p->label, "layer %s%d (%s): ", p->path, index, name);
    if (arguments(p, s, v) != CT_OK)
        return NULL;
    return placed(p, s->build(p, v, f));
}

/* A sequential up to the end, or to the ')' of a residual. */
static ct_module *read_layers(cti_layers *p, cti_flow *f)
{
    const char *from = p->at;
    ct_module *seq = ct_nn_sequential_new(p->ctx);
    int n = 0;

    for (skip(p); seq && *p->at && !(p->nest && *p->at == ')'); skip(p), n++) {
        ct_module *m = read_layer(p, f, n);

        if (!m || ct_nn_sequential_add(seq, m) != CT_OK) {
            ct_module_free(seq);
            return NULL;
        }
    }
    if (seq && n == 0) {
        if (!p->nest)
            p->label[0] = '\0';
        cti_layers_fail(p, from, "there is no layer");
        ct_module_free(seq);
        return NULL;
    }
    return seq;
}

ct_module *ct_nn_layers_new(ct_ctx *ctx, const char *text, int ndim, const int64_t *shape)
{
    cti_layers p = {.ctx = ctx, .text = text, .at = text};
    cti_flow f = {.ndim = ndim};

    if (!ctx || ct_error_code(ctx) != CT_OK)
        return NULL;
    if (!text || ndim < 0 || ndim >= CT_MAX_DIMS || (ndim && !shape)) {
        ct_error_raise(ctx, CT_EINVAL, __func__,
                       "layers: no text, or no shape of 0 to %d dimensions", CT_MAX_DIMS - 1);
        return NULL;
    }
    for (int d = 0; d < ndim; d++)
        f.shape[d] = shape[d];
    return read_layers(&p, &f);
}
