/* A libnvidia-ml.so.1 with one device, that of the stand-in for the driver. */
#include <stdio.h>
#include <string.h>

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
static int device;

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = &device;
    return index ? 2 : 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned room) {
    (void)handle;
    const unsigned char id[16] = "millpond-sim\0\0\0";
    int length = snprintf(text, room, "GPU");
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += snprintf(text + length, room - length, "%s%02x", dash, id[i]);
    }
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *out) {
    (void)handle;
    *out = (struct memory){80ull << 30, 79ull << 30, 1ull << 30};
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out) {
    (void)handle;
    if (out->version != 0x02000028) return 25;
    out->total = 80ull << 30, out->reserved = 1 << 20, out->free = 79ull << 30, out->used = 1ull << 30;
    return 0;
}
