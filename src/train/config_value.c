/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a config: from text to numbers, and back to an INI that gives the same run. */
#include "train/config_internal.h"

#include "base/ini.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing ---- */

bool cti_parse_f64(const char *s, double *out)
{
    /* Only digits and signs that mean the same in each locale reach strtod; its point may
     * differ. */
    char buf[64];
    size_t n = strlen(s);
    bool digit = false;
    if (n == 0 || n >= sizeof buf)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!strchr("0123456789+-.eE", s[i]))
            return false;
        digit = digit || isdigit((unsigned char)s[i]);
    }
    memcpy(buf, s, n + 1);
    char *end, *point = strchr(buf, '.');
    double v = strtod(buf, &end);
    if (*end == '.' && point == end) {
        *point = ',';
        v = strtod(buf, &end);
    }
    if (!digit || *end != '\0' || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool cti_parse_i64(const char *s, int64_t *out)
{
    char *end;
    double f;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (*s && !isspace((unsigned char)*s) && *end == '\0' && errno == 0) {
        *out = v;
        return true;
    }
    /* 1e6 is a whole number too. */
    if (!cti_parse_f64(s, &f) || f != floor(f) || fabs(f) > 9007199254740992.0)
        return false;
    *out = (int64_t)f;
    return true;
}

bool cti_parse_bool(const char *s, bool *out)
{
    *out = strcmp(s, "true") == 0;
    return *out || strcmp(s, "false") == 0;
}

bool cti_parse_interval(const char *s, cti_interval *out)
{
    static const struct {
        const char *suffix;
        cti_interval_unit unit;
    } units[] = {{"st", CTI_STEPS}, {"ep", CTI_EPOCHS}, {"min", CTI_MINUTES}, {"", CTI_STEPS}};
    char number[64];
    size_t n = strlen(s);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t k = strlen(units[i].suffix);
        if (n <= k || n - k >= sizeof number || strcmp(s + n - k, units[i].suffix) != 0)
            continue;
        memcpy(number, s, n - k);
        number[n - k] = '\0';
        out->unit = units[i].unit;
        return cti_parse_f64(number, &out->value) && out->value >= 0 &&
               (out->unit == CTI_MINUTES || out->value == floor(out->value));
    }
    return false;
}

bool cti_is_device(const char *s)
{
    size_t digits = strncmp(s, "cuda:", 5) == 0 ? strspn(s + 5, "0123456789") : 0;
    if (strcmp(s, "auto") == 0 || strcmp(s, "cpu") == 0 || strcmp(s, "cuda") == 0)
        return true;
    return digits > 0 && digits < 4 && s[5 + digits] == '\0';
}

bool cti_is_run_name(const char *s)
{
    size_t n = 0;
    while (s[n] && s[n] != '/' && (unsigned char)s[n] >= 0x20 && s[n] != 0x7f)
        n++;
    return n > 0 && n <= 200 && s[n] == '\0' && s[0] != '.';
}

/* ---- reading ---- */

cti_value *cti_config_value(const ct_config *c, const char *section, const char *name)
{
    const cti_key *k = cti_key_find(section, name);
    if (k)
        return &c->value[k - cti_keys];
    if (c->model && strcmp(section, "model") == 0) {
        for (int i = 0; i < CT_MODEL_MAX_KEYS && c->model->keys[i].name; i++) {
            if (strcmp(c->model->keys[i].name, name) == 0)
                return (cti_value *)&c->model_value[i];
        }
    }
    return NULL;
}

const char *ct_config_get(const ct_config *c, const char *section, const char *key)
{
    const cti_value *v = cti_config_value(c, section, key);
    return v ? v->text : NULL;
}

int64_t cti_config_i64(const ct_config *c, const char *section, const char *key)
{
    int64_t v = 0;
    cti_parse_i64(ct_config_get(c, section, key), &v);
    return v;
}

double cti_config_f64(const ct_config *c, const char *section, const char *key)
{
    double v = NAN; /* an empty value: no number given */
    cti_parse_f64(ct_config_get(c, section, key), &v);
    return v;
}

bool cti_config_bool(const ct_config *c, const char *section, const char *key)
{
    bool v = false;
    cti_parse_bool(ct_config_get(c, section, key), &v);
    return v;
}

cti_interval cti_config_interval(const ct_config *c, const char *section, const char *key)
{
    cti_interval v = {CTI_STEPS, 0};
    cti_parse_interval(ct_config_get(c, section, key), &v);
    return v;
}

