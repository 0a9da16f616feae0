//! What each adaptor does beyond passing calls on.

mod limit;
mod on_failure;
mod prefetch;
mod rmm_log;
mod trace;
mod trace_at_the_end;
mod track;

use std::sync::Arc;

use millpond::Driver;
use millpond_sim::{Profile, SimGpu};

fn gpu() -> Arc<SimGpu> {
    Arc::new(SimGpu::new(Profile::named("p100-16g").expect("is built in")))
}

fn driver() -> Arc<dyn Driver> {
    gpu()
}
