/* SPDX-License-Identifier: Apache-2.0 */
/* How long an idle OpenMP thread spins before it sleeps. libgomp's default is for a machine of one's own:
 * where another process wants the cores, a thread that spins for milliseconds keeps its own partner
 * from running, and training becomes ten times slower. libgomp reads the setting when it is loaded, so the
 * program starts itself again with it. The results don't depend on it. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <stdlib.h>
#include <unistd.h>

/* Some 50 to 200 us: longer than the gaps between the loops of a step. */
#define SPINS "3000"

void cli_openmp_calm(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        setenv("GOMP_SPINCOUNT", SPINS, 1) != 0)
        return;
    execv("/proc/self/exe", argv);
    /* Not Linux, or no /proc: go on as we are. */
}
