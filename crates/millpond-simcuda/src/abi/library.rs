//! Libraries: code, loaded into all contexts.

use std::ffi::c_void;

use crate::code_number::Code;
use crate::entry::entries;
use crate::raw_pointers::{In, Out, Text, write_host};
use crate::world::{current, world};

const LONGEST_NAME: usize = 1 << 16;
const LONGEST_PATH: usize = 4096;

entries! {
    fn cuLibraryLoadData(
        library: Out<u64>,
        image: In<u8>,
        _jit_options: *const c_void,
        _jit_values: *const c_void,
        _jit_count: u32,
        _options: *const c_void,
        _values: *const c_void,
        _count: u32,
    ) {
        library.check()?;
        library.set(world()?.library.load(image.address())?)
    }

    fn cuLibraryLoadFromFile(
        library: Out<u64>,
        path: Text,
        _jit_options: *const c_void,
        _jit_values: *const c_void,
        _jit_count: u32,
        _options: *const c_void,
        _values: *const c_void,
        _count: u32,
    ) {
        library.check()?;
        library.set(world()?.library.load_file(&path.get(LONGEST_PATH)?)?)
    }

    fn cuLibraryUnload(library: u64) {
        world()?.library.unload(library)
    }

    fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: Text) {
        kernel.check()?;
        kernel.set(world()?.library.find(library, &name.get(LONGEST_NAME)?)?)
    }

    /// A library's module is the library.
    fn cuLibraryGetModule(module: Out<u64>, library: u64) {
        module.check()?;
        world()?.library.module(library)?;
        module.set(library)
    }

    fn cuLibraryGetKernelCount(count: Out<u32>, library: u64) {
        count.check()?;
        count.set(world()?.library.names(library)?.len() as u32)
    }

    fn cuLibraryEnumerateKernels(kernels: u64, most: u32, library: u64) {
        let handles = world()?.library.functions(library, most as usize)?;
        let bytes: Vec<u8> = handles.iter().flat_map(|handle| handle.to_le_bytes()).collect();
        write_host(kernels, &bytes)
    }

    fn cuLibraryGetGlobal(_ptr: Out<u64>, _bytes: Out<usize>, library: u64, name: Text) {
        world()?.library.module(library)?;
        name.get(LONGEST_NAME)?;
        Err(Code::NOT_FOUND)
    }

    /// A kernel's function is the kernel.
    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) {
        function.check()?;
        current()?.world.library.function(kernel)?;
        function.set(kernel)
    }

    fn cuKernelGetLibrary(library: Out<u64>, kernel: u64) {
        library.check()?;
        library.set(world()?.library.function(kernel)?.module)
    }
}
