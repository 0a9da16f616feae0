//! A kernel: its name, and where its parameters are.

use millpond::driver::{self, DevicePtr, Touch, TouchKind};

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
    ) -> Answer<driver::Kernel> {
        let block = self.parameter_block(passed)?;
        if let Some(kernel) = built_in::launch(&self.name, &block)? {
            return Ok(kernel);
        }
        let touches = self.touched(world, device, &block);
        Ok(driver::Kernel::Work { touches, duration: world.config.kernel })
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

    /// The allocations whose addresses occur in the parameters. An address of memory that is gone counts where it is a parameter of
    /// its own: the kernel would find out. Inside of a larger one it may be of a field that nobody set. What is no address at
    /// all is a number.
    fn touched(&self, world: &World, device: &Device, block: &[u8]) -> Vec<Touch> {
        let mut touches: Vec<Touch> = Vec::new();
        for (index, value) in block.chunks_exact(8).map(word).enumerate() {
            let touch = match world.allocation_at(value) {
                Some((owner, memory)) if std::ptr::eq(owner, device) => {
                    // Whether it is read or written nobody knows; reading makes no race of what is none.
                    Touch { ptr: memory.start, bytes: memory.bytes, kind: TouchKind::Read }
                }
                None if self.is_parameter(index * 8)
                    && device.gpu.is_dangling(DevicePtr(value)) =>
                {
                    Touch::read(DevicePtr(value), 1)
                }
                _ => continue,
            };
            if !touches.contains(&touch) {
                touches.push(touch);
            }
        }
        touches
    }

    /// Whether a parameter of the size of a pointer lies there. Where nothing is known, every word may be one.
    fn is_parameter(&self, offset: usize) -> bool {
        let Some(parameters) = &self.parameters else { return true };
        parameters.contains(&Parameter { offset, bytes: 8 })
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
