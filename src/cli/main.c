/* SPDX-License-Identifier: Apache-2.0 */
#include <ctrain/ctrain.h>
int main(void) { return 0; }
