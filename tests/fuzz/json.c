/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are read without harm: a tree or CT_EFORMAT, never "out of memory" because the scanner
 * and cJSON disagree; and the tree, written and read again, is the same. */
#include "base/json.h"

#include <ctrain/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))

/* False when it is deeper than the writer goes. */
static bool write_tree(cti_jw *w, const cti_json *j, const char *key, int depth)
{
    double f;
    bool b;

    if (depth > 60)
        return false;
    if (cti_json_string(j)) {
        cti_jw_string(w, key, cti_json_string(j));
    } else if (cti_json_bool(j, &b)) {
        cti_jw_bool(w, key, b);
    } else if (cti_json_f64(j, &f)) {
        cti_jw_f64(w, key, f);
    } else if (cti_json_is_object(j) || cti_json_is_array(j)) {
        bool object = cti_json_is_object(j), fits = true;
        if (object)
            cti_jw_object(w, key);
        else
            cti_jw_array(w, key);
        for (const cti_json *c = cti_json_first(j); c && fits; c = cti_json_next(c))
            fits = write_tree(w, c, object ? cti_json_key(c) : NULL, depth + 1);
        cti_jw_end(w);
        return fits;
    } else {
        cti_jw_string(w, key, NULL); /* null, and numbers beyond a double */
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cti_mem *m = cti_mem_new(NULL);
    cti_jw *first = cti_jw_new(m, false), *second = cti_jw_new(m, true);
    ct_error err = {0};
    cti_json *j = cti_json_parse((const char *)data, size, "fuzz", &err), *again;

    CHECK(j ? err.code == CT_OK : err.code == CT_EFORMAT);
    if (j && write_tree(first, j, NULL, 0) && write_tree(second, j, NULL, 0)) {
        size_t n = 0;
        const char *text = cti_jw_text(second, &n);
        again = cti_json_parse(text, n, "written", &err);
        CHECK(again);
        cti_jw_reset(second);
        CHECK(write_tree(second, again, NULL, 0));
        cti_json_free(again);
        again = cti_json_parse(cti_jw_text(first, NULL), strlen(cti_jw_text(first, NULL)),
                               "written", &err);
        CHECK(again);
        cti_jw_free(second);
        second = cti_jw_new(m, false);
        CHECK(write_tree(second, again, NULL, 0));
        CHECK(strcmp(cti_jw_text(first, NULL), cti_jw_text(second, NULL)) == 0);
        cti_json_free(again);
    }
    cti_json_free(j);
    cti_jw_free(first);
    cti_jw_free(second);
    CHECK(cti_mem_get_stats(m).live_blocks == 0);
    cti_mem_free(m, NULL, NULL);
    return 0;
}
