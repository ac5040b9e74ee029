/* SPDX-License-Identifier: Apache-2.0 */
/* For files that are included once for each float type (*_t.h): T is the type, FN(name) the name of its
 * function. f64 is there for checks and has no ISA clones. */
#ifndef BACKEND_CPU_TEMPLATE_H
#define BACKEND_CPU_TEMPLATE_H

#define CTI_PASTE_(a, b) a##_##b
#define CTI_PASTE(a, b)  CTI_PASTE_(a, b)

#endif
