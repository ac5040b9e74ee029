/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are read without harm, every mistake has a place, and what was read can be written and
 * comes back equal. With one input byte in front: also with one allocation failing. */
#include "base/ini.h"

#include <assert.h>
#include <ctrain/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))

static void count(int line, int column, const char *text, void *user)
{
    CHECK(line > 0 && column > 0 && text[0] != '\0');
    ++*(int *)user;
}

static void rewrite_entry(cti_mem *m, const cti_ini_entry *e)
{
    size_t key = strlen(e->key), section = strlen(e->section);
    size_t value = (size_t)cti_ini_quote(NULL, 0, e->value), cap = key + section + value + 16;
    char *text = cti_alloc(m, cap, "fuzz");
    size_t n = section ? (size_t)snprintf(text, cap, "[%s]\n", e->section) : 0;
    cti_ini *again;
    int mistakes = 0;

    n += (size_t)snprintf(text + n, cap - n, "%s = ", e->key);
    n += (size_t)cti_ini_quote(text + n, cap - n, e->value);
    CHECK(cti_ini_parse(m, text, n, count, &mistakes, &again) == CT_OK && mistakes == 0);
    CHECK(cti_ini_count(again) == 1);
    CHECK(strcmp(cti_ini_at(again, 0)->section, e->section) == 0);
    CHECK(strcmp(cti_ini_at(again, 0)->key, e->key) == 0);
    CHECK(strcmp(cti_ini_at(again, 0)->value, e->value) == 0);
    cti_ini_free(again);
    cti_free(m, text);
}

static void check_entry(cti_mem *m, const cti_ini *ini, int i)
{
    const cti_ini_entry *e = cti_ini_at(ini, i), *last = i > 0 ? cti_ini_at(ini, i - 1) : NULL;
    int line, column;

    CHECK(e->key[0] != '\0' && e->line > 0 && e->column > 0 && e->value_column > 0);
    CHECK(e->value_line >= e->line && (!last || e->line > last->line));
    for (size_t k = 0; k <= strlen(e->value); k += 1 + k / 4) {
        cti_ini_locate(ini, i, k, &line, &column);
        CHECK(line >= e->value_line && column > 0);
    }
    if (last)
        CHECK(cti_edit_distance(last->key, e->key, 3) == cti_edit_distance(e->key, last->key, 3));
    rewrite_entry(m, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_ini *ini = NULL;
    int mistakes = 0, r;

    r = cti_ini_parse(m, (const char *)data, size, count, &mistakes, &ini);
    CHECK(r == (mistakes ? CT_ECONFIG : CT_OK) && ini);
    for (int i = 0; i < cti_ini_count(ini); i++)
        check_entry(m, ini, i);
    for (int i = 0; i < cti_ini_section_count(ini); i++)
        CHECK(cti_ini_section_at(ini, i, NULL)[0] != '\0');
    cti_ini_free(ini);

    cti_mem_fail_at(m, size ? data[0] % 32u + 1 : 1, true);
    r = cti_ini_parse(m, (const char *)data, size, NULL, NULL, &ini);
    CHECK((r == CT_ENOMEM) == cti_mem_failed(m) && (r == CT_ENOMEM) == !ini);
    cti_ini_free(ini);
    CHECK(cti_mem_get_stats(m).live_blocks == 0);
    cti_mem_free(m, NULL, NULL);
    return 0;
}
