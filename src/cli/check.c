/* SPDX-License-Identifier: Apache-2.0 */
/* ctrain check CONFIG */
#include "cli/cli.h"

int cli_check(const cli_line *line)
{
    return cli_train_with(line, true);
}
