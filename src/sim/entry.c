/* cuGetProcAddress, and the names of errors. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_private.h"

#include <stdlib.h>
#include <string.h>

/* Two names that do not follow the rule "base name, then _vN". The header maps cuGraphInstantiate to the form
 * with flags, and so does the driver from CUDA 12 on. */
static const struct alias {
    const char *base, *symbol;
    int since;
} aliases[] = {
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
};

static bool has_base(const struct sim_entry *entry, const char *base, int *since) {
    *since = entry->since;
    if (sim_name_matches(entry->name, base) && !strstr(base, "_v"))
        return true;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(base, aliases[i].base) == 0 && strcmp(entry->name, aliases[i].symbol) == 0) {
            *since = aliases[i].since;
            return true;
        }
    return false;
}

/* Finds the newest variant that both the caller's version and the driver know. */
static CUdriverProcAddressQueryResult look_up(const char *symbol, int version, bool per_thread, void **fn) {
    const struct sim_entry *best = NULL;
    int best_since = -1;
    bool known = false;
    for (struct sim_entry *const *e = __start_vp_sim_entries; e < __stop_vp_sim_entries; e++) {
        int since;
        if (!has_base(*e, symbol, &since) || since > sim.options.driver)
            continue;
        known = true;
        if (since <= version && since > best_since) {
            best = *e;
            best_since = since;
        }
    }
    *fn = !best ? NULL : per_thread && best->per_thread ? best->per_thread : best->legacy;
    if (best)
        return CU_GET_PROC_ADDRESS_SUCCESS;
    return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

static CUresult get(const char *symbol, void **fn, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *status) {
    const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!symbol || !fn || version > sim.options.driver || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = look_up(symbol, version,
                                                   flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, fn);
    if (status)
        *status = found;
    return CUDA_SUCCESS;
}

SIM_API(SIM_EARLY | SIM_SURE, 12000, cuGetProcAddress_v2,
        (const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status),
        (symbol, fn, version, flags, status)) {
    return get(symbol, fn, version, flags, status);
}

#undef cuGetProcAddress
SIM_API(SIM_EARLY | SIM_SURE, 11030, cuGetProcAddress, (const char *symbol, void **fn, int version, cuuint64_t flags),
        (symbol, fn, version, flags)) {
    CUdriverProcAddressQueryResult status;
    CUresult result = get(symbol, fn, version, flags, &status);
    /* Only this older form, which has no status, fails if nothing is found. */
    return result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

SIM_API(SIM_EARLY | SIM_SURE, 3000, cuGetExportTable, (const void **table, const CUuuid *id), (table, id)) {
    (void)table;
    (void)id;
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- errors ---- */

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ERROR(code, text) {code, #code, text}
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

static CUresult describe(CUresult code, const char **out, bool name) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == code) {
            *out = name ? errors[i].name : errors[i].text;
            return CUDA_SUCCESS;
        }
    *out = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_API(SIM_EARLY | SIM_SURE, 6000, cuGetErrorName, (CUresult code, const char **out), (code, out)) {
    return describe(code, out, true);
}

SIM_API(SIM_EARLY | SIM_SURE, 6000, cuGetErrorString, (CUresult code, const char **out), (code, out)) {
    return describe(code, out, false);
}
