/* SPDX-License-Identifier: Apache-2.0 */
/* The list of commands. To add one: its file, its prototype in cli.h, a row here and its name in
 * the list at the end. */
#include "cli/cli.h"

#include <string.h>

static const cli_command train = {
    .name = "",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .options = CLI_BIT(CLI_RESUME) | CLI_BIT(CLI_OVERFIT) | CLI_BIT(CLI_DRY_RUN) |
               CLI_BIT(CLI_SET) | CLI_BIT(CLI_QUIET) | CLI_BIT(CLI_VERBOSE) | CLI_BIT(CLI_VERSION),
    .summary = "train as the config file says",
    .run = cli_train,
};

static const cli_command check = {
    .name = "check",
    .operands = "CONFIG",
    .min_operands = 1,
    .max_operands = 1,
    .options = CLI_BIT(CLI_SET) | CLI_BIT(CLI_QUIET) | CLI_BIT(CLI_VERBOSE),
    .summary = "check config, data and model; train nothing",
    .help =
        "Reads the config, opens the data, builds the model and puts a small batch through it.\n"
        "All mistakes of the config are told at once. Nothing is written. The same as --dry-run.",
    .run = cli_check,
};

static const cli_command eval = {
    .name = "eval",
    .operands = "RUN_OR_CHECKPOINT_DIR",
    .min_operands = 1,
    .max_operands = 1,
    .options = CLI_BIT(CLI_SET) | CLI_BIT(CLI_JSON) | CLI_BIT(CLI_VERBOSE),
    .summary = "loss and accuracy of a checkpoint on its validation data",
    .help =
        "Of a run directory the best checkpoint is taken, or the last where there is no best. The\n"
        "config is the one saved with the checkpoint; --set changes it, for example\n"
        "--set data.val.path=FOLDER. Loss is without label smoothing.",
    .run = cli_eval,
};

static const cli_command keys = {
    .name = "keys",
    .operands = "[SECTION]",
    .max_operands = 1,
    .options = CLI_BIT(CLI_JSON),
    .summary = "the keys of a config: type, default, allowed values, meaning",
    .help =
        "Without SECTION all of them, the keys of each model too. SECTION may also be one key:\n"
        "ctrain keys optimizer.lr",
    .run = cli_keys,
};

static const cli_command help = {
    .name = "help",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .summary = "how a command is used",
    .help = "The same as ctrain COMMAND --help.",
    .run = cli_help,
};

const cli_command *const cli_commands[] = {&train, &check, &eval, &keys, &help, NULL};

const cli_command *cli_command_find(const char *name)
{
    for (int i = 1; cli_commands[i]; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    }
    return NULL;
}
