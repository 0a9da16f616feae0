//! Stand-ins for `libcublas.so.12`, and with the feature `lt` for `libcublasLt.so.12`.
//!
//! **Nothing is computed.** A product of matrices becomes one kernel that takes time and touches the bytes of its matrices: it
//! reads the factors and writes the product, so memory that is not there is found out, and memory that is elsewhere is moved.
//! What is in the product afterwards is what was there before. That is enough to see what a program does with memory, which is
//! all that a simulated GPU can show.
//!
//! | module | what it is |
//! | --- | --- |
//! | `status` | what the functions answer |
//! | `matrix` | where a matrix lies, and how long a product takes |
//! | `driver_ffi` | the kernel, through the public driver API |
//! | `blas_ffi`, `lt_ffi` | the entry points |

#[cfg(not(feature = "lt"))]
mod blas_ffi;
mod driver_ffi;
#[cfg(feature = "lt")]
mod lt_ffi;
mod matrix;
mod status;
