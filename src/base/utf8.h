/* SPDX-License-Identifier: Apache-2.0 */
/* One UTF-8 character at a time. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* The length in bytes (1..4) of the character at `p`, of which `n` bytes are there; 0 when it is no
 * valid UTF-8 (cut, too long a form, a surrogate, above U+10FFFF). */
static inline int cti_utf8_length(const unsigned char *p, size_t n)
{
    int len;

    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (n < (size_t)len)
        return 0;
    for (int i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return len;
}

#endif
