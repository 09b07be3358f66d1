/* An nvml.dll with two cards that never change, for tests of the calls that Windows makes. Struct layouts and codes are
 * NVML's ABI. The second card's process holds what WDDM does not tell.
 */
#include <stdio.h>
#include <string.h>

#define EXPORT __declspec(dllexport)

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, pciDevice, pciSubSystem;
    char busId[32];
} pci_info;

typedef struct {
    unsigned long long total, free, used;
} memory_info;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_info2;

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int gpuInstance, computeInstance;
} process_info;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, MISMATCH = 25 };

static const unsigned long long gib = 1ull << 30;

EXPORT int nvmlInit_v2(void) { return OK; }
EXPORT int nvmlShutdown(void) { return OK; }
EXPORT const char *nvmlErrorString(int code) { return code ? "failed" : "fine"; }

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 2;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(unsigned long long)(index + 1);
    return index < 2 ? OK : INVALID;
}

static unsigned int number(void *device) { return (unsigned int)(unsigned long long)device; }

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-fa4ecad0-0000-4000-9000-%012u", number(device));
    return OK;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    snprintf(name, length, "Fake %u", number(device));
    return OK;
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, pci_info *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = number(device);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory_info *figures) {
    *figures = (memory_info){8 * gib, (8 - number(device)) * gib, number(device) * gib};
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, memory_info2 *figures) {
    if (figures->version != (sizeof *figures | 2 << 24))
        return MISMATCH;
    figures->total = 8 * gib;
    figures->reserved = gib / 4;
    figures->free = (8 - number(device)) * gib - gib / 4;
    figures->used = number(device) * gib;
    return OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_info *processes) {
    unsigned int room = *count, total = number(device) == 1 ? 100 : 1;
    *count = total;
    if (room < total)
        return TOO_SMALL;
    for (unsigned int i = 0; i < total; i++)
        processes[i] = (process_info){1000 + i, number(device) == 1 ? gib / 128 : ~0ull, ~0u, ~0u};
    return OK;
}

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    (void)device, (void)current, (void)pending;
    return NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) {
    (void)device, (void)count;
    return NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int index, void **instance) {
    (void)device, (void)index, (void)instance;
    return NOT_SUPPORTED;
}
