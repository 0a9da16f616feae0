"""PyTorch, unmodified, over the stand-ins: what it does with memory is real, what its kernels compute is not.

Kernels take their time and touch their memory, so values that went through one mean nothing and are not looked at. Copies,
also those inside a captured graph, move real bytes. Times are those of the simulated device, the same in every run.
"""

import json
import os
import subprocess
import sys

import torch
from torch import nn

# cuDNN speaks to private parts of the driver.
torch.backends.cudnn.enabled = False
MIB = 1 << 20


def tensors():
    """Bytes go there and come back, in every way that PyTorch copies."""
    generator = torch.Generator().manual_seed(7)
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.float64, torch.bfloat16):
        for count in (1, 513, 100_003):
            bytes_ = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=generator)
            sent = bytes_.view(dtype)
            there = sent.cuda()
            assert there.is_cuda and there.device.index == 0
            for back in (there.cpu(), there.clone().cpu(), there.cuda().cpu()):
                assert torch.equal(back.view(torch.uint8), bytes_), (dtype, count)
    table = torch.arange(10_000).view(100, 100)
    assert torch.equal(table.t().contiguous().cuda().cpu(), table.t())
    there = table.cuda()
    there[10:20].copy_(table[30:40])
    assert torch.equal(there.cpu()[10:20], table[30:40]) and torch.equal(there.cpu()[20:], table[20:])
    pinned = torch.arange(1 << 18).pin_memory()
    assert pinned.is_pinned()
    assert torch.equal(pinned.to("cuda", non_blocking=True).cpu(), pinned)
    if torch.cuda.device_count() > 1:
        moved = pinned.to("cuda:0").to("cuda:1")
        assert moved.device.index == 1 and torch.equal(moved.cpu(), pinned)


def memory():
    """What PyTorch says of its memory is what the driver says."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    before = torch.cuda.memory_allocated()
    kept = [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
    assert torch.cuda.memory_allocated() == before + 4 * 64 * MIB
    assert torch.cuda.mem_get_info()[0] <= free - 4 * 64 * MIB
    segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == 0]
    assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated()
    del kept
    assert torch.cuda.memory_allocated() == before
    torch.cuda.empty_cache()
    # An allocator that keeps pages of its own, such as the driver's pool, may keep some.
    assert torch.cuda.mem_get_info()[0] >= free - 64 * MIB


def streams():
    """Order across streams, and time on the device."""
    side = torch.cuda.Stream(priority=-1)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    sent = torch.arange(4 * MIB).pin_memory()
    with torch.cuda.stream(side):
        begin.record()
        there = sent.to("cuda", non_blocking=True)
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    there.record_stream(torch.cuda.current_stream())
    again = there.clone()
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) > 0.5, begin.elapsed_time(end)
    assert torch.equal(again.cpu(), sent)

    # A kernel's time grows with what it touches, so its parameters are understood.
    def milliseconds(mib):
        numbers = torch.empty(mib * MIB // 4, device="cuda")
        del_me = numbers + numbers
        del del_me
        torch.cuda.synchronize()
        begin.record()
        _sum = numbers + numbers
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    small, large = milliseconds(64), milliseconds(1024)
    assert 8 * small < large < 32 * small, (small, large)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    def __init__(self, words=1000, width=128, heads=4, depth=3):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def train(steps, after_step=lambda: None):
    torch.manual_seed(1)
    model = Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, wanted = (torch.randint(0, 1000, (16, 64)).cuda() for _ in range(2))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).view(-1, 1000), wanted.view(-1))
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        after_step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    states = optimizer.state.values()
    assert all(state["exp_avg"].is_cuda for state in states) and len(states) == len(list(model.parameters()))


def training():
    """A small transformer: forward, backward, AdamW. After the first steps its memory stands still."""
    allocated, reserved = [], []

    def after_step():
        allocated.append(torch.cuda.memory_allocated())
        reserved.append(torch.cuda.memory_reserved())

    train(6, after_step)
    assert len(set(allocated[2:])) == 1 and len(set(reserved[2:])) == 1, (allocated, reserved)
    assert torch.cuda.max_memory_allocated() > allocated[-1] > 0


def snapshot(millpond):
    """What PyTorch recorded of its memory, `millpond replay` reads, and finds the same."""
    torch.cuda.memory._record_memory_history(stacks="python")
    torch.cuda.reset_peak_memory_stats()
    train(4)
    # A trace has what was asked for; what PyTorch calls allocated is rounded.
    peak_live = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    peak_reserved = torch.cuda.max_memory_reserved()
    path = os.path.join(os.path.dirname(millpond), "torch_snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    arguments = [millpond, "replay", "--json", "--allocator", "pool", "--allocator", "torch", path]
    replay = subprocess.run(arguments, env=clean, capture_output=True, text=True)
    assert replay.returncode in (0, 1), replay
    (trace,) = json.loads(replay.stdout)["traces"]
    assert trace["events"] > 1000 and trace["peak_live_bytes"] == peak_live, (trace, peak_live)
    assert trace["recorded_peak_reserved_bytes"] == peak_reserved, (trace, peak_reserved)
    by_name = {result["allocator"]: result for result in trace["results"]}
    assert by_name["torch"]["peak_reserved_bytes"] == peak_reserved, (by_name, peak_reserved)
    assert peak_live <= by_name["pool"]["peak_reserved_bytes"] <= 1.3 * peak_live + 4 * MIB, (by_name, peak_live)
    print(f"snapshot: {trace['events']} events, {peak_live >> 20} MiB live, {peak_reserved >> 20} MiB reserved; "
          f"pool {by_name['pool']['peak_reserved_bytes'] >> 20} MiB")


def out_of_memory():
    """Where the device ends, PyTorch says so, and goes on when there is room again."""
    _, total = torch.cuda.mem_get_info()
    kept = []
    try:
        while True:
            kept.append(torch.empty(128 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        assert "CUDA out of memory" in str(error) and f"{total / (1 << 30):.2f} GiB" in str(error), error
    assert 0 < len(kept) <= total // (128 * MIB)
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    kept.clear()
    training()


def graph():
    """A captured graph does again what was captured: its copies move what is there at the time."""
    source, middle, target = (torch.zeros(100_000, dtype=torch.int64, device="cuda") for _ in range(3))
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        middle.copy_(source)
        _kernel = middle * 2
        target.copy_(middle)
    for seed in range(3):
        sent = torch.randint(0, 1 << 40, (100_000,), generator=torch.Generator().manual_seed(seed))
        source.copy_(sent)
        captured.replay()
        assert torch.equal(target.cpu(), sent), seed


if __name__ == "__main__":
    # Each argument is a function above, with an argument of its own after a colon if it takes one.
    for case in sys.argv[1:]:
        name, _, argument = case.partition(":")
        globals()[name](*filter(None, [argument]))
        torch.cuda.synchronize()
        print(f"{name}: done")
    print("all is well")
