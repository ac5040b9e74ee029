/* SPDX-License-Identifier: Apache-2.0 */
/* Would the real cuDNN take our operation graphs? Reads what the software double recorded
 * (CTD_PLANS), rebuilds each graph with the library for a device described in JSON, and asks for
 * a plan as the backend does. Needs no GPU; LD_LIBRARY_PATH must lead to fake_libcuda.c as
 * libcuda.so.1.
 *     plans DEVICE.json FILE...
 * Wrong graphs, made of the right ones, must be refused. */
#define _POSIX_C_SOURCE 200809L
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DESCS = 64, MAX_ATTRS = 24, MAX_CONFIGS = 100, WORKSPACE_MAX = 1 << 30 };

typedef struct {
    int number, type;
    int64_t count;
    size_t n_bytes;
    unsigned char bytes[256]; /* elements, or indices of descriptors as int64_t */
} attr;

typedef struct {
    int type, n_attrs;
    attr attrs[MAX_ATTRS];
} desc;

typedef struct {
    int n;
    desc d[MAX_DESCS];
} graph;

static char why[1200];
static cudnnBackendDescriptor_t device;

static bool ok(cudnnStatus_t s, const char *what, int number)
{
    char text[900] = "";
    if (s == CUDNN_STATUS_SUCCESS)
        return true;
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(why, sizeof why, "%s %d: %s: %s", what, number, cudnnGetErrorString(s), text);
    return false;
}

/* ---- reading ---- */

static bool parse_attr(const char *line, attr *a)
{
    int at = 0;
    long count;
    if (sscanf(line, "attr %d %d %ld %n", &a->number, &a->type, &count, &at) != 3 || at == 0)
        return false;
    a->count = count;
    a->n_bytes = 0;
    line += at;
    if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < count && (size_t)(i + 1) * 8 <= sizeof a->bytes; i++) {
            int64_t index = 0;
            long v;
            int used = 0;
            if (sscanf(line, " @%ld%n", &v, &used) != 1)
                return false;
            index = v;
            memcpy(a->bytes + i * 8, &index, 8);
            a->n_bytes += 8;
            line += used;
        }
        return (int64_t)a->n_bytes == count * 8;
    }
    for (unsigned b; a->n_bytes < sizeof a->bytes && sscanf(line, "%2x", &b) == 1; line += 2)
        a->bytes[a->n_bytes++] = (unsigned char)b;
    return true;
}

/* The lines between "graph" and "end". */
static bool parse(const char *text, graph *g)
{
    g->n = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        int index, type;
        if (sscanf(line, "desc %d %d", &index, &type) == 2) {
            if (index != g->n || g->n == MAX_DESCS)
                return false;
            g->d[g->n].type = type;
            g->d[g->n++].n_attrs = 0;
        } else {
            desc *d = g->n ? &g->d[g->n - 1] : NULL;
            if (!d || d->n_attrs == MAX_ATTRS || !parse_attr(line, &d->attrs[d->n_attrs++]))
                return false;
        }
    }
    return g->n > 0 && g->d[g->n - 1].type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
}

/* Appends the texts of graphs that are not there yet. */
static bool read_file(const char *path, char ***texts, size_t *n)
{
    FILE *f = fopen(path, "r");
    char *line = NULL, *text = NULL;
    size_t room = 0, length = 0;
    ssize_t got;
    if (!f)
        return false;
    while ((got = getline(&line, &room, f)) > 0) {
        if (!strcmp(line, "graph\n")) {
            length = 0;
        } else if (strcmp(line, "end\n") != 0) {
            text = realloc(text, length + (size_t)got + 1);
            memcpy(text + length, line, (size_t)got + 1);
            length += (size_t)got;
        } else if (text) {
            size_t i = 0;
            while (i < *n && strcmp((*texts)[i], text) != 0)
                i++;
            if (i == *n) {
                *texts = realloc(*texts, (*n + 1) * sizeof **texts);
                (*texts)[(*n)++] = text;
            } else {
                free(text);
            }
            text = NULL;
        }
    }
    free(text);
    free(line);
    fclose(f);
    return true;
}

/* ---- asking the library ---- */

static attr *find(desc *d, int number)
{
    for (int i = 0; i < d->n_attrs; i++)
        if (d->attrs[i].number == number)
            return &d->attrs[i];
    return NULL;
}

static bool all_f32(graph *g)
{
    for (int i = 0; i < g->n; i++) {
        attr *a = find(&g->d[i], CUDNN_ATTR_TENSOR_DATA_TYPE);
        cudnnDataType_t t;
        if (g->d[i].type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || !a)
            continue;
        memcpy(&t, a->bytes, sizeof t);
        if (t != CUDNN_DATA_FLOAT)
            return false;
    }
    return true;
}

static bool set(cudnnBackendDescriptor_t d, int number, cudnnBackendAttributeType_t type, int64_t n,
                const void *v)
{
    return ok(cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)number, type, n, v),
              "attribute", number);
}

