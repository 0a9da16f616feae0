"""Writes small_p2.pickle … small_p5.pickle: one snapshot with everything that the reader must know.

It is made up, in the shape that torch.cuda.memory._snapshot() gives. Run in this folder.
"""

import pickle


def frames(line):
    return [{"name": "forward", "filename": "model.py", "line": line}]


def entry(action, addr, size, stream=0, **more):
    at = {"device_free": addr} if action == "oom" else {"addr": addr}
    return {"action": action, **at, "size": size, "stream": stream, "time_us": 1_700_000_000_000_000 + size,
            "compile_context": "N/A", "user_metadata": "", "frames": frames(size), **more}


def block(address, size, requested_size, state):
    return {"address": address, "size": size, "requested_size": requested_size, "state": state, "frames": frames(1)}


def segment(device, address, total_size, blocks, **more):
    return {"device": device, "address": address, "total_size": total_size, "allocated_size": 1, "active_size": 1,
            "requested_size": 1, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks, **more}


BASE = 0x7F00_0000_0000
SIDE_STREAM = 0x5588_0000_0010
snapshot = {
    "segments": [
        segment(0, BASE, 4096, [
            block(BASE, 512, 500, "active_allocated"),  # alive before the first entry
            block(BASE + 512, 512, 300, "active_allocated"),
            block(BASE + 1024, 1024, 1000, "active_pending_free"),  # alive before the first entry
            block(BASE + 2048, 2048, 7, "inactive"),
        ]),
        segment(2, 2**63 + 4096, 8192, [
            block(2**63 + 4096, 8192, 8000, "active_awaiting_free"),
        ], is_expandable=True, segment_pool_id=(0, 1), stream=SIDE_STREAM),
    ],
    "device_traces": [
        [
            entry("free_requested", BASE + 512, 77),  # of a block whose alloc the ring has lost
            entry("free_completed", BASE + 512, 77),
            entry("alloc", BASE + 512, 300, SIDE_STREAM),
            entry("segment_alloc", BASE + 2**20, 2**20),
            entry("alloc", BASE + 2**20, 900_000, pool_id=(0, 0)),
            entry("oom", 12_345, 2**40),
            entry("free_requested", BASE + 2**20, 900_000),
            entry("free_completed", BASE + 2**20, 900_000),
            entry("segment_free", BASE + 2**20, 2**20),
            entry("annotate", 0, 0),
            entry("teleport", 0, 0),
            entry("snapshot", 0, 0),
        ],
        [],
        [
            entry("segment_map", 2**63 + 4096, 8192, SIDE_STREAM, pool_id=(0, 1)),
            entry("alloc", 2**63 + 4096, 8000, SIDE_STREAM, pool_id=(0, 1)),
            entry("free_requested", 2**63 + 4096, 8000, SIDE_STREAM, pool_id=(0, 1)),
            entry("segment_map", 2**63 + 2**20, 4096, SIDE_STREAM, pool_id=(0, 1)),
            entry("segment_unmap", 2**63 + 2**20, 4096, SIDE_STREAM, pool_id=(0, 1)),
        ],
    ],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "x" * 300, "max_split_size": -1, "threshold": 0.5,
                           "big": 2**100, "none": None, "four": (1, 2, 3, 4)},
    "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 1}],
    "host_segments": [],
    "host_traces": [entry("alloc", 1, 1)],
}

for protocol in range(2, 6):
    if protocol > 2:  # where bytes need no code to be made
        snapshot["allocator_settings"]["raw"] = b"\0" * 300
    with open(f"small_p{protocol}.pickle", "wb") as file:
        pickle.dump(snapshot, file, protocol)
