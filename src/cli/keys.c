/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain keys [SECTION] [--json] */
#include "cli/cli.h"
#include "cli/zoo.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SECTIONS = 32 };

/* One row, of the table or of a model. */
typedef struct row {
    ct_config_key key;
    const char *model; /* NULL: not a key of one model */
} row;

typedef void (*row_fn)(const row *r, void *user);

/* The keys of the table in order; those of the models follow [model]'s own. */
static void each_row(row_fn fn, void *user)
{
    ct_config_key key, next;

    for (int i = 0; ct_config_key_at(i, &key); i++) {
        fn(&(row){.key = key}, user);
        if (strcmp(key.section, "model") != 0 ||
            (ct_config_key_at(i + 1, &next) && strcmp(next.section, "model") == 0))
            continue;
        for (int m = 0; ct_zoo[m]; m++) {
            for (int k = 0; k < CT_MODEL_MAX_KEYS && ct_zoo[m]->keys[k].name; k++) {
                const ct_model_key *mk = &ct_zoo[m]->keys[k];
                row r = {{"model", mk->name, "text", mk->default_value, "", mk->doc},
                         ct_zoo[m]->name};
                fn(&r, user);
            }
        }
    }
}

/* ---- which rows ---- */

typedef struct choice {
    const char *word; /* a section, "section.key", or NULL: all */
    bool found;
    row_fn fn;
    int width[4];                /* of name, type, default, allowed */
    const char *section, *model; /* of the last row printed */
    int printed;
} choice;

static bool is_chosen(const choice *c, const row *r)
{
    size_t n = strlen(r->key.section);

    if (!c->word || strcmp(c->word, r->key.section) == 0)
        return true;
    return strncmp(c->word, r->key.section, n) == 0 && c->word[n] == '.' &&
           strcmp(c->word + n + 1, r->key.name) == 0;
}

static void pass_chosen(const row *r, void *user)
{
    choice *c = user;

    if (!is_chosen(c, r))
        return;
    c->found = true;
    c->fn(r, c);
}

/* ---- table ---- */

static const char *default_of(const row *r)
{
    return r->key.default_value && r->key.default_value[0] ? r->key.default_value : "-";
}

static const char *allowed_of(const row *r)
{
    return r->key.allowed && r->key.allowed[0] ? r->key.allowed : "-";
}

static void measure(const row *r, void *user)
{
    choice *c = user;
    const char *cell[4] = {r->key.name, r->key.type, default_of(r), allowed_of(r)};

    for (int i = 0; i < 4; i++) {
        int n = (int)strlen(cell[i]);
        if (n > c->width[i])
            c->width[i] = n < 36 ? n : 36;
    }
}

static void print_row(const row *r, void *user)
{
    choice *c = user;
    bool same = c->section && strcmp(c->section, r->key.section) == 0 && c->model == r->model;

    if (!same && r->model)
        cli_out("%s[%s] with name = %s\n", c->printed ? "\n" : "", r->key.section, r->model);
    else if (!same)
        cli_out("%s[%s]\n", c->printed ? "\n" : "", r->key.section);
    cli_out("  %-*s  %-*s  %-*s  %-*s  %s\n", c->width[0], r->key.name, c->width[1], r->key.type,
            c->width[2], default_of(r), c->width[3], allowed_of(r), r->key.doc);
    c->section = r->key.section;
    c->model = r->model;
    c->printed++;
}

/* ---- JSON ---- */

static void print_member(const char *name, const char *value)
{
    cli_out(", \"%s\": ", name);
    if (value)
        cli_out_json(value);
    else
        cli_out("null");
}

static void print_object(const row *r, void *user)
{
    choice *c = user;

    cli_out("%s\n  {\"section\": ", c->printed++ ? "," : "[");
    cli_out_json(r->key.section);
    print_member("key", r->key.name);
    print_member("type", r->key.type);
    print_member("default", r->key.default_value);
    print_member("allowed", r->key.allowed);
    print_member("doc", r->key.doc);
    print_member("model", r->model);
    cli_out("}");
}

/* ---- the command ---- */

typedef struct names {
    const char *word[MAX_SECTIONS + 1];
    int n;
} names;

static void note_section(const row *r, void *user)
{
    names *s = user;

    if (s->n < MAX_SECTIONS && (s->n == 0 || strcmp(s->word[s->n - 1], r->key.section) != 0))
        s->word[s->n++] = r->key.section;
}

static int unknown_section(const char *word)
{
    names sections = {{NULL}, 0};
    const char *near;
    char all[400] = "";
    size_t n = 0;

    each_row(note_section, &sections);
    near = cli_nearest(word, sections.word);
    for (int i = 0; i < sections.n && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", sections.word[i]);
    cli_error("there is no section or key '%.200s'%s%s%s\nsections: %s", word,
              near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", all);
    return CLI_EUSAGE;
}

int cli_keys(const cli_line *line)
{
    choice c = {.word = line->n_operands ? line->operands[0] : NULL, .fn = measure};

    each_row(pass_chosen, &c);
    if (!c.found)
        return unknown_section(c.word);
    if (!line->given[CLI_JSON]) {
        c.fn = print_row;
        each_row(pass_chosen, &c);
        return CLI_OK;
    }
    c.fn = print_object;
    each_row(pass_chosen, &c);
    cli_out("\n]\n");
    return CLI_OK;
}
