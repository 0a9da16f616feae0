//! A stand-in for `libcudart.so.12`: NVIDIA's runtime API over the public driver API.
//!
//! It opens `libcuda.so.1` as any program would, finds every function of it by `cuGetProcAddress`, and knows nothing of what
//! is behind: the simulated GPU, a real one, or something in between that watches. NVIDIA's own runtime wants private tables
//! of the driver, which the stand-in driver does not have; this one takes its place for programs that link the runtime.
//!
//! What the modules are, from below:
//!
//! | module | what it is |
//! | --- | --- |
//! | `abi` | the structures of the runtime's and the driver's ABI that are read or written here |
//! | `code` | error codes, their names and texts |
//! | `program_memory_ffi` | reading and writing what a program points to |
//! | `driver_ffi` | the driver's functions, found once for each kind of default stream |
//! | `thread` | what each thread has: chosen device, last error, pushed launch configurations |
//! | `context_ffi` | what a call must have first: nothing, the driver, or a current context |
//! | `properties` | `cudaDeviceProp` out of the driver's attributes |
//! | `registry` | fat binaries, kernels and variables that compiled programs register |
//! | `ffi` | the entry points |

mod abi;
mod code;
mod context_ffi;
mod driver_ffi;
mod ffi;
mod program_memory_ffi;
mod properties;
mod registry;
mod thread;
