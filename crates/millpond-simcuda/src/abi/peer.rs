//! Access between devices: there is none. Copies between devices go through the host.

use crate::code_number::Code;
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::{current, world};

entries! {
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        can.check()?;
        let world = world()?;
        world.device(device)?;
        world.device(peer)?;
        can.set(0)
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: i32, peer: i32) {
        value.check()?;
        let world = world()?;
        world.device(device)?;
        world.device(peer)?;
        if device == peer || !(1..=5).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        value.set(0)
    }

    fn cuCtxEnablePeerAccess(peer: u64, _flags: u32) {
        current()?.world.context(peer)?;
        Err(Code::PEER_ACCESS_UNSUPPORTED)
    }

    fn cuCtxDisablePeerAccess(peer: u64) {
        current()?.world.context(peer)?;
        Err(Code::PEER_ACCESS_NOT_ENABLED)
    }
}
