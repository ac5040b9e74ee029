/* SPDX-License-Identifier: Apache-2.0 */
/* The list of models, and what they share in reading their keys. */
#include "models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ct_model_def *const ct_zoo[] = {&model_mlp, &model_lenet, &model_convnet, NULL};

const char *const model_activations[] = {"relu", "gelu", "silu", "tanh", NULL};

/* The text of a key; its default when the caller has none. */
static const char *value_of(const ct_model_def *def, const ct_model_spec *spec, int key)
{
    const char *v = spec->values ? spec->values[key] : NULL;

    return v ? v : def->keys[key].default_value;
}

static int wrong(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key,
                 const char *expected)
{
    return ct_error_raise(ctx, CT_ECONFIG, def->name, "model.%s = %s: model %s expects %s",
                          def->keys[key].name, value_of(def, spec, key), def->name, expected);
}

int model_sizes(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key, int max,
                int64_t *out, int *n)
{
    const char *at = value_of(def, spec, key);
    char expected[96];

    snprintf(expected, sizeof expected, "up to %d sizes of 1 to 1048576, for example %s", max,
             def->keys[key].default_value);
    for (*n = 0; *(at += strspn(at, " \t\r\n")); ++*n) {
        char *end;
        long long v;

        errno = 0;
        v = strtoll(at, &end, 10);
        if (*n == max || end == at || errno || v < 1 || v > 1048576)
            return wrong(ctx, def, spec, key, expected);
        out[*n] = v;
        at = end + strspn(end, " \t\r\n");
        if (*at == ',')
            at++;
        else if (at == end && *at)
            return wrong(ctx, def, spec, key, expected);
    }
    return CT_OK;
}

int model_probability(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key,
                      double *out)
{
    const char *text = value_of(def, spec, key);
    char *end;

    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0 && *out < 1))
        return wrong(ctx, def, spec, key, "a number of at least 0 and less than 1");
    return CT_OK;
}

int model_choice(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int key,
                 const char *const *words, int *out)
{
    char expected[128] = "one of";
    size_t n = strlen(expected);

    for (*out = 0; words[*out]; ++*out) {
        if (strcmp(words[*out], value_of(def, spec, key)) == 0)
            return CT_OK;
        if (n < sizeof expected)
            n += (size_t)snprintf(expected + n, sizeof expected - n, "%s %s", *out ? "," : "",
                                  words[*out]);
    }
    return wrong(ctx, def, spec, key, expected);
}

int model_image(ct_ctx *ctx, const ct_model_def *def, const ct_model_spec *spec, int64_t least,
                const char *hint)
{
    const int64_t *s = spec->shape;

    if (spec->ndim != 3)
        return ct_error_raise(
            ctx, CT_ECONFIG, def->name,
            "model %s expects images [C,H,W], but a sample has %d dimensions; for "
            "plain features take model.name = mlp",
            def->name, spec->ndim);
    if (s[1] < least || s[2] < least)
        return ct_error_raise(ctx, CT_ECONFIG, def->name,
                              "model %s expects images of at least %lldx%lld, got %lldx%lld; %s",
                              def->name, (long long)least, (long long)least, (long long)s[1],
                              (long long)s[2], hint);
    return CT_OK;
}

ct_module *model_activation(ct_ctx *ctx, int which)
{
    switch (which) {
    case 1:
        return ct_nn_gelu_new(ctx, false);
    case 2:
        return ct_nn_silu_new(ctx);
    case 3:
        return ct_nn_tanh_new(ctx);
    default:
        return ct_nn_relu_new(ctx);
    }
}

ct_module *model_done(ct_module *seq, int status)
{
    if (status == CT_OK)
        return seq;
    ct_module_free(seq);
    return NULL;
}
