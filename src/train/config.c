/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a config: all mistakes of a file in one pass, each with its place and the likely one meant. */
#include "train/config_internal.h"

#include "base/error.h"
#include "base/file.h"
#include "base/ini.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOLD 12 /* mistakes told one by one */

typedef struct reader {
    ct_config *c;
    ct_error *err;
    char text[sizeof((ct_error *)0)->text];
    size_t n;
    int mistakes;
    bool no_memory;
} reader;

/* "PLACE: TEXT" on a line of its own. */
static void CT_PRINTF(3, 4) mistake(reader *r, const char *place, const char *fmt, ...)
{
    va_list args;
    if (r->mistakes++ >= MAX_TOLD || r->n + 200 > sizeof r->text)
        return;
    r->n += (size_t)snprintf(r->text + r->n, sizeof r->text - r->n, "%s%s: ", r->n ? "\n" : "", place);
    va_start(args, fmt);
    int k = r->n < sizeof r->text ? vsnprintf(r->text + r->n, sizeof r->text - r->n, fmt, args) : 0;
    va_end(args);
    r->n += k > 0 ? (size_t)k : 0;
    if (r->n >= sizeof r->text)
        r->n = sizeof r->text - 1;
}

/* "FILE:LINE:COLUMN", or "--set SECTION.KEY". */
static const char *place_of(const reader *r, const cti_value *v, const char *section, const char *key,
                            char *buf, size_t cap)
{
    if (v->by_override)
        snprintf(buf, cap, "--set %s.%s", section, key);
    else
        snprintf(buf, cap, "%s:%d:%d", r->c->path, v->line, v->column);
    return buf;
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

static void unknown_key(reader *r, const char *place, const char *section, const char *name)
{
    guess g = {NULL, NULL, 100};
    for (int i = 0; i < cti_n_keys; i++)
        consider(&g, name, cti_keys[i].section, cti_keys[i].name,
                 strcmp(cti_keys[i].section, section) == 0 ? 0 : 1);
    const ct_model_def *m = r->c->model;
    for (int k = 0; m && k < CT_MODEL_MAX_KEYS && m->keys[k].name; k++)
        consider(&g, name, "model", m->keys[k].name, strcmp(section, "model") == 0 ? 0 : 1);
    char hint[160] = "";
    if (g.name && strcmp(g.section, section) == 0)
        snprintf(hint, sizeof hint, "did you mean '%s'? ", g.name);
    else if (g.name)
        snprintf(hint, sizeof hint, "did you mean '%s' in [%s]? ", g.name, g.section);
    mistake(r, place, "unknown key '%s' in [%s]; %s(ctrain keys %s lists them)", name, section, hint,
            section);
}

static bool known_section(const char *section)
{
    for (int i = 0; i < cti_n_keys; i++) {
        if (strcmp(cti_keys[i].section, section) == 0)
            return true;
    }
    return false;
}

static void unknown_section(reader *r, const char *place, const char *section)
{
    guess g = {NULL, NULL, 100};
    for (int i = 0; i < cti_n_keys; i++)
        consider(&g, section, "", cti_keys[i].section, 0);
    if (*section == '\0')
        mistake(r, place, "the key stands before the first [section]");
    else if (g.name)
        mistake(r, place, "unknown section [%s]; did you mean [%s]?", section, g.name);
    else
        mistake(r, place, "unknown section [%s]; ctrain keys lists them", section);
}

/* ---- values ---- */

static bool is_choice(const char *allowed, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = allowed; p && n; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        if (strncmp(p, value, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    }
    return false;
}

static void bad_choice(reader *r, const char *place, const cti_key *k, const char *value)
{
    char words[256], shown[256];
    guess g = {NULL, NULL, 100};
    snprintf(words, sizeof words, "%s", k->allowed);
    snprintf(shown, sizeof shown, "%s", k->allowed);
    for (char *p = shown; *p; p++)
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
    mistake(r, place, "[%s] %s = %s: allowed: %s%s", k->section, k->name, value, shown, hint);
}

static bool in_range(const cti_key *k, double v)
{
    return k->open ? v > k->min && v < k->max : v >= k->min && v <= k->max;
}

static void check_value(reader *r, const cti_key *k, const cti_value *v)
{
    char place[1200];
    const char *s = v->text;
    int64_t i;
    double f;
    bool b;
    cti_interval t;
    if (*s == '\0' && k->default_value[0] == '\0')
        return;
    place_of(r, v, k->section, k->name, place, sizeof place);
    switch (k->type) {
    case CTI_KEY_INT:
        if (!cti_parse_i64(s, &i))
            mistake(r, place, "[%s] %s = %s: not a whole number; allowed: %s", k->section, k->name, s,
                    k->allowed);
        else if (!in_range(k, (double)i))
            mistake(r, place, "[%s] %s = %s is out of range; allowed: %s", k->section, k->name, s,
                    k->allowed);
        break;
    case CTI_KEY_FLOAT:
        if (!cti_parse_f64(s, &f))
            mistake(r, place, "[%s] %s = %s: not a number; allowed: %s", k->section, k->name, s,
                    k->allowed);
        else if (!in_range(k, f))
            mistake(r, place, "[%s] %s = %s is out of range; allowed: %s", k->section, k->name, s,
                    k->allowed);
        break;
    case CTI_KEY_BOOL:
        if (!cti_parse_bool(s, &b))
            mistake(r, place, "[%s] %s = %s: allowed: true, false", k->section, k->name, s);
        break;
    case CTI_KEY_CHOICE:
        if (!is_choice(k->allowed, s))
            bad_choice(r, place, k, s);
        break;
    case CTI_KEY_INTERVAL:
        if (!cti_parse_interval(s, &t))
            mistake(r, place, "[%s] %s = %s: not an interval; allowed: %s", k->section, k->name, s,
                    k->allowed);
        break;
    case CTI_KEY_STRING:
    case CTI_KEY_PATH:
        break;
    }
}

/* Paths in a file are relative to its folder, those of --set to where the command runs. */
static void resolve_path(reader *r, cti_value *v)
{
    char path[4096], absolute[4096];
    ct_error e = {0};
    bool from_file = !v->by_override && *r->c->path != '\0';
    if (*v->text == '\0')
        return;
    int k = from_file ? cti_path_relative_to(path, sizeof path, r->c->path, v->text, &e)
                      : cti_path(path, sizeof path, &e, "%s", v->text);
    if (k < 0 || cti_path_absolute(absolute, sizeof absolute, path, &e) < 0)
        mistake(r, v->text, "%s", e.text);
    else
        set_text(r, v, absolute);
}

/* ---- entries ---- */

static void take_entry(reader *r, const cti_value *from, const char *section, const char *name,
                       const char *text)
{
    char place[1200];
    place_of(r, from, section, name, place, sizeof place);
    if (!known_section(section)) {
        unknown_section(r, place, section);
        return;
    }
    cti_value *v = cti_config_value(r->c, section, name);
    if (!v) {
        unknown_key(r, place, section, name);
        return;
    }
    if (v->set && !from->by_override) {
        mistake(r, place, "key '%s' in [%s] was given before, at line %d", name, section, v->line);
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
    char place[1200];
    snprintf(place, sizeof place, "%s:%d:%d", r->c->path, line, column);
    mistake(r, place, "%s", text);
}

/* "section.key=value"; the section itself may have a dot. */
static void take_override(reader *r, const char *text)
{
    char name[256], place[300];
    const char *eq = strchr(text, '=');
    size_t n = eq ? (size_t)(eq - text) : 0;
    snprintf(place, sizeof place, "--set %.200s", text);
    if (!eq || n >= sizeof name) {
        mistake(r, place, "expected section.key=value");
        return;
    }
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    memcpy(name, text, n);
    name[n] = '\0';
    char *dot = strrchr(name, '.');
    if (!dot || dot == name || dot[1] == '\0') {
        mistake(r, place, "expected section.key=value, for example train.epochs=3");
        return;
    }
    *dot = '\0';
    for (eq++; *eq == ' ' || *eq == '\t';)
        eq++;
    cti_value from = {.by_override = true};
    take_entry(r, &from, name, dot + 1, eq);
}

/* The model decides which keys [model] has, so its name is looked up before all else. */
static void find_model(reader *r, const cti_ini *ini, const char *const *overrides, int n_overrides)
{
    const char *name = NULL, *prefix = "model.name=";
    char place[1200];
    snprintf(place, sizeof place, "%s", *r->c->path ? r->c->path : "config");
    for (int i = 0; ini && i < cti_ini_count(ini); i++) {
        const cti_ini_entry *e = cti_ini_at(ini, i);
        if (strcmp(e->section, "model") != 0 || strcmp(e->key, "name") != 0)
            continue;
        name = e->value;
        snprintf(place, sizeof place, "%s:%d:%d", r->c->path, e->line, e->column);
    }
    for (int i = 0; i < n_overrides; i++) {
        if (strncmp(overrides[i], prefix, strlen(prefix)) != 0)
            continue;
        name = overrides[i] + strlen(prefix);
        snprintf(place, sizeof place, "--set model.name");
    }
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
    if (name && *name == '\0')
        name = NULL;
    if (r->c->model || (name && strcmp(name, "layers") == 0))
        return;
    if (!name)
        mistake(r, place, "[model] name is missing; allowed: %slayers", known);
    else
        mistake(r, place, "[model] name = %s: unknown model; allowed: %slayers%s%s%s", name, known,
                g.name ? "; did you mean '" : "", g.name ? g.name : "", g.name ? "'?" : "");
}

/* ---- rules between keys ---- */

static void check_rules(reader *r)
{
    const ct_config *c = r->c;
    const char *name = ct_config_get(c, "model", "name");
    const char *layers = ct_config_get(c, "model", "layers");
    char place[1200];
    if (strcmp(name, "layers") == 0 && *layers == '\0')
        mistake(r, *c->path ? c->path : "config",
                "[model] name = layers needs the key layers, for example: layers = flatten linear(10)");
    if (strcmp(name, "layers") != 0 && *layers != '\0') {
        cti_config_where(c, "model", "layers", place, sizeof place);
        mistake(r, place, "layers is only for name = layers, this model is %s", name);
    }
    if (strcmp(ct_config_get(c, "data", "dataset"), "mnist") == 0 &&
        *ct_config_get(c, "data", "path") == '\0')
        mistake(r, *c->path ? c->path : "config",
                "[data] dataset = mnist needs the key path: the folder with its four IDX files");
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
    char place[1200];
    find_model(r, ini, overrides, n_overrides);
    if (!set_defaults(r))
        return;
    for (int i = 0; ini && i < cti_ini_section_count(ini); i++) {
        int line;
        const char *s = cti_ini_section_at(ini, i, &line);
        bool has_keys = false;
        for (int k = 0; k < cti_ini_count(ini) && !has_keys; k++)
            has_keys = strcmp(cti_ini_at(ini, k)->section, s) == 0;
        snprintf(place, sizeof place, "%s:%d:1", r->c->path, line);
        if (!has_keys && !known_section(s))
            unknown_section(r, place, s);
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
            resolve_path(r, &r->c->value[i]);
    }
    if (r->mistakes == 0)
        check_rules(r);
}

static int report(reader *r)
{
    if (r->no_memory)
        return cti_fail(r->err, CT_ENOMEM, "out of memory while reading the config");
    if (r->mistakes == 0)
        return CT_OK;
    if (r->mistakes > MAX_TOLD && r->n + 40 < sizeof r->text)
        snprintf(r->text + r->n, sizeof r->text - r->n, "\n... and %d more", r->mistakes - MAX_TOLD);
    return cti_fail(r->err, CT_ECONFIG, "%s", r->text);
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

ct_config *ct_config_load(const char *path, const char *const *overrides, int n_overrides,
                          const ct_model_def *const *models, ct_error *err)
{
    void *text = NULL;
    size_t bytes = 0;
    cti_ini *ini = NULL;
    reader r = {.c = config_new(path, models), .err = err};
    if (!r.c) {
        cti_fail(err, CT_ENOMEM, "out of memory for a config");
        return NULL;
    }
    if (path && cti_file_read(r.c->mem, path, CT_ECONFIG, &text, &bytes, err) < 0) {
        ct_config_free(r.c);
        return NULL;
    }
    if (path && cti_ini_parse(r.c->mem, text, bytes, syntax_mistake, &r, &ini) == CT_ENOMEM)
        r.no_memory = true;
    if (!r.no_memory)
        take_all(&r, ini, overrides, n_overrides);
    cti_ini_free(ini);
    cti_free(r.c->mem, text);
    if (report(&r) < 0) {
        ct_config_free(r.c);
        return NULL;
    }
    return r.c;
}

void ct_config_free(ct_config *c)
{
    if (c)
        cti_mem_free(c->mem, NULL, NULL);
}
