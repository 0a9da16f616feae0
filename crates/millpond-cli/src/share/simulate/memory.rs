//! A simulated job's memory: managed memory that is brought in and sent out in chunks, as the hook does it.

use millpond::driver::{DevicePtr, Driver, DriverResult, Location, Stream, StreamFlags};
use millpond_share::policy::Moment;
use millpond_share::protocol::Traffic;
use millpond_sim::SimGpu;

/// What is moved at a time.
const CHUNK_BYTES: u64 = 64 << 20;

/// What has not been touched for so many turns is left behind.
const TURNS_REMEMBERED: u64 = 2;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    offset: u64,
    bytes: u64,
    /// As the device last said.
    resident: u64,
    /// The turn of the job in which it was last touched.
    touched: u64,
}

/// Something under way over the link.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    chunk: usize,
    ends: Moment,
}

/// The memory of one job.
#[derive(Debug)]
pub(super) struct JobMemory {
    ptr: DevicePtr,
    chunks: Vec<Chunk>,
    inward: Stream,
    outward: Stream,
    arriving: Option<Transfer>,
    leaving: Option<Transfer>,
    moved_in_bytes: u64,
    moved_out_bytes: u64,
    /// The job's turns so far.
    turn: u64,
    /// What was touched in this turn or later is used. At first nothing is known, and everything counts.
    used_since: u64,
}

impl JobMemory {
    pub(super) fn allocate(gpu: &SimGpu, bytes: u64) -> DriverResult<JobMemory> {
        let offsets = (0..bytes).step_by(CHUNK_BYTES as usize);
        Ok(JobMemory {
            ptr: gpu.alloc_managed(bytes as usize)?,
            chunks: offsets
                .map(|offset| Chunk {
                    offset,
                    bytes: CHUNK_BYTES.min(bytes - offset),
                    resident: 0,
                    touched: 0,
                })
                .collect(),
            inward: gpu.create_stream(StreamFlags::NON_BLOCKING)?,
            outward: gpu.create_stream(StreamFlags::NON_BLOCKING)?,
            arriving: None,
            leaving: None,
            moved_in_bytes: 0,
            moved_out_bytes: 0,
            turn: 0,
            used_since: 0,
        })
    }

    pub(super) fn free(&self, gpu: &SimGpu) -> DriverResult<()> {
        gpu.free(self.ptr)?;
        gpu.destroy_stream(self.inward)?;
        gpu.destroy_stream(self.outward)
    }

    pub(super) fn at(&self, offset: u64) -> DevicePtr {
        self.ptr.offset(offset as usize)
    }

    pub(super) fn begin_turn(&mut self, gpu: &SimGpu) {
        self.turn += 1;
        self.measure(gpu);
    }

    pub(super) fn end_turn(&mut self, gpu: &SimGpu) {
        self.used_since = (self.turn + 1).saturating_sub(TURNS_REMEMBERED);
        self.measure(gpu);
    }

    /// What is on the device, wherever the driver has moved it meanwhile.
    fn measure(&mut self, gpu: &SimGpu) {
        for index in 0..self.chunks.len() {
            self.measure_chunk(gpu, index);
        }
    }

    fn measure_chunk(&mut self, gpu: &SimGpu, index: usize) {
        let Chunk { offset, bytes, .. } = self.chunks[index];
        self.chunks[index].resident = gpu.resident_bytes(self.at(offset), bytes as usize) as u64;
    }

