"""Two processes on one device: one memory, exports between them, and what is left when one is killed."""

import os
import signal
import socket
import subprocess
import sys
import time

from cuda.bindings import driver as cuda

PAGE = 2 << 20
SUCCESS = cuda.CUresult.CUDA_SUCCESS
DESCRIPTOR = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def ok(result):
    error, *rest = result
    assert error == SUCCESS, error
    return rest[0] if len(rest) == 1 else rest


def begin():
    ok(cuda.cuInit(0))
    ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(ok(cuda.cuDeviceGet(0))))))


def properties():
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.requestedHandleTypes = DESCRIPTOR
    return wanted


def mapped(handle):
    address = ok(cuda.cuMemAddressReserve(PAGE, 0, 0, 0))
    ok(cuda.cuMemMap(address, PAGE, 0, handle, 0))
    access = cuda.CUmemAccessDesc()
    access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cuda.cuMemSetAccess(address, PAGE, [access], 1))
    return address


def free_bytes():
    return ok(cuda.cuMemGetInfo())[0]


def other_process(line):
    """Takes what it is told to, says so, and then calls without end until it is killed."""
    begin()
    message, descriptors, _, _ = socket.recv_fds(line, 100, 1)
    text = bytearray(len(message))
    ok(cuda.cuMemcpyDtoH(text, mapped(ok(cuda.cuMemImportFromShareableHandle(descriptors[0], DESCRIPTOR))), len(message)))
    assert text == message, text
    ok(cuda.cuMemAlloc(free_bytes() * 6 // 10))
    line.send(b"taken")
    while True:
        block = ok(cuda.cuMemAlloc(5 << 20))
        ok(cuda.cuMemcpyHtoD(block, bytes(1 << 20), 1 << 20))
        ok(cuda.cuMemFree(block))


if len(sys.argv) > 1:
    other_process(socket.socket(fileno=int(sys.argv[1])))

begin()
before = free_bytes()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
command = [sys.executable, __file__, str(theirs.fileno())]
child = subprocess.Popen(command, pass_fds=[theirs.fileno()])
theirs.close()

handle = ok(cuda.cuMemCreate(PAGE, properties(), 0))
address = mapped(handle)
ok(cuda.cuMemcpyHtoD(address, b"from one to the other", 21))
descriptor = ok(cuda.cuMemExportToShareableHandle(handle, DESCRIPTOR, 0))
socket.send_fds(ours, [b"from one to the other"], [descriptor])
assert ours.recv(10) == b"taken"
print("an export was read by another process")

half = before * 6 // 10
assert cuda.cuMemAlloc(half)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
os.kill(child.pid, signal.SIGKILL)
child.wait()
for _ in range(1000):
    error, block = cuda.cuMemAlloc(half)
    if error == SUCCESS:
        break
    time.sleep(0.01)
ok((error, block))
print("what a killed process had is free again")

text = bytearray(21)
ok(cuda.cuMemcpyDtoH(text, address, 21))
assert text == b"from one to the other"
ok(cuda.cuMemFree(block))
ok(cuda.cuMemUnmap(address, PAGE))
ok(cuda.cuMemRelease(handle))
assert free_bytes() == before, (free_bytes(), before)
print("all is well")
