//! A kernel: its name, and where its parameters are.

use millpond::driver::{self, DevicePtr, Driver, Stream};
use millpond_sim::{AddressWord, UnknownKernel};

use super::built_in;
use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::raw_pointers::{read_host, read_short};
use crate::world::World;

/// One parameter: where it lies in the block of all parameters, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// What is known of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// `None` if the code does not tell.
    pub(crate) parameters: Option<Vec<Parameter>>,
    pub(crate) needs: Needs,
}

/// What a kernel needs of a device, and what its launches have to keep to. Without figures in the code it needs little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The most threads of a block, by the code's own word.
    pub(crate) most_threads: Option<u32>,
    /// The only shape of a block that it can be launched with.
    pub(crate) block: Option<[u32; 3]>,
    /// Of each thread.
    pub(crate) registers: u32,
    /// Of each thread.
    pub(crate) local_bytes: u32,
    /// Of each block, besides what launches ask for.
    pub(crate) shared_bytes: u32,
    pub(crate) constant_bytes: u32,
}

impl Default for Needs {
    fn default() -> Needs {
        Needs {
            most_threads: None,
            block: None,
            registers: 32,
            local_bytes: 0,
            shared_bytes: 0,
            constant_bytes: 0,
        }
    }
}

/// More than any device lets a block have.
const MOST_THREADS: u32 = 1024;

impl Needs {
    /// The most threads that a block of this kernel can have.
    pub(crate) fn most_threads(&self) -> u32 {
        let of_block = self.block.map(threads);
        self.most_threads.or(of_block).unwrap_or(MOST_THREADS).min(MOST_THREADS)
    }
}

/// The threads of a block of this shape.
pub(crate) fn threads(block: [u32; 3]) -> u32 {
    block.iter().fold(1, |product, size| size.saturating_mul(product))
}

/// How a launch passes parameters: an array of pointers, or a list of options that names a block of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) pointers: u64,
    pub(crate) extra: u64,
}

const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;
/// More than CUDA lets a kernel have.
const MOST_PARAMETER_BYTES: usize = 32764;

impl Kernel {
    /// What a launch does, as far as that can be known.
    pub(crate) fn launch(
        &self,
        world: &World,
        device: &Device,
        passed: Passed,
    ) -> Answer<Launched> {
        let block = self.parameter_block(passed)?;
        if let Some(kernel) = built_in::launch(&self.name, &block)? {
            return Ok(Launched::Executed(kernel));
        }
        Ok(Launched::Unknown(UnknownKernel {
            name: self.name.clone(),
            addresses: self.addresses(world, device, &block),
            duration: world.config.kernel,
        }))
    }

    /// The bytes of all parameters. Of a kernel of unknown layout they can be had only where the program says how many.
    fn parameter_block(&self, passed: Passed) -> Answer<Vec<u8>> {
        if passed.extra != 0 {
            return extra_block(passed.extra);
        }
        let Some(parameters) = self.parameters.as_ref().filter(|all| !all.is_empty()) else {
            return Ok(Vec::new());
        };
        if passed.pointers == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let end = parameters.iter().map(|one| one.offset + one.bytes).max().unwrap_or(0);
        let mut block = vec![0; end];
        for (index, parameter) in parameters.iter().enumerate() {
            let mut pointer = [0; 8];
            read_short(passed.pointers.wrapping_add(index as u64 * 8), &mut pointer)?;
            let place = parameter.offset..parameter.offset + parameter.bytes;
            read_short(u64::from_le_bytes(pointer), &mut block[place])?;
        }
        Ok(block)
    }

    /// The words of the parameters that can only be meant as addresses of this device: memory is there, or, for a pointer of its own, was there or is to
    /// be. What is no address at all is a number.
    fn addresses(&self, world: &World, device: &Device, block: &[u8]) -> Vec<AddressWord> {
        let words = block.chunks_exact(8).map(word).enumerate().map(|(index, value)| {
            let (offset, parameter_bytes) = self.place(index * 8);
            AddressWord { ptr: DevicePtr(value), offset, parameter_bytes }
        });
        let is_address = |word: &AddressWord| match world.allocation_at(word.ptr.0) {
            Some((owner, _)) => std::ptr::eq(owner, device),
            // Old addresses in fields that nobody set are too common to be worth a line.
            None => word.is_whole_parameter() && device.gpu.is_dangling(word.ptr),
        };
        words.filter(is_address).collect()
    }

    /// Where in its parameter a byte of the block lies, and how long that is. Where no layout is known, the block is all there is.
    fn place(&self, offset: usize) -> (usize, Option<usize>) {
        let mut all = self.parameters.iter().flatten();
        let around = all.find(|it| (it.offset..it.offset + it.bytes).contains(&offset));
        around.map_or((offset, None), |it| (offset - it.offset, Some(it.bytes)))
    }
}

/// What a launch queues.
#[derive(Debug)]
pub(crate) enum Launched {
    /// A kernel that is executed: what it touches is certain.
    Executed(driver::Kernel),
    /// Any other: what it touches is guessed.
    Unknown(UnknownKernel),
}

impl Launched {
    pub(crate) fn queue(self, device: &Device, stream: Stream) -> Answer {
        match self {
            Launched::Executed(kernel) => device.gpu.launch(&kernel, stream)?,
            Launched::Unknown(kernel) => device.gpu.launch_unknown(&kernel.into(), stream)?,
        }
        Ok(())
    }
}

/// Pairs of an option and its value, up to the end mark.
fn extra_block(mut list: u64) -> Answer<Vec<u8>> {
    let (mut buffer, mut size) = (None, None);
    for _ in 0..8 {
        let option = word(&read_host(list, 8)?);
        if option == EXTRA_END {
            break;
        }
        let value = word(&read_host(list.wrapping_add(8), 8)?);
        match option {
            EXTRA_BUFFER => buffer = Some(value),
            EXTRA_SIZE => size = Some(word(&read_host(value, 8)?) as usize),
            _ => return Err(Code::INVALID_VALUE),
        }
        list = list.wrapping_add(16);
    }
    match (buffer, size) {
        (Some(buffer), Some(size)) if size <= MOST_PARAMETER_BYTES => read_host(buffer, size),
        (None, None) => Ok(Vec::new()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(super) fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