static bool build(const graph *g, cudnnBackendDescriptor_t *made)
{
    for (int i = 0; i < g->n; i++) {
        const desc *d = &g->d[i];
        if (!ok(cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)d->type, &made[i]),
                "create", d->type))
            return false;
        for (int j = 0; j < d->n_attrs; j++) {
            const attr *a = &d->attrs[j];
            cudnnBackendDescriptor_t children[32];
            const void *v = a->bytes;
            for (int64_t k = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < a->count; k++) {
                int64_t index;
                memcpy(&index, a->bytes + k * 8, 8);
                children[k] = made[index];
                v = children;
            }
            if (!set(made[i], a->number, (cudnnBackendAttributeType_t)a->type, a->count, v))
                return false;
        }
        if (!ok(cudnnBackendFinalize(made[i]), "finalize descriptor of type", d->type))
            return false;
    }
    return true;
}

/* Notes that the backend passes over. */
static bool wanted(cudnnBackendDescriptor_t config, bool f32)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t n = 0, one = 0;
    bool good = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == 0 &&
                cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine) == 0 &&
                cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                         &n, notes) == 0;
    for (int64_t i = 0; good && i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            (f32 && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
            good = false;
    if (engine)
        cudnnBackendDestroyDescriptor(engine);
    return good;
}

static bool plan_finalizes(cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t plan = NULL;
    int64_t n = 0, workspace = 0;
    bool good = ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan),
                   "plan", 0) &&
                set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &config) &&
                set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &device) &&
                ok(cudnnBackendFinalize(plan), "finalize plan", 0) &&
                ok(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &n, &workspace),
                   "workspace", 0);
    if (good && workspace > WORKSPACE_MAX) {
        snprintf(why, sizeof why, "workspace of %lld bytes", (long long)workspace);
        good = false;
    }
    if (plan)
        cudnnBackendDestroyDescriptor(plan);
    return good;
}

static bool plan_by(cudnnBackendDescriptor_t root, cudnnBackendHeurMode_t mode, bool f32)
{
    cudnnBackendDescriptor_t heur = NULL, configs[MAX_CONFIGS] = {0};
    int64_t got = 0;
    bool good = false;
    if (ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur), "heuristics",
           mode) &&
        set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &root) &&
        set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
        set(heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device) &&
        ok(cudnnBackendFinalize(heur), "finalize heuristics", mode)) {
        for (int i = 0; i < MAX_CONFIGS; i++)
            cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
        ok(cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &got, configs),
           "results of heuristics", mode);
        if (got == 0 && !why[0])
            snprintf(why, sizeof why, "no engine config");
        for (int64_t i = 0; i < got && !good; i++)
            good = wanted(configs[i], f32) && plan_finalizes(configs[i]);
        if (got > 0 && !good && !why[0])
            snprintf(why, sizeof why, "%lld engine configs, none deterministic and exact enough",
                     (long long)got);
    }
    for (int i = 0; i < MAX_CONFIGS; i++)
        if (configs[i])
            cudnnBackendDestroyDescriptor(configs[i]);
    if (heur)
        cudnnBackendDestroyDescriptor(heur);
    return good;
}

static bool accepted(graph *g)
{
    cudnnBackendDescriptor_t made[MAX_DESCS] = {0};
    bool good = false, f32 = all_f32(g);
    why[0] = 0;
    if (build(g, made))
        good = plan_by(made[g->n - 1], CUDNN_HEUR_MODE_A, f32) ||
               plan_by(made[g->n - 1], CUDNN_HEUR_MODE_FALLBACK, f32);
    for (int i = g->n - 1; i >= 0; i--)
        if (made[i])
            cudnnBackendDestroyDescriptor(made[i]);
    return good;
}

/* ---- wrong graphs ---- */

static desc *child(graph *g, desc *d, int number)
{
    attr *a = find(d, number);
    int64_t index;
    if (!a)
        return NULL;
    memcpy(&index, a->bytes, 8);
    return &g->d[index];
}

static int64_t *numbers(desc *d, int number)
{
    attr *a = d ? find(d, number) : NULL;
    return a ? (int64_t *)(void *)a->bytes : NULL;
}

/* The numbers of attributes of x, w, y of a convolution; of x, scale, y of a normalization; x, y
 * of a pool. */
typedef struct {
    int type, x, w, y;
} roles;
static const roles convs[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};
static const roles norms[] = {
    {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
     CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC},
    {CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,
     CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC},
};

static bool find_op(graph *g, const roles *of, size_t n, desc **x, desc **w, desc **y)
{
    for (int i = 0; i < g->n; i++)
        for (size_t r = 0; r < n; r++)
            if (g->d[i].type == of[r].type) {
                *x = child(g, &g->d[i], of[r].x);
                *w = child(g, &g->d[i], of[r].w);
                *y = child(g, &g->d[i], of[r].y);
                return *x && *w && *y;
            }
    return false;
}

