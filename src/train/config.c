/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a config: all mistakes of a file in one pass, each with its place and the likely one
 * meant. */
#include "train/config_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "base/ini.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOLD 64 /* mistakes told one by one, where the text has room */

/* Where a mistake stands: its order among the others, and as text "FILE:LINE:COLUMN", "FILE", or
 * "--set SECTION.KEY". */
typedef struct place {
    int line, column;
    char text[1200];
} place;

typedef struct told {
    int line, column;
    char *text; /* owned */
} told;

typedef struct reader {
    ct_config *c;
    ct_error *err;
    told told[MAX_TOLD];
    int mistakes;
    bool bad_model; /* model.name is wrong: nobody knows which keys [model] has */
    bool no_memory;
} reader;

static void CT_PRINTF(3, 4) mistake(reader *r, const place *at, const char *fmt, ...)
{
    char text[sizeof((ct_error *)0)->text];
    size_t n = (size_t)snprintf(text, sizeof text, "%s: ", at->text);
    va_list args;
    int i = r->mistakes;
    if (r->mistakes++ >= MAX_TOLD)
        return;
    va_start(args, fmt);
    vsnprintf(text + n, sizeof text - n, fmt, args);
    va_end(args);
    /* In the order of the file, however they were found. */
    for (; i > 0 && (r->told[i - 1].line > at->line ||
                     (r->told[i - 1].line == at->line && r->told[i - 1].column > at->column));
         i--)
        r->told[i] = r->told[i - 1];
    r->told[i] = (told){at->line, at->column, cti_strdup(r->c->mem, text)};
    r->no_memory = r->no_memory || !r->told[i].text;
}

static void place_in_file(const reader *r, place *at, int line, int column)
{
    *at = (place){.line = line, .column = column};
    snprintf(at->text, sizeof at->text, "%.1100s:%d:%d", r->c->path, line, column);
}

/* For what is missing. */
static void place_of_file(const reader *r, place *at)
{
    *at = (place){.line = 0};
    snprintf(at->text, sizeof at->text, "%.1100s", *r->c->path ? r->c->path : "config");
}

static void place_of(const reader *r, place *at, const cti_value *v, const char *section,
                     const char *key)
{
    if (!v->by_override) {
        place_in_file(r, at, v->line, v->column);
        return;
    }
    *at = (place){.line = INT_MAX};
    snprintf(at->text, sizeof at->text, "--set %.200s.%.200s", section, key);
}

/* A value for a message: short, on one line. */
typedef struct brief {
    char text[64];
} brief;

