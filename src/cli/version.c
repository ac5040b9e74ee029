/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain --version: what a bug report needs. */
#include "cli/cli.h"

#include <ctrain/device.h>

int cli_version(const cli_line *line)
{
    ct_build_info info;
    ct_error err = {0};
    ct_ctx_opts o = ct_ctx_defaults();
    char what[300];
    ct_ctx *ctx;

    (void)line;
    cli_out("ctrain %s\n", ct_version());
    o.device = "cpu";
    ctx = ct_ctx_new(o, &err);
    if (!ctx)
        return cli_fail(&err);
    ct_ctx_build_info(ctx, &info);
    cli_out("backend    %s\n", info.device);
    cli_out("libraries  %s\n", info.libraries);
    cli_out("isa        %s\n", info.isa);
    cli_out("threads    %d\n", info.threads);
    cli_out("cuda       %s%s\n", ct_device_check("cuda", what, sizeof what) < 0 ? "not available: " : "",
            what);
    ct_ctx_free(ctx);
    return CLI_OK;
}
