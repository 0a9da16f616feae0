//! The kernels that a driver has built in, as a module of ours.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::context::Context;
use super::status::{Status, call};
use super::streams::LiveStream;

/// The kernels, in NVIDIA's portable assembly, which the driver translates for the device at hand.
const PTX: &str = concat!(include_str!("../kernels.ptx"), "\0");

/// Their names in the module, in the order of [`Argument`]'s indices.
const NAMES: [&CStr; 5] =
    [c"millpond_fill", c"millpond_add", c"millpond_checksum", c"millpond_chase", c"millpond_work"];

const THREADS_PER_BLOCK: u32 = 256;

/// A kernel's argument, laid out as the module declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Word(u32),
    Long(u64),
    /// Eight ranges of address, length and kind.
    Touches([[u64; 3]; 8]),
}

/// The loaded module, unloaded when dropped.
#[derive(Debug)]
pub(crate) struct Kernels {
    context: Arc<Context>,
    module: usize,
    functions: [usize; NAMES.len()],
}

impl Kernels {
    pub(crate) fn load(context: &Arc<Context>) -> Result<Kernels, Status> {
        context.with(|cuda| {
            let mut module: CUmodule = std::ptr::null_mut();
            // SAFETY: the text ends with a zero; the handle goes into a variable that is there.
            unsafe { call!(cuda, cuModuleLoadData(&mut module, PTX.as_ptr().cast())) }?;
            // Made now, so that a function that is missing does not leave the module behind.
            let mut kernels = Kernels {
                context: Arc::clone(context),
                module: module as usize,
                functions: [0; 5],
            };
            for (name, place) in NAMES.iter().zip(&mut kernels.functions) {
                let mut function: CUfunction = std::ptr::null_mut();
                // SAFETY: the module is loaded, the name ends with a zero.
                unsafe { call!(cuda, cuModuleGetFunction(&mut function, module, name.as_ptr())) }?;
                *place = function as usize;
            }
            Ok(kernels)
        })
    }

    /// Queues a kernel, by its `millpond_` name without that.
    pub(crate) fn launch(
        &self,
        name: &str,
        blocks: u32,
        arguments: &[Argument],
        stream: &LiveStream,
    ) -> Result<(), Status> {
        let of_name =
            |full: &&CStr| full.to_bytes().strip_prefix(b"millpond_") == Some(name.as_bytes());
        let index = NAMES.iter().position(of_name).ok_or(Status::NOT_SUPPORTED)?;
        assert!(fits(name, arguments), "the arguments of {name} are others");
        let mut places: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Word(value) => std::ptr::from_ref(value).cast_mut().cast(),
                Argument::Long(value) => std::ptr::from_ref(value).cast_mut().cast(),
                Argument::Touches(value) => std::ptr::from_ref(value).cast_mut().cast(),
            })
            .collect();
        let function = self.functions[index] as CUfunction;
        // SAFETY: function and stream are alive; there is a place for each argument that the function declares, as wide as it
        // declares it, and they are read during the call.
        self.context.with(|cuda| unsafe {
            call!(
                cuda,
                cuLaunchKernel(
                    function,
                    blocks,
                    1,
                    1,
                    THREADS_PER_BLOCK,
                    1,
                    1,
                    0,
                    stream.raw(),
                    places.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            )
        })
    }
}

/// Whether these are the arguments that the module declares for a kernel.
fn fits(name: &str, arguments: &[Argument]) -> bool {
    use Argument::{Long, Touches, Word};
    match name {
        "fill" => matches!(arguments, [Long(_), Word(_), Long(_)]),
        "add" => matches!(arguments, [Long(_), Long(_), Long(_), Long(_)]),
        "checksum" | "chase" => matches!(arguments, [Long(_), Long(_), Long(_)]),
        "work" => matches!(arguments, [Long(_), Long(_), Touches(_)]),
        _ => false,
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`, and nobody has its functions any more.
        let _ = self
            .context
            .with(|cuda| unsafe { call!(cuda, cuModuleUnload(self.module as CUmodule)) });
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, PTX};

    #[test]
    fn the_module_declares_every_kernel() {
        for name in NAMES {
            let entry = format!(".visible .entry {}(", name.to_str().unwrap());
            assert_eq!(PTX.matches(&entry).count(), 1, "{entry}");
        }
        assert_eq!(PTX.find('\0'), Some(PTX.len() - 1));
        assert!(PTX.is_ascii(), "assemblers read nothing else");
    }
}
