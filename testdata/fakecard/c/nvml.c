/* The part of NVML that is read in production, over the shared file. Struct layouts and codes are NVML's ABI.
 *
 * A build with -DWITHOUT_<function> lacks that function, as an older driver would.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fakecard_state.h"

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t; /* here: the card's number plus one */

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15,
    UNKNOWN = 999,
};

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

#define NOT_AVAILABLE (~0ull) /* NVML_VALUE_NOT_AVAILABLE */

/* Opens the state unless this function is to fail or hang. */
static nvmlReturn_t enter(const char *function, struct opened *opened) {
    if (state_open(opened))
        return UNINITIALIZED;
    if (strcmp(opened->state->fault, function) == 0) {
        int code = opened->state->fault_code, hangs = opened->state->fault_hangs;
        state_close(opened);
        while (hangs)
            pause();
        return code;
    }
    return SUCCESS;
}

static nvmlReturn_t enter_card(const char *function, nvmlDevice_t device, struct opened *opened, int *card) {
    nvmlReturn_t code = enter(function, opened);
    if (code)
        return code;
    *card = (int)(intptr_t)device - 1;
    if (*card < 0 || *card >= opened->state->count)
        code = INVALID_ARGUMENT;
    else if (opened->state->cards[*card].lost)
        code = GPU_IS_LOST;
    else
        state_forget_dead(opened->state);
    if (code)
        state_close(opened);
    return code;
}

#ifndef WITHOUT_nvmlInit_v2
nvmlReturn_t nvmlInit_v2(void) {
    struct opened opened;
    nvmlReturn_t code = enter("nvmlInit_v2", &opened);
    if (!code)
        state_close(&opened);
    return code;
}
#endif

nvmlReturn_t nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case GPU_IS_LOST: return "GPU is lost";
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "999.0-fake");
    return SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetCount_v2
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    struct opened opened;
    nvmlReturn_t code = enter("nvmlDeviceGetCount_v2", &opened);
    if (code)
        return code;
    *count = 0;
    for (int i = 0; i < opened.state->count; i++)
        if (opened.state->cards[i].parent < 0)
            ++*count;
    state_close(&opened);
    return SUCCESS;
}
#endif

/* The number of the index'th card with this parent; -1: none. */
static int nth(const struct state *state, int parent, unsigned int index) {
    for (int i = 0; i < state->count; i++)
        if (state->cards[i].parent == parent && index-- == 0)
            return i;
    return -1;
}

#ifndef WITHOUT_nvmlDeviceGetHandleByIndex_v2
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    struct opened opened;
    nvmlReturn_t code = enter("nvmlDeviceGetHandleByIndex_v2", &opened);
    if (code)
        return code;
    int card = nth(opened.state, -1, index);
    *device = (nvmlDevice_t)(intptr_t)(card + 1);
    state_close(&opened);
    return card < 0 ? INVALID_ARGUMENT : SUCCESS;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetUUID
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetUUID", device, &opened, &card);
    if (code)
        return code;
    snprintf(uuid, length, "%s-fa4ecad0-0000-4000-8000-%012d", opened.state->cards[card].parent < 0 ? "GPU" : "MIG", card);
    state_close(&opened);
    return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetName", device, &opened, &card);
    if (code)
        return code;
    snprintf(name, length, "%s", opened.state->cards[card].name);
    state_close(&opened);
    return SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetPciInfo_v3
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetPciInfo_v3", device, &opened, &card);
    if (code)
        return code;
    int slot = opened.state->cards[card].parent < 0 ? card : opened.state->cards[card].parent;
    memset(pci, 0, sizeof *pci);
    pci->bus = 1 + (unsigned int)slot;
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    state_close(&opened);
    return SUCCESS;
}
#endif

static nvmlReturn_t memory(const char *function, nvmlDevice_t device, nvmlMemory_v2_t *figures) {
    struct opened opened;
    int number;
    nvmlReturn_t code = enter_card(function, device, &opened, &number);
    if (code)
        return code;
    const struct card *card = &opened.state->cards[number];
    unsigned long long taken = state_taken(opened.state, number), room = card->total - card->driver;
    figures->total = card->total;
    figures->reserved = card->driver;
    figures->used = taken < room ? taken : room; /* what is beyond lies in system memory */
    figures->free = room - figures->used;
    state_close(&opened);
    return SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *figures) {
    nvmlMemory_v2_t all;
    nvmlReturn_t code = memory("nvmlDeviceGetMemoryInfo", device, &all);
    if (!code)
        *figures = (nvmlMemory_t){all.total, all.free, all.used + all.reserved};
    return code;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *figures) {
    if (figures->version != (sizeof *figures | 2 << 24))
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    return memory("nvmlDeviceGetMemoryInfo_v2", device, figures);
}
#endif

#ifndef WITHOUT_nvmlDeviceGetComputeRunningProcesses_v3
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetComputeRunningProcesses_v3", device, &opened, &card);
    if (code)
        return code;
    unsigned int room = *count, found = 0;
    for (int i = 0; i < FAKECARD_SLOTS; i++) {
        const struct slot *slot = &opened.state->slots[i];
        if (!slot->pid || slot->card != card)
            continue;
        if (found < room && processes)
            processes[found] = (nvmlProcessInfo_t){
                (unsigned int)slot->pid,
                opened.state->cards[card].process_local ? NOT_AVAILABLE : slot->bytes, ~0u, ~0u};
        found++;
    }
    *count = found;
    state_close(&opened);
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMigMode
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetMigMode", device, &opened, &card);
    if (code)
        return code;
    *current = *pending = nth(opened.state, card, 0) >= 0;
    state_close(&opened);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    (void)device;
    *count = 7;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    struct opened opened;
    int card;
    nvmlReturn_t code = enter_card("nvmlDeviceGetMigDeviceHandleByIndex", device, &opened, &card);
    if (code)
        return code;
    int found = nth(opened.state, card, index);
    *instance = (nvmlDevice_t)(intptr_t)(found + 1);
    state_close(&opened);
    return found < 0 ? NOT_FOUND : SUCCESS;
}
#endif
