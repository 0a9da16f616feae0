/* A program of the runtime API: what it says of the memory, and whether a copy there and back is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaMemGetInfo(size_t *, size_t *);
int cudaDeviceSynchronize(void);

#define OK(call) do { int code = call; if (code) { printf("%s: %d\n", #call, code); return 1; } } while (0)

int main(void) {
    size_t bytes = 16 << 20, left, total;
    char *out = malloc(bytes), *in = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) out[i] = (char)(i * 31);
    void *device;
    OK(cudaMalloc(&device, bytes));
    OK(cudaMemGetInfo(&left, &total));
    printf("free %zu of %zu\n", left, total);
    OK(cudaMemcpy(device, out, bytes, 1));
    OK(cudaMemcpy(in, device, bytes, 2));
    if (memcmp(in, out, bytes)) { puts("other bytes came back"); return 1; }
    OK(cudaMemset(device, 7, bytes));
    OK(cudaMemcpy(in, device, 1, 2));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(device));
    puts(in[0] == 7 ? "all is well" : "not filled");
    return 0;
}