#define FIND_CONV(g) find_op(g, convs, sizeof convs / sizeof *convs, &x, &w, &y)
#define FIND_NORM(g) find_op(g, norms, sizeof norms / sizeof *norms, &x, &w, &y)

/* Each changes one thing, or returns false where the graph has no place for it. */
static bool height_off(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    numbers(y, CUDNN_ATTR_TENSOR_DIMENSIONS)[2] += 1;
    return true;
}

static bool channels_wrong(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    numbers(w, CUDNN_ATTR_TENSOR_DIMENSIONS)[1] = numbers(x, CUDNN_ATTR_TENSOR_DIMENSIONS)[1] + 1;
    return true;
}

static bool filters_wrong(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    numbers(y, CUDNN_ATTR_TENSOR_DIMENSIONS)[1] += 1;
    return true;
}

static bool strides_overlap(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    int64_t *dim = numbers(x, CUDNN_ATTR_TENSOR_DIMENSIONS),
            *s = numbers(x, CUDNN_ATTR_TENSOR_STRIDES);
    if (dim[1] < 2 || dim[3] < 2)
        return false;
    s[1] = s[3] = 1;
    return true;
}

static bool no_strides(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    attr *a = find(x, CUDNN_ATTR_TENSOR_STRIDES);
    *a = x->attrs[--x->n_attrs];
    return true;
}

static bool empty_filter(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    numbers(w, CUDNN_ATTR_TENSOR_DIMENSIONS)[2] = 0;
    return true;
}

/* What the library must make a difference of: booleans are one byte. */
static bool boolean_as_number(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_CONV(g))
        return false;
    attr a = {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_INT64, 1, 8, {0}};
    x->attrs[x->n_attrs++] = a;
    return true;
}

static bool scale_length(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_NORM(g) || numbers(w, CUDNN_ATTR_TENSOR_DIMENSIONS)[1] < 2)
        return false;
    numbers(w, CUDNN_ATTR_TENSOR_DIMENSIONS)[1] -= 1;
    return true;
}

static bool norm_shape(graph *g)
{
    desc *x, *w, *y;
    if (!FIND_NORM(g))
        return false;
    numbers(y, CUDNN_ATTR_TENSOR_DIMENSIONS)[0] += 1;
    return true;
}

static const struct {
    const char *text;
    bool (*change)(graph *g);
} wrong[] = {
    {"the height of y off by one", height_off},
    {"channels of w that don't divide those of x", channels_wrong},
    {"channels of y that aren't the filters", filters_wrong},
    {"overlapping strides", strides_overlap},
    {"a tensor without strides", no_strides},
    {"a filter of height 0", empty_filter},
    {"a boolean attribute as a number", boolean_as_number},
    {"a scale of another length", scale_length},
    {"a normalization to another batch", norm_shape},
};

/* Returns how many were taken although wrong; tries each on the first graph that it can change. */
static int try_wrong(char **texts, size_t n, int *tried)
{
    static graph g;
    int taken = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t j = 0; j < n; j++) {
            if (!parse(texts[j], &g) || !wrong[i].change(&g))
                continue;
            bool yes = accepted(&g);
            printf("wrong graph, %s: %s%s\n", wrong[i].text,
                   yes ? "TAKEN" : "refused: ", yes ? "" : why);
            taken += yes;
            ++*tried;
            break;
        }
    return taken;
}

static bool open_device(const char *path)
{
    static char json[4096];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(json, 1, sizeof json, f) : 0;
    if (f)
        fclose(f);
    while (n > 0 && json[n - 1] == '\n')
        n--;
    return n > 0 &&
           ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device), "device",
              0) &&
           set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)n,
               json) &&
           ok(cudnnBackendFinalize(device), "finalize device", 0);
}

int main(int argc, char **argv)
{
    static graph g;
    char **texts = NULL;
    size_t n = 0, good = 0;
    int tried = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: plans DEVICE.json FILE...\n");
        return 2;
    }
    if (!open_device(argv[1])) {
        fprintf(stderr, "plans: %s: %s\n", argv[1], why[0] ? why : "can't be read");
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (!read_file(argv[i], &texts, &n)) {
            fprintf(stderr, "plans: %s can't be read\n", argv[i]);
            return 2;
        }
    for (size_t i = 0; i < n; i++) {
        if (!parse(texts[i], &g))
            printf("graph %zu can't be read\n", i);
        else if (accepted(&g))
            good++;
        else
            printf("graph %zu is refused: %s\n%s", i, why, texts[i]);
        fflush(stdout);
    }
    int taken = try_wrong(texts, n, &tried);
    printf("plans: %zu graphs, %zu accepted; %d wrong graphs, %d refused\n", n, good, tried,
           tried - taken);
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
    return n == 0 || good != n || taken || tried < 5;
}
