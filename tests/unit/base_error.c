/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <criterion/criterion.h>
#include <ctrain/dtype.h>
#include <errno.h>
#include <string.h>

static int fail_here(ct_error *err)
{
    return cti_fail(err, CT_ESHAPE, "add: [%d,%d] and [%d]", 2, 3, 4);
}

static int fail_to_write(ct_error *err)
{
    return cti_fail_errno(err, 0, ENOSPC, "write", "runs/a/log.txt");
}

Test(base_error, an_error_has_code_text_and_the_function_that_reported_it)
{
    ct_error err = {0};

    cr_assert_eq(fail_here(&err), CT_ESHAPE);
    cr_assert_eq(err.code, CT_ESHAPE);
    cr_assert_str_eq(err.text, "add: [2,3] and [4]");
    cr_assert_str_eq(err.where, "fail_here");
}

Test(base_error, the_first_error_stays_and_each_call_returns_its_own_code)
{
    ct_error err = {0};

    fail_here(&err);
    cr_assert_eq(cti_fail(&err, CT_EIO, "later"), CT_EIO);
    cr_assert_eq(err.code, CT_ESHAPE);
    cr_assert_str_eq(err.text, "add: [2,3] and [4]");
    cr_assert_str_eq(err.where, "fail_here");
}

Test(base_error, no_record_is_fine)
{
    cr_assert_eq(fail_here(NULL), CT_ESHAPE);
    cr_assert_eq(cti_fail_errno(NULL, 0, ENOSPC, "write", "x"), CT_EIO);
    cr_assert_eq(cti_error_prefix(NULL, "config"), CT_EINTERNAL);
}

Test(base_error, a_code_that_is_no_error_does_not_make_a_failure_a_success)
{
    ct_error err = {0};

    cr_assert_eq(ct_error_set(&err, 0, "my_dataset", "sample %d", 3), CT_EINTERNAL);
    cr_assert_eq(err.code, CT_EINTERNAL);
    cr_assert_str_eq(err.text, "sample 3");
    cr_assert_eq(ct_error_set(NULL, 17, "my_dataset", "x"), CT_EINTERNAL);
}

Test(base_error, a_prefix_adds_context_to_a_pending_error_only)
{
    ct_error err = {0};

    cr_assert_eq(cti_error_prefix(&err, "config"), CT_OK);
    cr_assert_str_eq(err.text, "");
    fail_here(&err);
    cr_assert_eq(cti_error_prefix(&err, "%s:%d", "a.ini", 7), CT_ESHAPE);
    cr_assert_str_eq(err.text, "a.ini:7: add: [2,3] and [4]");
    cti_error_prefix(&err, "%s", err.text);
    cr_assert_str_eq(err.text, "a.ini:7: add: [2,3] and [4]: a.ini:7: add: [2,3] and [4]");
}

Test(base_error, a_final_newline_is_dropped_and_lines_inside_stay)
{
    ct_error err = {0};

    cti_fail(&err, CT_EDATA, "one\ntwo\n\n");
    cr_assert_str_eq(err.text, "one\ntwo");
}

Test(base_error, a_text_too_long_is_cut_between_characters)
{
    char text[4096];
    ct_error err = {0};

    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 5);
        memset(&err, 0, sizeof err);
        cti_fail(&err, CT_EDATA, "%s", text);
        cr_assert_eq((strlen(err.text) - shift) % 4, 0);
        cr_assert_gt(strlen(err.text), sizeof err.text - 5);
        cti_error_prefix(&err, "é");
        cr_assert_eq((strlen(err.text) - shift - strlen("é: ")) % 4, 0);
        cr_assert_eq(memcmp(err.text, "é: ", 4), 0);
    }
    memset(&err, 0, sizeof err);
    ct_error_set(&err, CT_EDATA,
                 "a_function_with_a_name_that_is_longer_than_the_record_has_room_for", "x");
    cr_assert_eq(strlen(err.where), sizeof err.where - 1);
}

Test(base_error, a_failure_of_the_system_names_what_path_and_reason)
{
    ct_error err = {0};

    cr_assert_eq(fail_to_write(&err), CT_EIO);
    cr_assert_str_eq(err.text, "write runs/a/log.txt: No space left on device");
    cr_assert_str_eq(err.where, "fail_to_write");
}

