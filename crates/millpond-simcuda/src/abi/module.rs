//! Modules: code, loaded into a context.

use std::ffi::c_void;

use crate::code_number::Code;
use crate::entry::entries;
use crate::raw_pointers::{In, Out, Text, write_host};
use crate::world::current;

const LONGEST_NAME: usize = 1 << 16;
const LONGEST_PATH: usize = 4096;
/// Code is loaded when it is first used.
const LAZY_LOADING: i32 = 2;

entries! {
    fn cuModuleLoad(module: Out<u64>, path: Text) {
        module.check()?;
        module.set(current()?.world.library.load_file(&path.get(LONGEST_PATH)?)?)
    }

    fn cuModuleLoadData(module: Out<u64>, image: In<u8>) {
        module.check()?;
        module.set(current()?.world.library.load(image.address())?)
    }

    fn cuModuleLoadDataEx(
        module: Out<u64>,
        image: In<u8>,
        _count: u32,
        _options: *const c_void,
        _values: *const c_void,
    ) {
        module.check()?;
        module.set(current()?.world.library.load(image.address())?)
    }

    fn cuModuleLoadFatBinary(module: Out<u64>, image: In<u8>) {
        module.check()?;
        module.set(current()?.world.library.load(image.address())?)
    }

    fn cuModuleUnload(module: u64) {
        current()?.world.library.unload(module)
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        mode.set(LAZY_LOADING)
    }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) {
        function.check()?;
        function.set(current()?.world.library.find(module, &name.get(LONGEST_NAME)?)?)
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, module: u64) {
        count.check()?;
        count.set(current()?.world.library.names(module)?.len() as u32)
    }

    fn cuModuleEnumerateFunctions(functions: u64, most: u32, module: u64) {
        let handles = current()?.world.library.functions(module, most as usize)?;
        let bytes: Vec<u8> = handles.iter().flat_map(|handle| handle.to_le_bytes()).collect();
        write_host(functions, &bytes)
    }

    /// Variables of code have no memory here.
    fn cuModuleGetGlobal_v2(_ptr: Out<u64>, _bytes: Out<usize>, module: u64, name: Text) {
        current()?.world.library.module(module)?;
        name.get(LONGEST_NAME)?;
        Err(Code::NOT_FOUND)
    }
}
