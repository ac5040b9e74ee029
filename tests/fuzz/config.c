/* SPDX-License-Identifier: Apache-2.0 */
/* Any text is a config or gives an error with a place; what is a config writes a text that reads
 * back to itself. */
#include "train/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort()))

static ct_module *no_build(ct_ctx *ctx, const ct_model_spec *spec)
{
    (void)ctx;
    (void)spec;
    return NULL;
}

static const ct_model_def net = {
    .name = "mlp",
    .doc = "",
    .keys = {{"hidden", "128", ""}, {"dropout", "0", ""}},
    .build = no_build,
};
static const ct_model_def other = {
    .name = "lenet", .doc = "", .keys = {{"pool", "max", ""}}, .build = no_build};
static const ct_model_def *const models[] = {&net, &other, NULL};

static void never(const char *section, const char *key, const char *a, const char *b,
                  cti_resume_class cls, void *user)
{
    (void)section, (void)key, (void)a, (void)b, (void)cls, (void)user;
    CHECK(!"a config differs from its own text");
}

static void check_config(ct_config *c)
{
    ct_error err = {0};
    const char *text = ct_config_text(c);
    ct_config *again;

    CHECK(text);
    again = cti_config_parse("/elsewhere/config.ini", text, strlen(text), NULL, 0, models, &err);
    if (!again)
        fprintf(stderr, "%s\n%s\n", text, err.text);
    CHECK(again);
    cti_config_diff(c, again, never, NULL);
    CHECK(strcmp(text, ct_config_text(again)) == 0);
    ct_config_free(again);
}

static void try(const char *text, size_t size, const char *const *sets, int n)
{
    ct_error err = {0};
    ct_config *c = cti_config_parse("/folder/fuzz.ini", text, size, sets, n, models, &err);

    CHECK(!c == (err.code != CT_OK));
    if (c)
        check_config(c);
    else
        CHECK(err.code == CT_ECONFIG && (strncmp(err.text, "/folder/fuzz.ini", 16) == 0 ||
                                         strncmp(err.text, "--set ", 6) == 0));
    ct_config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char base[] = "[model]\nname = mlp\n";
    const char *sets[3] = {"model.name=mlp", NULL, NULL};
    char *line = malloc(size + 1);

    if (!line)
        return 0;
    try((const char *)data, size, NULL, 0);
    try((const char *)data, size, sets, 1);
    memcpy(line, data, size);
    line[size] = '\0';
    sets[1] = line; /* the same bytes as an override */
    try(base, sizeof base - 1, sets + 1, 1);
    free(line);
    return 0;
}