static const char *shown(const char *value, brief *b)
{
    size_t n = strlen(value);
    bool cut = n > 56;
    if (cut)
        n = 56;
    while (cut && n > 0 && ((unsigned char)value[n] & 0xc0) == 0x80) /* inside a UTF-8 character */
        n--;
    for (size_t i = 0; i < n; i++)
        b->text[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? ' ' : value[i];
    snprintf(b->text + n, sizeof b->text - n, "%s", cut ? "..." : "");
    return b->text;
}

static bool set_text(reader *r, cti_value *v, const char *text)
{
    char *copy = cti_strdup(r->c->mem, text);
    if (!copy) {
        r->no_memory = true;
        return false;
    }
    cti_free(r->c->mem, v->text);
    v->text = copy;
    return true;
}

/* ---- unknown names ---- */

typedef struct guess {
    const char *section, *name;
    int distance;
} guess;

static void consider(guess *g, const char *wanted, const char *section, const char *name, int extra)
{
    int limit = (int)strlen(wanted) / 3 + 1;
    int d = cti_edit_distance(wanted, name, limit);
    if (d <= limit && d + extra < g->distance)
        *g = (guess){section, name, d + extra};
}

/* The name of another model that has this key of [model]; NULL: none. */
static const char *model_with_key(const reader *r, const char *name)
{
    for (int i = 0; r->c->models && r->c->models[i]; i++) {
        const ct_model_def *m = r->c->models[i];
        for (int k = 0; k < CT_MODEL_MAX_KEYS && m->keys[k].name; k++) {
            if (strcmp(m->keys[k].name, name) == 0)
                return m->name;
        }
    }
    return NULL;
}

static void unknown_key(reader *r, const place *at, const char *section, const char *name)
{
    bool of_model = strcmp(section, "model") == 0;
    guess g = {NULL, NULL, 100};
    brief b;
    if (of_model && r->bad_model)
        return;
    const char *other = of_model ? model_with_key(r, name) : NULL;
    if (other) {
        mistake(r, at,
                "key '%s' in [model] is one of model %s, not of %s (ctrain keys model lists them)",
                name, other, r->c->model ? r->c->model->name : "layers");
        return;
    }
    for (int i = 0; i < cti_n_keys; i++)
        consider(&g, name, cti_keys[i].section, cti_keys[i].name,
                 strcmp(cti_keys[i].section, section) == 0 ? 0 : 1);
    const ct_model_def *m = r->c->model;
    for (int k = 0; m && k < CT_MODEL_MAX_KEYS && m->keys[k].name; k++)
        consider(&g, name, "model", m->keys[k].name, of_model ? 0 : 1);
    char hint[160] = "";
    if (g.name && strcmp(g.section, section) == 0)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", g.name);
    else if (g.name)
        snprintf(hint, sizeof hint, "; did you mean '%s' in [%s]?", g.name, g.section);
    mistake(r, at, "unknown key '%s' in [%s]%s (ctrain keys %s lists them)", shown(name, &b),
            section, hint, section);
}

static bool known_section(const char *section)
{
    for (int i = 0; i < cti_n_keys; i++) {
        if (strcmp(cti_keys[i].section, section) == 0)
            return true;
    }
    return false;
}

static void unknown_section(reader *r, const place *at, const char *section)
{
    guess g = {NULL, NULL, 100};
    brief b;
    for (int i = 0; i < cti_n_keys; i++)
        consider(&g, section, "", cti_keys[i].section, 0);
    if (*section == '\0')
        mistake(r, at, "the key stands before the first [section]");
    else if (g.name)
        mistake(r, at, "unknown section [%s]; did you mean [%s]? (ctrain keys lists them)",
                shown(section, &b), g.name);
    else
        mistake(r, at, "unknown section [%s] (ctrain keys lists them)", shown(section, &b));
}

/* ---- values ---- */

static bool is_choice(const char *allowed, const char *value)
{
    size_t n = strlen(value);
    if (strchr(value, '|'))
        return false;
    for (const char *p = allowed; p && n; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        if (strncmp(p, value, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    }
    return false;
}

static void bad_choice(reader *r, const place *at, const cti_key *k, const char *value)
{
    char words[256], list[256];
    guess g = {NULL, NULL, 100};
    brief b;
    snprintf(words, sizeof words, "%s", k->allowed);
    snprintf(list, sizeof list, "%s", k->allowed);
    for (char *p = list; *p; p++)
        *p = *p == '|' ? ' ' : *p;
    char *rest = words;
    for (char *w = words; rest; w = rest) {
        rest = strchr(w, '|');
        if (rest)
            *rest++ = '\0';
        consider(&g, value, "", w, 0);
    }
    char hint[300] = "";
    if (g.name)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", g.name);
    mistake(r, at, "[%s] %s = %s: allowed: %s%s", k->section, k->name, shown(value, &b), list,
            hint);
}

/* Why the number is none of the key's; NULL: it is one. */
static const char *out_of_range(const cti_key *k, double v)
{
    bool in = k->open ? v > k->min && v < k->max : v >= k->min && v <= k->max;
    if (in)
        return NULL;
    return v > 1e15 ? "too large" : "out of range"; /* "0 or more" does not name the largest */
}

/* Why the text is no value of the key; NULL: it is one. */
static const char *what_is_wrong(const cti_key *k, const char *s)
{
    int64_t i;
    double f;
    bool b;
    cti_interval t;
    switch (k->type) {
    case CTI_KEY_INT:
        if (!cti_parse_i64(s, &i))
            return "not a whole number";
        return out_of_range(k, (double)i);
    case CTI_KEY_FLOAT:
        if (!cti_parse_f64(s, &f))
            return "not a number";
        return out_of_range(k, f);
    case CTI_KEY_BOOL:
        return cti_parse_bool(s, &b) ? NULL : "neither true nor false";
    case CTI_KEY_INTERVAL:
        return cti_parse_interval(s, &t) ? NULL : "not an interval";
    case CTI_KEY_CHOICE:
    case CTI_KEY_STRING:
    case CTI_KEY_PATH:
        break;
    }
    return NULL;
}

static void check_value(reader *r, const cti_key *k, const cti_value *v)
{
    const char *wrong;
    place at;
    brief b;
    if (*v->text == '\0' && k->default_value[0] == '\0')
        return;
    place_of(r, &at, v, k->section, k->name);
    if (k->type == CTI_KEY_CHOICE && !is_choice(k->allowed, v->text))
        bad_choice(r, &at, k, v->text);
    else if ((wrong = what_is_wrong(k, v->text)) != NULL)
        mistake(r, &at, "[%s] %s = %s: %s; allowed: %s", k->section, k->name, shown(v->text, &b),
                wrong, k->allowed);
}

/* Paths in a file are relative to its folder, those of --set to where the command runs. */
static void resolve_path(reader *r, const cti_key *k, cti_value *v)
{
    char path[4096], absolute[4096];
    ct_error e = {0};
    place at;
    bool from_file = !v->by_override && *r->c->path != '\0';
    if (*v->text == '\0')
        return;
    int n = from_file ? cti_path_relative_to(path, sizeof path, r->c->path, v->text, &e) :
                        cti_path(path, sizeof path, &e, "%s", v->text);
    if (n >= 0 && cti_path_absolute(absolute, sizeof absolute, path, &e) >= 0) {
        set_text(r, v, absolute);
        return;
    }
    place_of(r, &at, v, k->section, k->name);
    mistake(r, &at, "[%s] %s: %.300s", k->section, k->name, e.text);
}

/* ---- entries ---- */

static void take_entry(reader *r, const cti_value *from, const char *section, const char *name,
                       const char *text)
{
    place at;
    place_of(r, &at, from, section, name);
    if (!known_section(section)) {
        /* In a file it was told at the section's header, once for all its keys. */
        if (from->by_override || *section == '\0')
            unknown_section(r, &at, section);
        return;
    }
    cti_value *v = cti_config_value(r->c, section, name);
    if (!v) {
        unknown_key(r, &at, section, name);
        return;
    }
    if (v->set && !from->by_override) {
        mistake(r, &at, "key '%s' in [%s] was given before, at line %d", name, section, v->line);
        return;
    }
    char *old = v->text;
    *v = *from;
    v->text = old;
    v->set = true;
    set_text(r, v, text);
}

static void syntax_mistake(int line, int column, const char *text, void *user)
{
    reader *r = user;
    place at;
    place_in_file(r, &at, line, column);
    mistake(r, &at, "%s", text);
}

/* "section.key=value" taken apart; the section itself may have a dot. NULL, or what is wrong. */
typedef struct override {
    char section[256];
    const char *key, *value;
} override;

static const char *split_override(const char *text, override *o)
{
    const char *eq = strchr(text, '=');
    size_t n = eq ? (size_t)(eq - text) : 0;
    if (!eq || n >= sizeof o->section)
        return "expected section.key=value";
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    memcpy(o->section, text, n);
    o->section[n] = '\0';
    char *dot = strrchr(o->section, '.');
    if (!dot || dot == o->section || dot[1] == '\0')
        return "expected section.key=value, for example train.epochs=3";
    *dot = '\0';
    o->key = dot + 1;
    o->value = eq + 1 + strspn(eq + 1, " \t");
    return NULL;
}

static void take_override(reader *r, const char *text)
{
    override o;
    const char *wrong = split_override(text, &o);
    if (wrong) {
        place at = {.line = INT_MAX};
        brief b;
        snprintf(at.text, sizeof at.text, "--set %s", shown(text, &b));
        mistake(r, &at, "%s", wrong);
        return;
    }
    cti_value from = {.by_override = true};
    take_entry(r, &from, o.section, o.key, o.value);
}

/* The value of model.name, and where it stands; NULL: none is given. */
static const char *model_name(reader *r, const cti_ini *ini, const char *const *overrides,
                              int n_overrides, place *at)
{
    const char *name = NULL;
    override o;
    place_of_file(r, at);
    for (int i = 0; ini && i < cti_ini_count(ini); i++) {
        const cti_ini_entry *e = cti_ini_at(ini, i);
        if (name || strcmp(e->section, "model") != 0 || strcmp(e->key, "name") != 0)
            continue;
        name = e->value;
        place_in_file(r, at, e->line, e->column);
    }
    for (int i = 0; i < n_overrides; i++) {
        if (split_override(overrides[i], &o) || strcmp(o.section, "model") != 0 ||
            strcmp(o.key, "name") != 0)
            continue;
        name = o.value;
        place_of(r, at, &(cti_value){.by_override = true}, "model", "name");
    }
    return name && *name ? name : NULL;
}

/* The model decides which keys [model] has, so its name is looked up before all else. */
static void find_model(reader *r, const cti_ini *ini, const char *const *overrides, int n_overrides)
{
    place at;
    brief b;
    const char *name = model_name(r, ini, overrides, n_overrides, &at);
    char known[512] = "";
    size_t n = 0;
    guess g = {NULL, NULL, 100};
    for (int i = 0; r->c->models && r->c->models[i]; i++) {
        const ct_model_def *m = r->c->models[i];
        if (name && strcmp(m->name, name) == 0)
            r->c->model = m;
        if (name)
            consider(&g, name, "", m->name, 0);
        if (n < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s ", m->name);
    }
    if (name)
        consider(&g, name, "", "layers", 0);
    if (r->c->model || (name && strcmp(name, "layers") == 0))
        return;
    r->bad_model = true;
    if (!name)
        mistake(r, &at, "[model] name is missing; allowed: %slayers", known);
    else
        mistake(r, &at, "[model] name = %s: unknown model; allowed: %slayers%s%s%s",
                shown(name, &b), known, g.name ? "; did you mean '" : "", g.name ? g.name : "",
                g.name ? "'?" : "");
}

/* ---- rules between keys ---- */

static void check_run(reader *r)
{
    const cti_value *name = cti_config_value(r->c, "run", "name");
    const cti_value *device = cti_config_value(r->c, "run", "device");
    place at;
    brief b;
    if (!cti_is_run_name(name->text)) {
        place_of(r, &at, name, "run", "name");
        mistake(r, &at,
                "[run] name = %s: not the name of a folder; give 1 to 200 characters without "
                "'/' that don't begin with '.'",
                shown(name->text, &b));
    }
    if (!cti_is_device(device->text)) {
        place_of(r, &at, device, "run", "device");
        mistake(r, &at, "[run] device = %s: allowed: auto cpu cuda cuda:N",
                shown(device->text, &b));
    }
}

static void check_rules(reader *r)
{
    const ct_config *c = r->c;
    const char *name = ct_config_get(c, "model", "name");
    const cti_value *layers = cti_config_value(c, "model", "layers");
    place at;
    check_run(r);
    place_of_file(r, &at);
    if (strcmp(name, "layers") == 0 && *layers->text == '\0')
        mistake(
            r, &at,
            "[model] name = layers needs the key layers, for example: layers = flatten linear(10)");
    if (strcmp(ct_config_get(c, "data", "dataset"), "mnist") == 0 &&
        *ct_config_get(c, "data", "path") == '\0')
        mistake(r, &at,
                "[data] dataset = mnist needs the key path: the folder with its four IDX files");
    if (!r->bad_model && strcmp(name, "layers") != 0 && *layers->text) {
        place_of(r, &at, layers, "model", "layers");
        mistake(r, &at, "[model] layers is only for name = layers, this model is %s", name);
    }
}

/* ---- loading ---- */

static bool set_defaults(reader *r)
{
    for (int i = 0; i < cti_n_keys; i++)
        set_text(r, &r->c->value[i], cti_keys[i].default_value);
    const ct_model_def *m = r->c->model;
    for (int k = 0; m && k < CT_MODEL_MAX_KEYS && m->keys[k].name; k++)
        set_text(r, &r->c->model_value[k], m->keys[k].default_value);
    return !r->no_memory;
}

static void take_all(reader *r, const cti_ini *ini, const char *const *overrides, int n_overrides)
{
    place at;
    find_model(r, ini, overrides, n_overrides);
    if (!set_defaults(r))
        return;
    for (int i = 0; ini && i < cti_ini_section_count(ini); i++) {
        int line;
        const char *s = cti_ini_section_at(ini, i, &line);
        place_in_file(r, &at, line, 1);
        if (!known_section(s))
            unknown_section(r, &at, s);
    }
    for (int i = 0; ini && i < cti_ini_count(ini); i++) {
        const cti_ini_entry *e = cti_ini_at(ini, i);
        cti_value from = {.line = e->line, .column = e->column};
        take_entry(r, &from, e->section, e->key, e->value);
    }
    for (int i = 0; i < n_overrides; i++)
        take_override(r, overrides[i]);
    for (int i = 0; i < cti_n_keys; i++) {
        check_value(r, &cti_keys[i], &r->c->value[i]);
        if (cti_keys[i].type == CTI_KEY_PATH)
            resolve_path(r, &cti_keys[i], &r->c->value[i]);
    }
    if (!r->no_memory)
        check_rules(r);
}

/* As many mistakes as the text has room for, and how many more there are. */
static int report(reader *r)
{
    enum { MORE = 24 }; /* room for the last line */
    char text[sizeof((ct_error *)0)->text];
    size_t n = 0;
    int i = 0;
    if (r->no_memory)
        return cti_fail(r->err, CT_ENOMEM, "out of memory while reading the config");
    if (r->mistakes == 0)
        return CT_OK;
    for (; i < r->mistakes && i < MAX_TOLD; i++) {
        size_t need = strlen(r->told[i].text) + 1;
        if (i > 0 && n + need + MORE > sizeof text)
            break;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "\n" : "", r->told[i].text);
    }
    if (i < r->mistakes && n + MORE <= sizeof text)
        snprintf(text + n, sizeof text - n, "\n... and %d more", r->mistakes - i);
    return cti_fail(r->err, CT_ECONFIG, "%s", text);
}

static ct_config *config_new(const char *path, const ct_model_def *const *models)
{
    cti_mem *mem = cti_mem_new(NULL);
    ct_config *c = mem ? cti_alloc(mem, sizeof *c, "config") : NULL;
    if (c) {
        c->mem = mem;
        c->models = models;
        c->path = cti_strdup(mem, path ? path : "");
        c->value = cti_alloc(mem, (size_t)cti_n_keys * sizeof *c->value, "config");
    }
    if (!c || !c->path || !c->value) {
        cti_mem_free(mem, NULL, NULL);
        return NULL;
    }
    return c;
}

ct_config *cti_config_parse(const char *path, const char *text, size_t bytes,
                            const char *const *overrides, int n_overrides,
                            const ct_model_def *const *models, ct_error *err)
{
    cti_ini *ini = NULL;
    reader r = {.c = config_new(path, models), .err = err};
    if (!r.c) {
        cti_fail(err, CT_ENOMEM, "out of memory for a config");
        return NULL;
    }
    if (text && cti_ini_parse(r.c->mem, text, bytes, syntax_mistake, &r, &ini) == CT_ENOMEM)
        r.no_memory = true;
    if (!r.no_memory)
        take_all(&r, ini, overrides, n_overrides);
    cti_ini_free(ini);
    if (report(&r) < 0) {
        ct_config_free(r.c);
        return NULL;
    }
    return r.c;
}

ct_config *ct_config_load(const char *path, const char *const *overrides, int n_overrides,
                          const ct_model_def *const *models, ct_error *err)
{
    cti_mem *mem = cti_mem_new(NULL);
    void *text = NULL;
    size_t bytes = 0;
    ct_config *c = NULL;
    if (!mem)
        cti_fail(err, CT_ENOMEM, "out of memory for a config");
    else if (!path || cti_file_read(mem, path, CT_ECONFIG, &text, &bytes, err) == CT_OK)
        c = cti_config_parse(path, text, bytes, overrides, n_overrides, models, err);
    cti_mem_free(mem, NULL, NULL);
    return c;
}

void ct_config_free(ct_config *c)
{
    if (c)
        cti_mem_free(c->mem, NULL, NULL);
}
