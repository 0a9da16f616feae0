"""Writes framed.pickle.gz: a snapshot with stack frames.

It is made up, in the shape that torch.cuda.memory._snapshot() gives when stacks are recorded: each frame is one dict, which the lists of
all entries share. A small model is trained for three steps; the ring has lost what was before them. Run in this folder.
"""

import gzip
import pickle

TORCH = "/opt/env/lib/python3.12/site-packages/torch/"
JOB = "/home/user/job/"
known = {}


def frame(filename, line, name):
    return known.setdefault((filename, line, name), {"name": name, "filename": filename, "line": line})


def stack(*own):
    """PyTorch's frames around those of the program, the innermost first."""
    inside = [frame("??", 0, "c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long, int, CUstream_st*)"),
              frame(TORCH + "csrc/autograd/python_variable.cpp", 812, "THPVariable_pynew"),
              frame(TORCH + "nn/modules/linear.py", 134, "forward"),
              frame(TORCH + "nn/modules/module.py", 1775, "_wrapped_call_impl")]
    return inside + [frame(JOB + file, line, name) for file, line, name in own] + [frame(JOB + "train.py", 97, "<module>")]


MIB = 2**20
BASE = 0x7F00_0000_0000
LAYERS = 6
entries, blocks = [], []
cursor, now = BASE, 1_700_000_000_000_000


def record(action, addr, size, frames):
    global now
    now += 37
    entries.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": now, "compile_context": "N/A",
                    "user_metadata": "", "frames": frames})


def place(size):
    global cursor
    cursor += (size + 511) // 512 * 512
    return cursor - (size + 511) // 512 * 512


def alloc(size, frames):
    addr = place(size)
    record("alloc", addr, size, frames)
    return addr, size


def free(block):
    record("free_requested", *block, [])
    record("free_completed", *block, [])


def block(address, size, requested_size, state, frames):
    blocks.append({"address": address, "size": size, "requested_size": requested_size, "state": state, "frames": frames})


for layer in range(LAYERS):
    size = 12 * MIB + 1000
    block(place(size), (size + 511) // 512 * 512, size, "active_allocated", stack(("model.py", 21, "__init__"), ("train.py", 40, "build")))
before = cursor
size = 3 * MIB
block(place(size), size, size, "active_allocated", [])
start = cursor
for step in range(3):
    kept = [alloc(4 * MIB, stack(("data.py", 58, "batch"), ("train.py", 70, "main")))]
    for layer in range(LAYERS):
        scores = alloc(16 * MIB, stack(("model.py", 44, "attend"), ("model.py", 63, "forward"), ("train.py", 72, "main")))
        kept.append(alloc(8 * MIB + 4, stack(("model.py", 47, "attend"), ("model.py", 63, "forward"), ("train.py", 72, "main"))))
        free(scores)
        kept.append(alloc(20 * MIB, stack(("model.py", 52, "feed_forward"), ("model.py", 64, "forward"), ("train.py", 72, "main"))))
    grads = []
    for layer in range(LAYERS):
        grads.append(alloc(12 * MIB + 1000, stack(("train.py", 75, "main"))))
        free(kept.pop())
        free(kept.pop())
    free(kept.pop())
    for grad in grads:
        free(grad)
    cursor = start
block(start, 512 * MIB, 0, "inactive", [])
total = sum(b["size"] for b in blocks)
snapshot = {
    "segments": [{"device": 0, "address": BASE, "total_size": total, "allocated_size": start - BASE, "active_size": start - BASE,
                  "requested_size": start - BASE, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                  "is_expandable": False, "frames": stack(("train.py", 70, "main")), "blocks": blocks}],
    "device_traces": [entries],
    "allocator_settings": {},
    "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 1}],
}
with open("framed.pickle.gz", "wb") as file:
    file.write(gzip.compress(pickle.dumps(snapshot, 4), mtime=0))