Test(base_error, a_missing_file_gets_the_code_the_caller_has_for_it)
{
    ct_error err = {0};

    cr_assert_eq(cti_fail_errno(&err, CT_ECONFIG, ENOENT, "open", "a.ini"), CT_ECONFIG);
    cr_assert_str_eq(err.text, "open a.ini: No such file or directory");
    cr_assert_eq(cti_fail_errno(NULL, CT_ECONFIG, ENOTDIR, "open", "a.ini/b"), CT_ECONFIG);
    cr_assert_eq(cti_fail_errno(NULL, CT_ECONFIG, EACCES, "open", "a.ini"), CT_EIO);
    cr_assert_eq(cti_fail_errno(NULL, 0, ENOENT, "open", "a.ini"), CT_EIO);
}

Test(base_error, each_status_has_a_name)
{
    cr_assert_str_eq(ct_status_name(CT_OK), "CT_OK");
    cr_assert_str_eq(ct_status_name(CT_EINVAL), "CT_EINVAL");
    cr_assert_str_eq(ct_status_name(CT_ESHAPE), "CT_ESHAPE");
    cr_assert_str_eq(ct_status_name(CT_EDTYPE), "CT_EDTYPE");
    cr_assert_str_eq(ct_status_name(CT_ENOMEM), "CT_ENOMEM");
    cr_assert_str_eq(ct_status_name(CT_ESTATE), "CT_ESTATE");
    cr_assert_str_eq(ct_status_name(CT_ENOTIMPL), "CT_ENOTIMPL");
    cr_assert_str_eq(ct_status_name(CT_EIO), "CT_EIO");
    cr_assert_str_eq(ct_status_name(CT_EFORMAT), "CT_EFORMAT");
    cr_assert_str_eq(ct_status_name(CT_EDATA), "CT_EDATA");
    cr_assert_str_eq(ct_status_name(CT_ECONFIG), "CT_ECONFIG");
    cr_assert_str_eq(ct_status_name(CT_EDEVICE), "CT_EDEVICE");
    cr_assert_str_eq(ct_status_name(CT_ENONFINITE), "CT_ENONFINITE");
    cr_assert_str_eq(ct_status_name(CT_EINTERRUPTED), "CT_EINTERRUPTED");
    cr_assert_str_eq(ct_status_name(CT_EBUSY), "CT_EBUSY");
    cr_assert_str_eq(ct_status_name(CT_ECHECK), "CT_ECHECK");
    cr_assert_str_eq(ct_status_name(CT_EINTERNAL), "CT_EINTERNAL");
    cr_assert_str_eq(ct_status_name(1), "CT_E?");
    cr_assert_str_eq(ct_status_name(CT_EINTERNAL - 1), "CT_E?");
}

Test(base_error, each_dtype_has_name_size_and_kind)
{
    static const struct {
        const char *name;
        size_t bytes;
        int is_float;
    } want[CT_DTYPE_COUNT] = {
        [CT_BOOL] = {"bool", 1, 0},   [CT_U8] = {"uint8", 1, 0},    [CT_I32] = {"int32", 4, 0},
        [CT_I64] = {"int64", 8, 0},   [CT_F16] = {"float16", 2, 1}, [CT_BF16] = {"bfloat16", 2, 1},
        [CT_F32] = {"float32", 4, 1}, [CT_F64] = {"float64", 8, 1},
    };

    for (int d = 0; d < CT_DTYPE_COUNT; d++) {
        cr_assert_str_eq(ct_dtype_name((ct_dtype)d), want[d].name);
        cr_assert_eq(ct_dtype_bytes((ct_dtype)d), want[d].bytes);
        cr_assert_eq(ct_dtype_is_float((ct_dtype)d), want[d].is_float);
    }
    cr_assert_str_eq(ct_dtype_name(CT_DTYPE_COUNT), "?");
    cr_assert_str_eq(ct_dtype_name((ct_dtype)-1), "?");
    cr_assert_eq(ct_dtype_bytes(CT_DTYPE_COUNT), 0);
    cr_assert_eq(ct_dtype_is_float((ct_dtype)-1), 0);
}
