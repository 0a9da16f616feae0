//! The context of a device that everybody in the process shares.

use crate::code_number::Code;
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::world;

/// Schedule, blocking sync, map host, resize local memory, coredumps, sync memops: all that CUDA 12 knows.
const KNOWN_FLAGS: u32 = 0xff;

entries! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) {
        context.check()?;
        let world = world()?;
        context.set(world.know(&world.device(device)?.retain_primary()))
    }

    fn cuDevicePrimaryCtxRelease(device: i32) {
        world()?.device(device)?.release_primary()
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        world()?.device(device)?.release_primary()
    }

    fn cuDevicePrimaryCtxReset(device: i32) {
        world()?.device(device)?.reset_primary();
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        world()?.device(device)?.reset_primary();
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world()?.device(device)?.set_primary_flags(flags);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        world()?.device(device)?.set_primary_flags(flags);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let (exists, set) = world()?.device(device)?.primary_state();
        flags.set(set)?;
        active.set(i32::from(exists))
    }
}
