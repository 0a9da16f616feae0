//! Physical memory for other processes.

use millpond::driver::{Call, DriverErrorKind, DriverResult, PhysicalHandle, PhysicalProperties};

use crate::driver::{error, refused};
use crate::exports::ExportToken;
use crate::gpu::SimGpu;

impl SimGpu {
    /// Lets others have the memory of a handle: whoever [imports](Self::import) the token on the same device, from this process
    /// or another one that [joined](Self::join) it. The memory is freed when the last of all its handles is gone; the
    /// token by itself holds nothing. Exporting again gives the same token.
    ///
    /// # Errors
    /// No such handle, or its memory was not created `exportable`. They name [`Call::Create`].
    pub fn export(&self, handle: PhysicalHandle) -> DriverResult<ExportToken> {
        let call = Call::Create;
        let machine = &mut *self.enter_virtual_memory(call)?;
        let (extents, token) = machine.vmm.exportable(handle).map_err(refused(call))?;
        if token.is_none() {
            *token = machine.board.export(&extents);
        }
        match *token {
            Some(token) => Ok(token),
            None => {
                machine.check_lost(call)?;
                error(call, DriverErrorKind::OutOfMemory, "it is scattered over too many pieces")
            }
        }
    }

    /// A handle to memory that was exported, with the same bytes.
    ///
    /// # Errors
    /// Nobody holds anything under this token. They name [`Call::Create`].
    pub fn import(&self, token: ExportToken) -> DriverResult<PhysicalHandle> {
        let call = Call::Create;
        let machine = &mut *self.enter_virtual_memory(call)?;
        machine.check_room_for_a_handle(call)?;
        let Some(extents) = machine.board.import(token) else {
            machine.check_lost(call)?;
            return error(
                call,
                DriverErrorKind::InvalidHandle,
                "nothing is exported by that token",
            );
        };
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        let properties = PhysicalProperties { exportable: true, ..PhysicalProperties::default() };
        Ok(machine.vmm.add_handle(extents, bytes, properties, Some(token)))
    }
}
