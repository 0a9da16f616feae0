//! Real CUDA: [`Driver`](millpond::Driver) over NVIDIA's driver, which is loaded when a device is opened.
//!
//! Nothing of CUDA is needed to build this or to run a program that has it in. Any driver from CUDA 11.4 on will do; what a driver or
//! device does not have is not offered ([`DeviceInfo`](millpond::driver::DeviceInfo) says so).
//!
//! ```no_run
//! use std::sync::Arc;
//! use millpond::{Driver, Resource, Stream, pool::Pool};
//! use millpond_cuda::CudaGpu;
//!
//! let gpu: Arc<dyn Driver> = Arc::new(CudaGpu::open(0)?);
//! let pool = Pool::new(gpu)?;
//! let block = pool.allocate(64 << 20, Stream::PER_THREAD)?;
//! pool.deallocate(block, 64 << 20, Stream::PER_THREAD)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Streams
//! A [`CudaGpu`] takes the streams that it has made, the default streams, and those that it was lent
//! ([`lend_cudarc_stream`](CudaGpu::lend_cudarc_stream)); any other handle is an error, never a crash. A program whose streams come from
//! elsewhere, such as PyTorch's, opens the device with [`CudaGpu::open_for_foreign_streams`].
//!
//! # Addresses
//! As on any driver, work may be given any address. The device refuses those that are not mapped for it. Where the system lets devices reach
//! ordinary host memory by its address (Grace, or Linux with heterogeneous memory management), an address that was made up may be host
//! memory, and a kernel will write there: on such systems the addresses given to [`launch`](millpond::Driver::launch) are the caller's
//! responsibility.
//!
//! From the bottom up:
//! - `libcuda_ffi`: the driver's functions and handles, and nearly all unsafe code;
//! - `live`, `books`: which handles are alive, and what is held;
//! - `staging`: how bytes that may change at once get to the device later;
//! - `device`, `gpu`, `launch`, `driver`: what its users hold;
//! - `replay_ground`: the device as replays have it;
//! - `foreign_streams`: streams that are taken on somebody's word;
//! - `cudarc_interop`: memory of any resource as a slice of the `cudarc` crate.

mod books;
mod cudarc_interop;
mod device;
mod driver;
mod error;
mod foreign_streams;
mod gpu;
mod launch;
mod libcuda_ffi;
mod live;
mod replay_ground;
mod staging;

pub use cudarc_interop::{CudarcSlice, CudarcSliceError};
pub use device::CudaDevice;
pub use error::OpenError;
pub use gpu::{CudaGpu, LIBRARY_VARIABLE};
pub use replay_ground::CudaGround;