    /// A kernel names these bytes.
    pub(super) fn touch(&mut self, offset: u64, bytes: u64) {
        let first = (offset / CHUNK_BYTES) as usize;
        let end = (offset + bytes).div_ceil(CHUNK_BYTES) as usize;
        self.chunks[first..end].iter_mut().for_each(|chunk| chunk.touched = self.turn);
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            resident_bytes: self.chunks.iter().map(|chunk| chunk.resident).sum(),
            moved_in_bytes: self.moved_in_bytes,
            moved_out_bytes: self.moved_out_bytes,
            used_bytes: self.touched_bytes(),
            ..Traffic::default()
        }
    }

    /// What was touched in the turn that goes on, or in the last one.
    fn touched_bytes(&self) -> u64 {
        let touched = self.chunks.iter().filter(|chunk| chunk.touched == self.turn);
        if self.turn == 0 { 0 } else { touched.map(|chunk| chunk.bytes).sum() }
    }

    fn is_in_working_set(&self, chunk: &Chunk) -> bool {
        chunk.touched >= self.used_since
    }

    /// What of it is to be there: all, or what the last turns used.
    pub(super) fn wanted_bytes(&self, only_working_set: bool) -> u64 {
        let chunks = self.chunks.iter();
        let wanted = chunks.filter(|chunk| !only_working_set || self.is_in_working_set(chunk));
        wanted.map(|chunk| chunk.bytes).sum()
    }

    /// When what is under way has arrived.
    pub(super) fn next_moment(&self) -> Option<Moment> {
        [self.arriving, self.leaving].into_iter().flatten().map(|transfer| transfer.ends).min()
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Takes note of what has arrived on either side. `true`: something has.
    pub(super) fn settle(&mut self, gpu: &SimGpu, now: Moment) -> bool {
        let mut any = false;
        for transfer in [self.arriving, self.leaving].into_iter().flatten() {
            if transfer.ends <= now {
                self.measure_chunk(gpu, transfer.chunk);
                any = true;
            }
        }
        self.arriving = self.arriving.filter(|transfer| transfer.ends > now);
        self.leaving = self.leaving.filter(|transfer| transfer.ends > now);
        any
    }

    /// The next chunk to bring in, in the order in which kernels will come to them.
    pub(super) fn missing(&self, only_working_set: bool, from_offset: u64) -> Option<usize> {
        let is_missing = |index: &usize| {
            let chunk = &self.chunks[*index];
            chunk.resident < chunk.bytes && (!only_working_set || self.is_in_working_set(chunk))
        };
        let first = (from_offset / CHUNK_BYTES) as usize;
        (first..self.chunks.len()).chain(0..first).find(is_missing)
    }

    /// What a chunk takes on the device beyond what it has there.
    pub(super) fn missing_of(&self, index: usize) -> u64 {
        self.chunks[index].bytes - self.chunks[index].resident
    }

    pub(super) fn bring_in(&mut self, gpu: &SimGpu, index: usize) -> DriverResult<()> {
        let before = gpu.managed_traffic().moved_in_bytes;
        self.arriving = self.transfer(gpu, index, Location::Device, self.inward)?;
        self.moved_in_bytes += gpu.managed_traffic().moved_in_bytes - before;
        Ok(())
    }

    /// Sends out a chunk that is not needed for longest, if more is on the device than may be.
    pub(super) fn send_out(
        &mut self,
        gpu: &SimGpu,
        resident_at_most: u64,
        next_offset: u64,
    ) -> DriverResult<()> {
        if self.leaving.is_some() || self.traffic().resident_bytes <= resident_at_most {
            return Ok(());
        }
        let first = (next_offset / CHUNK_BYTES) as usize;
        let backwards = || (0..first).rev().chain((first..self.chunks.len()).rev());
        let is_there = |index: &usize| self.chunks[*index].resident > 0;
        let unused = backwards()
            .filter(is_there)
            .find(|index| !self.is_in_working_set(&self.chunks[*index]));
        let Some(index) = unused.or_else(|| backwards().find(is_there)) else { return Ok(()) };
        let before = gpu.managed_traffic().moved_out_bytes;
        self.leaving = self.transfer(gpu, index, Location::Host, self.outward)?;
        self.moved_out_bytes += gpu.managed_traffic().moved_out_bytes - before;
        Ok(())
    }

    fn transfer(
        &self,
        gpu: &SimGpu,
        index: usize,
        to: Location,
        stream: Stream,
    ) -> DriverResult<Option<Transfer>> {
        let Chunk { offset, bytes, .. } = self.chunks[index];
        gpu.prefetch(self.at(offset), bytes as usize, to, stream)?;
        let ends = gpu.idle_at(stream).expect("nothing else is queued on it");
        Ok(Some(Transfer { chunk: index, ends }))
    }
}
