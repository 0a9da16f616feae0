//! The names of the driver's calls: in errors, call counts, latency tables and fault plans.

macro_rules! calls {
    ($($variant:ident => $name:literal,)*) => {
        /// One call of [`Driver`](crate::Driver).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // each is the method of the same name
        pub enum Call { $($variant,)* }

        impl Call {
            /// Every call, in the order of the enum.
            pub const ALL: &[Call] = &[$(Call::$variant,)*];

            /// The method's name.
            pub const fn name(self) -> &'static str {
                match self { $(Call::$variant => $name,)* }
            }
        }
    };
}

calls! {
    MemoryInfo => "memory_info",
    Alloc => "alloc",
    Free => "free",
    AllocManaged => "alloc_managed",
    Prefetch => "prefetch",
    Advise => "advise",
    AllocPinned => "alloc_pinned",
    FreePinned => "free_pinned",
    DefaultPool => "default_pool",
    CreatePool => "create_pool",
    DestroyPool => "destroy_pool",
    PoolAttribute => "pool_attribute",
    SetPoolAttribute => "set_pool_attribute",
    TrimPool => "trim_pool",
    AllocAsync => "alloc_async",
    FreeAsync => "free_async",
    Reserve => "reserve",
    Unreserve => "unreserve",
    Create => "create",
    Release => "release",
    Map => "map",
    SetAccess => "set_access",
    Unmap => "unmap",
    Copy => "copy",
    CopyToDevice => "copy_to_device",
    CopyToHost => "copy_to_host",
    Memset => "memset",
    Launch => "launch",
    CreateStream => "create_stream",
    DestroyStream => "destroy_stream",
    StreamId => "stream_id",
    SynchronizeStream => "synchronize_stream",
    QueryStream => "query_stream",
    SynchronizeDevice => "synchronize_device",
    BeginCapture => "begin_capture",
    EndCapture => "end_capture",
    CaptureState => "capture_state",
    ExchangeCaptureMode => "exchange_capture_mode",
    LaunchGraph => "launch_graph",
    DestroyGraph => "destroy_graph",
    CreateEvent => "create_event",
    DestroyEvent => "destroy_event",
    RecordEvent => "record_event",
    QueryEvent => "query_event",
    SynchronizeEvent => "synchronize_event",
    WaitEvent => "wait_event",
    Elapsed => "elapsed",
}

impl Call {
    /// How many calls there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The call of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Call> {
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }

    /// Whether the call takes memory from the device or the host, so that it can run out.
    pub const fn takes_memory(self) -> bool {
        matches!(
            self,
            Call::Alloc
                | Call::AllocManaged
                | Call::AllocPinned
                | Call::AllocAsync
                | Call::Reserve
                | Call::Create
                | Call::Map
        )
    }

    /// Whether CUDA may refuse the call while a stream is captured in [`CaptureMode::Global`]
    /// (or in this thread): it could depend on work that the capture has only recorded.
    ///
    /// [`CaptureMode::Global`]: super::CaptureMode::Global
    pub const fn unsafe_during_capture(self) -> bool {
        matches!(
            self,
            Call::Alloc
                | Call::Free
                | Call::AllocManaged
                | Call::AllocPinned
                | Call::FreePinned
                | Call::TrimPool
                | Call::Create
                | Call::Release
                | Call::Map
                | Call::SetAccess
                | Call::Unmap
                | Call::QueryEvent
                | Call::SynchronizeEvent
                | Call::QueryStream
                | Call::SynchronizeStream
                | Call::SynchronizeDevice
        )
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn names_lead_back_to_their_calls() {
        for &call in Call::ALL {
            assert_eq!(Call::from_name(call.name()), Some(call));
        }
        assert_eq!(Call::from_name("cuMemAlloc"), None);
    }
}
