//! One device, as the driver numbers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use millpond::driver::{Driver, DriverPool};
use millpond_sim::{Profile, SimGpu};
use parking_lot::Mutex;

use crate::code_number::{Answer, Code};
use crate::config::Config;
use crate::context::{Context, ContextKind};
use crate::host_calls::HostCalls;
use crate::mapped_pages;
use crate::reports;
use crate::streams::Streams;

/// A device and what the driver keeps about it.
#[derive(Debug)]
pub(crate) struct Device {
    /// What this program numbers it.
    pub(crate) ordinal: usize,
    /// What the machine numbers it, for every program.
    pub(crate) number: usize,
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) profile: Profile,
    pub(crate) streams: Streams,
    pub(crate) host_calls: HostCalls,
    primary: Mutex<Primary>,
    /// Contexts that programs have created here, besides the primary one.
    created_contexts: AtomicUsize,
    /// The pool that `cuMemAllocAsync` takes from; 0 is the default one.
    current_pool: AtomicU64,
}

/// The primary context exists while somebody has retained it.
#[derive(Debug, Default)]
struct Primary {
    retained: usize,
    flags: u32,
    context: Option<Arc<Context>>,
}

impl Device {
    pub(crate) fn new(ordinal: usize, number: usize, gpu: SimGpu, config: &Config) -> Device {
        gpu.set_faults(&config.fail);
        gpu.tell(reports::tell);
        Device {
            ordinal,
            number,
            gpu: Arc::new(gpu),
            profile: config.profile.clone(),
            streams: Streams::default(),
            host_calls: HostCalls::default(),
            primary: Mutex::default(),
            created_contexts: AtomicUsize::new(0),
            current_pool: AtomicU64::new(0),
        }
    }

    /// The primary context; the first one who asks brings it into being.
    pub(crate) fn retain_primary(&self) -> Arc<Context> {
        let mut primary = self.primary.lock();
        primary.retained += 1;
        let flags = primary.flags;
        let make = || Arc::new(Context::new(self.ordinal, ContextKind::Primary, flags));
        Arc::clone(primary.context.get_or_insert_with(make))
    }

    /// The last one who lets go ends it, and everything in it.
    pub(crate) fn release_primary(&self) -> Answer {
        let mut primary = self.primary.lock();
        primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        if primary.retained == 0 {
            self.end(&mut primary);
        }
        Ok(())
    }

    /// Ends the primary context whoever has retained it.
    pub(crate) fn reset_primary(&self) {
        let mut primary = self.primary.lock();
        let retained = primary.retained;
        self.end(&mut primary);
        // Those who have retained it may go on: as with NVIDIA's driver, they hold a context that is made anew.
        primary.retained = retained;
        if retained > 0 {
            let flags = primary.flags;
            primary.context =
                Some(Arc::new(Context::new(self.ordinal, ContextKind::Primary, flags)));
        }
    }

    fn end(&self, primary: &mut Primary) {
        let Some(context) = primary.context.take() else { return };
        context.destroy();
        // What contexts that were created hold is theirs; while there are any, what the primary one leaves behind stays.
        // Acquire: their last calls come before this.
        if self.created_contexts.load(Ordering::Acquire) == 0 {
            self.begin_anew();
        }
    }

    fn begin_anew(&self) {
        self.streams.clear();
        self.gpu.reset();
        mapped_pages::forget();
        self.set_current_pool(None);
    }

    /// The handle of the primary context, while it exists.
    pub(crate) fn primary_handle(&self) -> Option<u64> {
        self.primary.lock().context.as_ref().map(|context| context.handle)
    }

    /// Whether the primary context exists, and its flags.
    pub(crate) fn primary_state(&self) -> (bool, u32) {
        let primary = self.primary.lock();
        (primary.context.is_some(), primary.flags)
    }

    pub(crate) fn set_primary_flags(&self, flags: u32) {
        self.primary.lock().flags = flags;
    }

    /// A context of a program's own.
    pub(crate) fn create_context(&self, flags: u32) -> Arc<Context> {
        // Relaxed: nothing is read by it until a release below.
        self.created_contexts.fetch_add(1, Ordering::Relaxed);
        Arc::new(Context::new(self.ordinal, ContextKind::Created, flags))
    }

    pub(crate) fn has_created_contexts(&self) -> bool {
        // Relaxed: what was made in a context comes after it was made.
        self.created_contexts.load(Ordering::Relaxed) > 0
    }

    /// Ends a context that was created, with everything that was allocated in it.
    pub(crate) fn destroy_context(&self, context: &Context) {
        if !context.destroy() {
            return;
        }
        // The first error is as good as none: what is left is what was freed already.
        let _ = self.gpu.synchronize_device();
        for freed in context.take_owned() {
            let _ = freed.free(self);
        }
        // The last context of all leaves nothing behind, not even an error.
        let primary = self.primary.lock();
        // Release: all of the above comes before whoever sees the smaller number.
        let was_last = self.created_contexts.fetch_sub(1, Ordering::Release) == 1;
        if was_last && primary.context.is_none() {
            self.begin_anew();
        }
    }

    pub(crate) fn current_pool(&self) -> Answer<DriverPool> {
        // Relaxed: the number is all there is to it.
        match self.current_pool.load(Ordering::Relaxed) {
            0 => Ok(self.gpu.default_pool()?),
            pool => Ok(DriverPool(pool)),
        }
    }

    pub(crate) fn set_current_pool(&self, pool: Option<DriverPool>) {
        self.current_pool.store(pool.map_or(0, |pool| pool.0), Ordering::Relaxed);
    }
}
