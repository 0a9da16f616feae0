//! Copies.

use millpond::driver::{Driver, Stream};

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::layouts::{Copy2D, memory_type};
use crate::memory::Place;
use crate::raw_pointers::In;
use crate::world::{Current, World, current};

/// How an address is to be understood.
#[derive(Clone, Copy)]
enum Side {
    Host(u64),
    Device(u64),
    /// Whatever is there.
    Any(u64),
}

impl Side {
    fn place(self, world: &World) -> Place<'_> {
        match self {
            // Pinned memory of ours is known, and can be copied in the order of a stream.
            Side::Host(address) | Side::Any(address) => world.place(address),
            Side::Device(address) => world.device_memory(address),
        }
    }

    fn offset(self, bytes: usize) -> Answer<Side> {
        let moved = |address: u64| address.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE);
        Ok(match self {
            Side::Host(address) => Side::Host(moved(address)?),
            Side::Device(address) => Side::Device(moved(address)?),
            Side::Any(address) => Side::Any(moved(address)?),
        })
    }
}

/// On a stream, and not waited for (but where the host's memory is no memory of ours).
fn queue(to: Side, from: Side, bytes: usize, handle: u64, null: Stream) -> Answer {
    let current = current()?;
    let on = current.stream(handle, null)?;
    current.world.copy(to.place(current.world), from.place(current.world), bytes, on)
}

/// On the default stream, and waited for.
fn copy(to: Side, from: Side, bytes: usize, null: Stream) -> Answer {
    queue(to, from, bytes, 0, null)?;
    wait(&current()?, null)
}

fn wait(current: &Current, null: Stream) -> Answer {
    Ok(current.gpu().synchronize_stream(null)?)
}

/// One side of a copy of rows: where it begins, and how far its rows are apart.
fn rows(
    kind: i32,
    host: u64,
    device: u64,
    (x, y): (usize, usize),
    pitch: usize,
    width: usize,
) -> Answer<(Side, usize)> {
    let side = match kind {
        memory_type::HOST => Side::Host(host),
        memory_type::DEVICE => Side::Device(device),
        memory_type::UNIFIED => Side::Any(device),
        _ => return Err(Code::NOT_SUPPORTED),
    };
    let pitch = if pitch == 0 { width } else { pitch };
    let start = y.checked_mul(pitch).and_then(|rows| rows.checked_add(x));
    if pitch < width {
        return Err(Code::INVALID_VALUE);
    }
    Ok((side.offset(start.ok_or(Code::INVALID_VALUE)?)?, pitch))
}

fn copy_rows(wanted: In<Copy2D>, handle: u64, null: Stream) -> Answer {
    let c = wanted.get()?;
    let from = (c.src_x, c.src_y);
    let (from, from_pitch) =
        rows(c.src_kind, c.src_host, c.src_device, from, c.src_pitch, c.width)?;
    let to = (c.dst_x, c.dst_y);
    let (to, to_pitch) = rows(c.dst_kind, c.dst_host, c.dst_device, to, c.dst_pitch, c.width)?;
    if from_pitch == c.width && to_pitch == c.width {
        let bytes = c.width.checked_mul(c.height).ok_or(Code::INVALID_VALUE)?;
        return queue(to, from, bytes, handle, null);
    }
    if c.width == 0 {
        return Ok(());
    }
    for row in 0..c.height {
        let skip = |pitch: usize| row.checked_mul(pitch).ok_or(Code::INVALID_VALUE);
        queue(to.offset(skip(to_pitch)?)?, from.offset(skip(from_pitch)?)?, c.width, handle, null)?;
    }
    Ok(())
}

entries! {
    fn cuMemcpy / cuMemcpy_ptds(dst: u64, src: u64, bytes: usize) {
        copy(Side::Any(dst), Side::Any(src), bytes, NULL_STREAM)
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        queue(Side::Any(dst), Side::Any(src), bytes, stream, NULL_STREAM)
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(dst: u64, src: u64, bytes: usize) {
        copy(Side::Device(dst), Side::Host(src), bytes, NULL_STREAM)
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        queue(Side::Device(dst), Side::Host(src), bytes, stream, NULL_STREAM)
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(dst: u64, src: u64, bytes: usize) {
        copy(Side::Host(dst), Side::Device(src), bytes, NULL_STREAM)
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        queue(Side::Host(dst), Side::Device(src), bytes, stream, NULL_STREAM)
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(dst: u64, src: u64, bytes: usize) {
        // Not waited for, as NVIDIA documents.
        queue(Side::Device(dst), Side::Device(src), bytes, 0, NULL_STREAM)
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(dst: u64, src: u64, bytes: usize, stream: u64) {
        queue(Side::Device(dst), Side::Device(src), bytes, stream, NULL_STREAM)
    }

    fn cuMemcpyPeer / cuMemcpyPeer_ptds(dst: u64, dst_context: u64, src: u64, src_context: u64, bytes: usize) {
        let world = current()?.world;
        world.context(dst_context)?;
        world.context(src_context)?;
        queue(Side::Device(dst), Side::Device(src), bytes, 0, NULL_STREAM)
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        dst: u64,
        dst_context: u64,
        src: u64,
        src_context: u64,
        bytes: usize,
        stream: u64,
    ) {
        let world = current()?.world;
        world.context(dst_context)?;
        world.context(src_context)?;
        queue(Side::Device(dst), Side::Device(src), bytes, stream, NULL_STREAM)
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(wanted: In<Copy2D>) {
        copy_rows(wanted, 0, NULL_STREAM)?;
        wait(&current()?, NULL_STREAM)
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(wanted: In<Copy2D>) {
        copy_rows(wanted, 0, NULL_STREAM)?;
        wait(&current()?, NULL_STREAM)
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(wanted: In<Copy2D>, stream: u64) {
        copy_rows(wanted, stream, NULL_STREAM)
    }
}