bool cti_config_is_set(const ct_config *c, const char *section, const char *key)
{
    const cti_value *v = cti_config_value(c, section, key);
    return v && v->set;
}

const char *cti_config_path(const ct_config *c)
{
    return c->path;
}

void cti_config_where(const ct_config *c, const char *section, const char *key, char *out,
                      size_t cap)
{
    const cti_value *v = cti_config_value(c, section, key);
    if (v && v->by_override)
        snprintf(out, cap, "--set %s.%s", section, key);
    else if (v && v->set)
        snprintf(out, cap, "%s:%d: [%s] %s", c->path, v->line, section, key);
    else
        snprintf(out, cap, "[%s] %s (default)", section, key);
}

const ct_model_def *cti_config_model(const ct_config *c)
{
    return c->model;
}

bool ct_config_key_at(int i, ct_config_key *out)
{
    static const char *const types[] = {"text", "path",   "integer", "number",
                                        "bool", "choice", "interval"};
    if (i < 0 || i >= cti_n_keys)
        return false;
    const cti_key *k = &cti_keys[i];
    *out =
        (ct_config_key){k->section, k->name, types[k->type], k->default_value, k->allowed, k->doc};
    return true;
}

/* ---- writing ---- */

typedef struct text {
    char *p;
    size_t n, cap;
    cti_mem *mem;
    bool failed;
} text;

static void put_line(text *t, const char *key, const char *value)
{
    int n = cti_ini_quote(NULL, 0, value);
    size_t need = t->n + strlen(key) + (size_t)(n < 0 ? 0 : n) + 8;
    if (t->failed || n < 0 ||
        cti_grow(t->mem, (void **)&t->p, &t->cap, need, 1, "config text") < 0) {
        t->failed = true;
        return;
    }
    t->n += (size_t)snprintf(t->p + t->n, t->cap - t->n, "%s = ", key);
    t->n += (size_t)cti_ini_quote(t->p + t->n, t->cap - t->n, value);
    t->n += (size_t)snprintf(t->p + t->n, t->cap - t->n, "\n");
}

static void put_section(text *t, const char *name)
{
    size_t need = t->n + strlen(name) + 8;
    if (t->failed || cti_grow(t->mem, (void **)&t->p, &t->cap, need, 1, "config text") < 0) {
        t->failed = true;
        return;
    }
    t->n += (size_t)snprintf(t->p + t->n, t->cap - t->n, "%s[%s]\n", t->n ? "\n" : "", name);
}

const char *ct_config_text(ct_config *c)
{
    text t = {.mem = c->mem};
    const char *section = "";
    for (int i = 0; i < cti_n_keys; i++) {
        if (strcmp(section, cti_keys[i].section) != 0) {
            section = cti_keys[i].section;
            put_section(&t, section);
        }
        put_line(&t, cti_keys[i].name, c->value[i].text);
        bool end_of_model = strcmp(section, "model") == 0 &&
                            (i + 1 == cti_n_keys || strcmp(cti_keys[i + 1].section, "model") != 0);
        for (int k = 0; end_of_model && c->model && k < CT_MODEL_MAX_KEYS && c->model->keys[k].name;
             k++)
            put_line(&t, c->model->keys[k].name, c->model_value[k].text);
    }
    if (t.failed) {
        cti_free(c->mem, t.p);
        return NULL;
    }
    cti_free(c->mem, c->text);
    c->text = t.p;
    return c->text;
}

void cti_config_diff(const ct_config *old_config, const ct_config *new_config,
                     void (*fn)(const char *section, const char *key, const char *old_value,
                                const char *new_value, cti_resume_class cls, void *user),
                     void *user)
{
    for (int i = 0; i < cti_n_keys; i++) {
        const char *a = old_config->value[i].text, *b = new_config->value[i].text;
        if (strcmp(a, b) != 0)
            fn(cti_keys[i].section, cti_keys[i].name, a, b, cti_keys[i].resume, user);
    }
    const ct_model_def *m = old_config->model;
    for (int k = 0; m && m == new_config->model && k < CT_MODEL_MAX_KEYS && m->keys[k].name; k++) {
        const char *a = old_config->model_value[k].text, *b = new_config->model_value[k].text;
        if (strcmp(a, b) != 0)
            fn("model", m->keys[k].name, a, b, CTI_RESUME_REFUSED, user);
    }
}
