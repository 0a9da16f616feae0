"""PyTorch, unmodified, with Millpond as its allocator, over the stand-ins.

As in torch_client.py, kernels take their time and touch their memory but compute nothing, and copies move real bytes.
"""

import csv
import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import millpond.torch
import torch_client
from torch_client import MIB, tensors  # noqa: F401 (named on the command line)


def training():
    """A small transformer of fixed shapes: what is live after a step is the same after each."""
    allocated = []
    torch_client.train(6, lambda: allocated.append(torch.cuda.memory_allocated()))
    assert len(set(allocated[2:])) == 1 and torch.cuda.max_memory_allocated() > allocated[-1] > 0, allocated


def varied_training(steps=12):
    """A transformer whose sentences have another length in each step: what PyTorch's own allocator is worst at."""
    torch.manual_seed(1)
    lengths = random.Random(5)
    model = torch_client.Transformer(width=256, heads=8, depth=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        shape = (16, lengths.randrange(64, 512))
        ids, wanted = (torch.randint(0, 1000, shape).cuda() for _ in range(2))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).view(-1, 1000), wanted.view(-1))
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


def run_of_torch(directory):
    """The training with PyTorch's own allocator: what it allocated and freed, and the most that it reserved."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    varied_training()
    (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    actions = {"alloc": "+", "free_requested": "-"}
    events = [(actions[entry["action"]], entry["size"]) for entry in trace if entry["action"] in actions]
    stats = torch.cuda.memory_stats()
    peaks = stats["requested_bytes.all.peak"], torch.cuda.max_memory_reserved()
    with open(os.path.join(directory, "torch.json"), "w") as file:
        json.dump({"events": events, "peaks": peaks}, file)


def run_of_millpond(directory):
    """The same training with Millpond: the same allocations and frees in the same order, a lower reserved peak, and no leak."""
    path = os.path.join(directory, "millpond.csv")
    torch.cuda.init()
    for wrong, said in [("\ud800.csv", "no character"), ("", "no path"), (os.path.join(directory, "no", "such"), "such")]:
        try:
            millpond.torch.start_trace(wrong)
            raise AssertionError(f"{wrong!r} was taken")
        except millpond.Error as error:
            assert said in str(error), error
    millpond.torch.start_trace(path)
    varied_training()
    millpond.torch.stop_trace()
    with open(path, newline="") as file:
        actions = {"allocate": "+", "free": "-"}
        events = [[actions[row["Action"]], int(row["Size"])] for row in csv.DictReader(file)]
    with open(os.path.join(directory, "torch.json")) as file:
        torchs = json.load(file)
    assert len(events) > 5000, len(events)
    assert events == torchs["events"], next(two for two in zip(events, torchs["events"]) if two[0] != two[1])
    (torch_live, torch_reserved), (live, reserved) = torchs["peaks"], (
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
    )
    stats = torch.cuda.memory_stats()
    calls = stats["millpond.driver_calls"] / stats["allocation.all.allocated"]
    print(
        f"the same {len(events)} events; at most live {live / MIB:.1f} MiB (PyTorch's own allocator {torch_live / MIB:.1f}), "
        f"reserved {reserved / MIB:.0f} MiB ({torch_reserved / MIB:.0f}), {reserved / live:.3f} ({torch_reserved / torch_live:.3f}) "
        f"of what was live; {calls:.2f} driver calls an allocation"
    )
    # On the default stream nothing is asked of the driver to know the stream.
    assert calls < 2, calls
    # Both count what was asked for, but PyTorch's own allocator counts a free when it is completed.
    assert abs(live - torch_live) < MIB, (live, torch_live)
    assert reserved < torch_reserved
    nothing_is_left()


def nothing_is_left(but_for_bytes=0):
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated() == but_for_bytes, torch.cuda.memory_summary()
    torch.cuda.empty_cache()
    # A handle stays as a whole, whatever its size, while a block is in it.
    handle = (2 * MIB, 8 * MIB, 32 * MIB) if but_for_bytes else (0,)
    assert torch.cuda.memory_reserved() in handle, torch.cuda.memory_summary()


def figures():
    """The functions that PyTorch's own would refuse to answer."""
    before = torch.cuda.memory_allocated()
    kept = [torch.empty(10 * MIB + 3, dtype=torch.uint8, device="cuda") for _ in range(3)]
    assert torch.cuda.memory_allocated() == millpond.torch.memory_allocated("cuda:0") == before + 30 * MIB + 9
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del kept[1]
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before + 20 * MIB + 6 < stats["allocated_bytes.all.peak"]
    assert stats["allocation.all.allocated"] - stats["allocation.all.freed"] == stats["allocation.all.current"]
    assert stats["reserved_bytes.all.peak"] == torch.cuda.max_memory_reserved() >= stats["reserved_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert "Millpond on cuda:0" in torch.cuda.memory_summary() and "driver calls" in torch.cuda.memory_summary()
    millpond.torch.configure("slack:0,enable_defrag:False,global_cache_max_bytes:64MiB")
    for wrong, text in [("slak:0", "slack"), ("slack:-1", "slack")]:
        try:
            millpond.torch.configure(wrong)
            raise AssertionError(f"{wrong} was taken")
        except RuntimeError as error:
            assert text in str(error), error


def snapshot(program):
    """What was recorded and what is there now, as PyTorch would write it, for the program to read."""
    kept = [torch.empty(10 * MIB + 3, dtype=torch.uint8, device="cuda") for _ in range(2)]
    torch.cuda.memory._record_memory_history()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    training()
    kept.append(torch.empty(7, dtype=torch.uint8, device="cuda"))
    segments = millpond.torch.memory_snapshot()
    assert torch.cuda.memory_snapshot() == torch.cuda.memory.memory_snapshot() == segments and "memory_snapshot" in millpond.torch.__all__
    blocks = [block for segment in segments for block in segment["blocks"]]
    active = {block["address"]: block["requested_size"] for block in blocks if block["state"] == "active_allocated"}
    assert all(active[tensor.data_ptr()] == tensor.nbytes for tensor in kept)
    path = os.path.join(os.path.dirname(program), "millpond_torch.pickle")
    torch.cuda.memory._dump_snapshot(path)
    torch.cuda.memory._record_memory_history(enabled=None)
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [program, "replay", "--json", "--allocator", "pool", path]
    replay = subprocess.run(command, env=clean, capture_output=True, text=True)
    assert replay.returncode == 0, replay
    (trace,) = json.loads(replay.stdout)["traces"]
    assert trace["events"] > 2000 and before < trace["peak_live_bytes"] == torch.cuda.max_memory_allocated(), trace


def graphs():
    """Captured graphs have memory of their own until they are gone, and those of one private pool have it in common."""
    captured = lambda: torch.cuda.memory_stats()["millpond.captured_bytes"]  # noqa: E731
    count = 4 * MIB
    source, middle, target = (torch.zeros(count, dtype=torch.int64, device="cuda") for _ in range(3))
    one = torch.cuda.CUDAGraph()
    with torch.cuda.graph(one):
        middle.copy_(source)
        result = middle * 2
        for _ in range(8):
            _scratch = middle + 1
        target.copy_(middle)
        # Copies of real bytes into memory of the graph: what it finds there at the end is what it wrote.
        inside = torch.empty_like(source)
        inside.copy_(source)
    held = captured()
    # The result, one scratch at a time while the last one is still held, and what is inside.
    assert 32 * MIB * 3 <= held <= 32 * MIB * 5, held / MIB
    assert torch.cuda.memory_reserved() >= held
    others = [one]
    for _ in range(4):
        again = torch.cuda.CUDAGraph()
        with torch.cuda.graph(again, pool=one.pool()):
            for _ in range(4):
                del _scratch
                _scratch = middle + 2
        others.append(again)
    shared = captured()
    assert shared <= held + 32 * MIB, (shared / MIB, held / MIB)
    alone = torch.cuda.CUDAGraph()
    with torch.cuda.graph(alone):
        _unshared = middle + 3
    assert captured() >= shared + 32 * MIB
    for seed in range(5):
        sent = torch.randint(0, 1 << 40, (count,), generator=torch.Generator().manual_seed(seed))
        source.copy_(sent)
        one.replay()
        # Eager work beside the graph takes none of its memory.
        eager = [torch.full((count,), seed, dtype=torch.int64).cuda() for _ in range(4)]
        assert torch.equal(target.cpu(), sent) and torch.equal(inside.cpu(), sent), seed
        alone.replay()
        assert all(torch.equal(tensor.cpu(), torch.full((count,), seed)) for tensor in eager)
        del eager
    torch.cuda.empty_cache()
    assert captured() >= shared + 32 * MIB, "graphs keep their memory, whatever is emptied"
    # The memory goes with the last graph of the private pool, and the last tensor.
    for graph in others[1:]:
        graph.reset()
    del alone, _unshared
    torch.cuda.empty_cache()
    assert captured() == shared, (captured(), shared)
    one.reset()
    del result, inside, _scratch
    torch.cuda.empty_cache()
    assert captured() == 0, captured()
    del source, middle, target
    # PyTorch's generator of random numbers keeps two numbers for graphs.
    nothing_is_left(but_for_bytes=16)


def graph_of_training():
    """A whole step as a graph, warmed up on a side stream as PyTorch's manual says."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given, wanted = torch.randn(64, 512).cuda(), torch.randn(64, 512).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(given), wanted)
        loss.backward()
        optimizer.step()
        return loss

    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    live = torch.cuda.memory_allocated()
    for _ in range(10):
        given.copy_(torch.randn(64, 512))
        graph.replay()
        loss.item()
    assert torch.cuda.memory_allocated() == live, "replays allocate nothing"
    callable_ = torch.cuda.make_graphed_callables(nn.Linear(512, 512).cuda(), (torch.randn(64, 512).cuda(),))
    for _ in range(3):
        callable_(given).sum().backward()


def out_of_memory():
    """Where the device ends PyTorch raises its own exception with our explanation, and goes on when there is room."""
    kept = []
    torch.cuda.memory._record_memory_history()
    for backward in (False, True):
        try:
            while True:
                if backward:
                    # In a thread of PyTorch's own.
                    grown = torch.ones(64 * MIB, device="cuda", requires_grad=True)
                    kept.append(grown)
                    grown.mul(2).sum().backward()
                else:
                    kept.append(torch.empty(128 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            text = str(error)
        assert text.startswith("CUDA out of memory. Millpond on cuda:0: out of memory: "), text
        assert "live" in text and "reserved" in text and "recoverable" in text, text
        assert len(kept) > 3
        kept.clear()
        grown = None
        gc.collect()
    failed = [entry["size"] for entry in millpond.torch.snapshot()["device_traces"][0] if entry["action"] == "oom"]
    assert failed and 128 * MIB in failed, failed
    torch.cuda.memory._record_memory_history(False)
    assert not any(millpond.torch.snapshot()["device_traces"])
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        while True:
            kept.append(torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"))
            assert torch.cuda.memory_reserved() <= total / 2
    except torch.OutOfMemoryError as error:
        assert "limit" in str(error), error
    assert len(kept) >= 0.4 * total / (64 * MIB)
    torch.cuda.set_per_process_memory_fraction(1.0)
    kept += [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
    kept.clear()
    # Memory of graphs that are gone is had before memory is out.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
        inside[:MIB].zero_()
    del inside
    graph.reset()
    kept.append(torch.empty(int(total * 0.7), dtype=torch.uint8, device="cuda"))
    kept.clear()
    training()


def two_devices():
    """A pool for each device."""
    sent = torch.arange(5 * MIB)
    here, there = sent.to("cuda:0"), sent.to("cuda:1")
    assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == sent.nbytes
    assert here.data_ptr() != there.data_ptr()
    with torch.cuda.device(1):
        second = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == sent.nbytes + 3 * MIB
    assert torch.cuda.memory_allocated(0) == sent.nbytes
    torch.cuda.memory._record_memory_history()
    moved = here.to("cuda:1")
    assert torch.equal(moved.cpu(), sent) and torch.equal(there.cpu(), sent)
    assert {segment["device"] for segment in torch.cuda.memory_snapshot()} == {0, 1}
    # A stream of one device, and a tensor of it used there.
    side = torch.cuda.Stream(device=1)
    side.wait_stream(torch.cuda.current_stream(1))
    with torch.cuda.stream(side):
        doubled = moved + moved
    moved.record_stream(side)
    del moved, doubled, second, here, there
    for number, trace in enumerate(millpond.torch.snapshot()["device_traces"]):
        actions = {entry["action"] for entry in trace}
        assert actions == ({"alloc", "free_requested", "free_completed"} if number else {"free_requested", "free_completed"}), actions
    torch.cuda.memory._record_memory_history(None)
    for number in range(2):
        torch.cuda.synchronize(number)
        assert torch.cuda.memory_allocated(number) == 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(0) == torch.cuda.memory_reserved(1) == 0


class Numbers(Dataset):
    """What a careless program gives its data loader: it holds a tensor on the GPU."""

    def __init__(self):
        self.on_gpu = [torch.ones(MIB, device="cuda") for _ in range(4)]

    def __len__(self):
        return 64

    def __getitem__(self, index):
        # The worker lets go of its copy of the parent's tensor.
        if self.on_gpu:
            self.on_gpu.pop()
            gc.collect()
        return torch.full((1000,), index)


def fork():
    """Workers of a data loader are forks: what they let go of is nothing, and the parent goes on."""
    numbers = Numbers()
    kept = [torch.full((1000,), 7).cuda() for _ in range(20)]
    live = torch.cuda.memory_allocated()
    loader = DataLoader(numbers, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    for _ in range(3):
        seen = [batch.cuda(non_blocking=True).cpu()[:, 0] for batch in loader]
        assert torch.equal(torch.cat(seen).sort().values, torch.arange(64))
    assert torch.cuda.memory_allocated() == live and len(numbers.on_gpu) == 4
    assert all(torch.equal(tensor.cpu(), torch.full((1000,), 7)) for tensor in kept)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kept.clear()
            numbers.on_gpu.clear()
            gc.collect()
            try:
                torch.empty(10, device="cuda")
            except RuntimeError as error:
                # PyTorch's own check comes first.
                status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.cuda.memory_allocated() == live
    kept.clear()
    training()


def streams():
    """A block that another stream still uses serves nobody else, if that was said."""
    side = torch.cuda.Stream()
    for round_ in range(20):
        sent = torch.full((4 * MIB,), round_).pin_memory()
        there = sent.to("cuda", non_blocking=True)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            again = there.clone()
        there.record_stream(side)
        del there
        # Asks for memory of that size at once, and writes to it.
        other = torch.full((4 * MIB,), -1).pin_memory().to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        again.record_stream(torch.cuda.current_stream())
        assert torch.equal(again.cpu(), sent) and torch.equal(other.cpu(), torch.full((4 * MIB,), -1)), round_


def short_lists(steps=400):
    """Multi-tensor kernels are passed a list of addresses that the one before has left, of which they set the first ones and use no others.

    Memory at an old address may be there at the launch and gone at the kernel's turn: that is nobody's mistake."""
    numbers = random.Random(3)
    live, events = [], []
    for step in range(steps):
        while len(live) > numbers.randrange(4, 40):
            live.pop(numbers.randrange(len(live)))
        live += [
            torch.empty(numbers.randrange(2 * MIB, 9 * MIB) // 4, device="cuda") for _ in range(numbers.randrange(1, 12))
        ]
        if step % 10 == 0:
            torch._foreach_mul_(numbers.sample(live, min(len(live), 12)), 1.5)
            torch.cuda.synchronize()
            continue
        for _ in range(4):
            torch._foreach_mul_([numbers.choice(live)], 1.5)
        # The device stays a little behind.
        events.append(torch.cuda.Event())
        events[-1].record()
        if len(events) > 2:
            events.pop(0).synchronize()


def threads():
    """Threads that allocate on streams of their own, and free each other's tensors."""
    torch.cuda.init()
    mixed, lock, failures = [], threading.Lock(), []

    def work(seed):
        try:
            numbers, stream = random.Random(seed), torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(300):
                    tensor = torch.empty(numbers.randrange(1, 2 * MIB), dtype=torch.uint8, device="cuda")
                    tensor.fill_(seed)
                    with lock:
                        mixed.append(tensor)
                        other = mixed.pop(numbers.randrange(len(mixed))) if len(mixed) > 20 else None
                    if other is not None:
                        other.record_stream(stream)
                        other.fill_(seed)
        except Exception as error:  # noqa: BLE001 (told below)
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    torch.cuda.synchronize()
    mixed.clear()
    nothing_is_left()


def too_late():
    """Whoever enables Millpond when PyTorch's own allocator has memory is told so."""
    _kept = torch.ones(1, device="cuda")
    try:
        millpond.torch.enable()
        raise AssertionError("it was taken")
    except RuntimeError as error:
        assert "too late" in str(error), error
    assert not millpond.torch.is_enabled()
    # PyTorch still answers for itself.
    assert torch.cuda.memory_allocated() == 512


def bad_settings():
    """A setting that makes no sense is told where CUDA is first used."""
    try:
        torch.ones(1, device="cuda")
        raise AssertionError("it was taken")
    except RuntimeError as error:
        assert "slak" in str(error) and "slack" in str(error), error


def exit_with_live_tensors():
    """What is live at the end is nobody's trouble: xtask looks at what the process says, and how it ends."""
    global left
    left = [torch.ones(MIB, device="cuda") for _ in range(10)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        left.append(left[0] + left[1])
    graph.replay()
    # In a cycle, and in a thread that has ended, and with work that has not.
    left.append((graph, left))
    worker = threading.Thread(target=lambda: left.append(torch.ones(MIB, device="cuda") * 3))
    worker.start()
    worker.join()
    left.append(left[0] * 2)


def page(path):
    """The examples of docs/pytorch.md, in their order, as its reader would type them."""
    with open(path, encoding="utf-8") as file:
        examples = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    assert len(examples) >= 3, "the page has its examples"
    names = {}
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for example in examples:
            exec(compile(example, path, "exec"), names)
        assert os.path.getsize("snapshot.pickle") > 0
    assert names["model"].weight.grad is not None and torch.cuda.memory_allocated() > 0


NOT_ENABLED = ("run_of_torch", "too_late", "page")

if __name__ == "__main__":
    # Each argument is a function above, with an argument of its own after a colon if it takes one.
    cases = [case.partition(":") for case in sys.argv[1:]]
    if cases[0][0] not in NOT_ENABLED:
        millpond.torch.enable()
    for name, _, argument in cases:
        globals()[name](*filter(None, [argument]))
        if name != "bad_settings":
            torch.cuda.synchronize()
        print(f"{name}: done")
    print("all is well")
