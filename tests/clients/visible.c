/* Prints the devices that a program sees: by the driver their number, and of each the UUID's last byte and the bus id; by the
 * runtime their number, and what it answered. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void) {
    int count = 0;
    CUresult code = cuInit(0);
    if (code == CUDA_SUCCESS) code = cuDeviceGetCount(&count);
    printf("%d: %d", code, count);
    for (int i = 0; i < count; i++) {
        CUdevice device;
        CUuuid id;
        char bus[32];
        int number = -1;
        if (cuDeviceGet(&device, i) || cuDeviceGetUuid_v2(&id, device) || cuDeviceGetPCIBusId(bus, sizeof bus, device)) return 1;
        if (cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device)) return 1;
        printf(" %d@%s/%d", id.bytes[15], bus, number);
    }
    count = -1;
    cudaError_t answer = cudaGetDeviceCount(&count);
    printf("; %d: %d\n", answer, count);
    return 0;
}
