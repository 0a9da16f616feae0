//! `libcublas.so.12`: handles and their settings, and products of matrices.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver_ffi::{Stream, launch};
use crate::matrix::{Matrix, duration, element_bytes};
use crate::status::{Status, run};

macro_rules! not_supported {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> std::ffi::c_int {
            Status::NOT_SUPPORTED.0
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/not_supported.rs"));

/// The version of the library whose place this takes.
const VERSION: c_int = 120_804;

#[derive(Clone, Copy)]
struct Handle {
    stream: usize,
    pointer_mode: c_int,
    math_mode: c_int,
    atomics_mode: c_int,
}

/// By number, so that a handle that was destroyed, or never was one, is found out.
static HANDLES: Mutex<(BTreeMap<usize, Handle>, usize)> = Mutex::new((BTreeMap::new(), 0));

fn handles() -> MutexGuard<'static, (BTreeMap<usize, Handle>, usize)> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stream_of(handle: usize) -> Result<Stream, Status> {
    let handle = handles().0.get(&handle).copied().ok_or(Status::NOT_INITIALIZED)?;
    Ok(handle.stream as Stream)
}

fn change(handle: usize, change: impl FnOnce(&mut Handle)) -> Result<(), Status> {
    handles().0.get_mut(&handle).map(change).ok_or(Status::NOT_INITIALIZED)
}

/// Answers with something of a handle.
///
/// # Safety
/// The pointer is null or can be written.
unsafe fn tell<Value>(
    handle: usize,
    out: *mut Value,
    value: impl FnOnce(&Handle) -> Value,
) -> Result<(), Status> {
    let value = handles().0.get(&handle).map(value).ok_or(Status::NOT_INITIALIZED)?;
    if out.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so it can be written.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// One factor or the product, as the functions are given them.
#[derive(Clone, Copy)]
struct Operand {
    address: u64,
    data_type: c_int,
    leading: c_int,
    stride: c_longlong,
}

/// The sizes of a product, and whether the factors are taken transposed.
#[derive(Clone, Copy)]
struct Shape {
    transposed: [c_int; 2],
    m: c_int,
    n: c_int,
    k: c_int,
    count: c_int,
}

fn multiply(handle: usize, shape: Shape, a: Operand, b: Operand, c: Operand) -> Result<(), Status> {
    let stream = stream_of(handle)?;
    let size = |value: c_int| u64::try_from(value).map_err(|_| Status::INVALID_VALUE);
    let (m, n, k, count) = (size(shape.m)?, size(shape.n)?, size(shape.k)?, size(shape.count)?);
    let matrix = |operand: Operand, rows, columns, transposed: c_int| -> Result<Matrix, Status> {
        let (rows, columns) = match transposed {
            0 => (rows, columns),
            1 | 2 => (columns, rows),
            _ => return Err(Status::INVALID_VALUE),
        };
        Ok(Matrix {
            address: operand.address,
            rows,
            columns,
            leading: size(operand.leading)?,
            element_bytes: element_bytes(operand.data_type)?,
            count,
            stride: u64::try_from(operand.stride).map_err(|_| Status::INVALID_VALUE)?,
        })
    };
    let [transposed_a, transposed_b] = shape.transposed;
    let touched = [
        matrix(a, m, k, transposed_a)?.touched(false)?,
        matrix(b, k, n, transposed_b)?.touched(false)?,
        matrix(c, m, n, 0)?.touched(true)?,
    ];
    if touched[2].is_none() {
        return Ok(());
    }
    launch(&touched, duration(m, n, k, count), stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasCreate_v2(out: *mut usize) -> c_int {
    run(|| {
        if out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let mut handles = handles();
        handles.1 += 1;
        // No address of anything, and no small number.
        let number = 0x6d62_0000_0000 + handles.1 * 16;
        handles
            .0
            .insert(number, Handle { stream: 0, pointer_mode: 0, math_mode: 0, atomics_mode: 0 });
        // SAFETY: not null, so it can be written.
        unsafe { out.write_unaligned(number) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    run(|| handles().0.remove(&handle).map(drop).ok_or(Status::NOT_INITIALIZED))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetVersion_v2(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |_| VERSION) })
}

/// Major, minor and patch of the version.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetProperty(part: c_int, out: *mut c_int) -> c_int {
    run(|| {
        let value = match part {
            0 => VERSION / 10_000,
            1 => VERSION / 100 % 100,
            2 => VERSION % 100,
            _ => return Err(Status::INVALID_VALUE),
        };
        if out.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so it can be written.
        unsafe { out.write_unaligned(value) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    run(|| change(handle, |handle| handle.stream = stream))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetStream_v2(handle: usize, out: *mut usize) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.stream) })
}

/// Nothing here needs room.
#[unsafe(no_mangle)]
extern "C" fn cublasSetWorkspace_v2(
    handle: usize,
    _workspace: *mut c_void,
    _bytes: usize,
) -> c_int {
    run(|| change(handle, |_| {}))
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetMathMode(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.math_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetMathMode(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.math_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetPointerMode_v2(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.pointer_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetPointerMode_v2(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.pointer_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasSetAtomicsMode(handle: usize, mode: c_int) -> c_int {
    run(|| change(handle, |handle| handle.atomics_mode = mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasGetAtomicsMode(handle: usize, out: *mut c_int) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { tell(handle, out, |handle| handle.atomics_mode) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUBLAS_STATUS_SUCCESS",
        1 => c"CUBLAS_STATUS_NOT_INITIALIZED",
        3 => c"CUBLAS_STATUS_ALLOC_FAILED",
        7 => c"CUBLAS_STATUS_INVALID_VALUE",
        8 => c"CUBLAS_STATUS_ARCH_MISMATCH",
        11 => c"CUBLAS_STATUS_MAPPING_ERROR",
        13 => c"CUBLAS_STATUS_EXECUTION_FAILED",
        14 => c"CUBLAS_STATUS_INTERNAL_ERROR",
        15 => c"CUBLAS_STATUS_NOT_SUPPORTED",
        16 => c"CUBLAS_STATUS_LICENSE_ERROR",
        _ => c"CUBLAS_STATUS_UNKNOWN",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    cublasGetStatusName(status)
}

/// `cublasXgemm` and its strided form, for an element type. Scalars are not looked at, so their type does not matter.
macro_rules! products {
    ($(fn $plain:ident fn $batched:ident : $data_type:literal)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        extern "C" fn $plain(
            handle: usize, transposed_a: c_int, transposed_b: c_int, m: c_int, n: c_int, k: c_int, _alpha: *const c_void,
            a: u64, leading_a: c_int, b: u64, leading_b: c_int, _beta: *const c_void, c: u64, leading_c: c_int,
        ) -> c_int {
            let shape = Shape { transposed: [transposed_a, transposed_b], m, n, k, count: 1 };
            let operand = |address, leading| Operand { address, data_type: $data_type, leading, stride: 0 };
            run(|| multiply(handle, shape, operand(a, leading_a), operand(b, leading_b), operand(c, leading_c)))
        }

        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        extern "C" fn $batched(
            handle: usize, transposed_a: c_int, transposed_b: c_int, m: c_int, n: c_int, k: c_int, _alpha: *const c_void,
            a: u64, leading_a: c_int, stride_a: c_longlong, b: u64, leading_b: c_int, stride_b: c_longlong,
            _beta: *const c_void, c: u64, leading_c: c_int, stride_c: c_longlong, count: c_int,
        ) -> c_int {
            let shape = Shape { transposed: [transposed_a, transposed_b], m, n, k, count };
            let operand = |address, leading, stride| Operand { address, data_type: $data_type, leading, stride };
            let (a, b) = (operand(a, leading_a, stride_a), operand(b, leading_b, stride_b));
            run(|| multiply(handle, shape, a, b, operand(c, leading_c, stride_c)))
        }
    )*};
}

products! {
    fn cublasSgemm_v2 fn cublasSgemmStridedBatched : 0
    fn cublasDgemm_v2 fn cublasDgemmStridedBatched : 1
    fn cublasCgemm_v2 fn cublasCgemmStridedBatched : 4
    fn cublasZgemm_v2 fn cublasZgemmStridedBatched : 5
}

/// `count` elements, so many apart: as a matrix of one row. A vector that runs backwards begins at its end.
fn vector(address: u64, data_type: c_int, count: c_int, step: c_int) -> Result<Matrix, Status> {
    let columns = u64::try_from(count).map_err(|_| Status::INVALID_VALUE)?;
    let leading = u64::from(step.unsigned_abs()).max(1);
    let element_bytes = element_bytes(data_type)?;
    Ok(Matrix { address, rows: 1, columns, leading, element_bytes, count: 1, stride: 0 })
}

/// `cublasXgemv` and `cublasXdot`, for an element type.
macro_rules! vectors {
    ($(fn $times:ident fn $dot:ident : $data_type:literal)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        extern "C" fn $times(
            handle: usize, transposed: c_int, m: c_int, n: c_int, _alpha: *const c_void, a: u64, leading: c_int, x: u64,
            step_x: c_int, _beta: *const c_void, y: u64, step_y: c_int,
        ) -> c_int {
            run(|| {
                let stream = stream_of(handle)?;
                let size = |value: c_int| u64::try_from(value).map_err(|_| Status::INVALID_VALUE);
                let (rows, columns) = (size(m)?, size(n)?);
                let (from, to) = if transposed == 0 { (n, m) } else { (m, n) };
                let matrix = Matrix {
                    address: a, rows, columns, leading: size(leading)?, element_bytes: element_bytes($data_type)?,
                    count: 1, stride: 0,
                };
                let touched = [
                    matrix.touched(false)?,
                    vector(x, $data_type, from, step_x)?.touched(false)?,
                    vector(y, $data_type, to, step_y)?.touched(true)?,
                ];
                launch(&touched, duration(rows, columns, 1, 1), stream)
            })
        }

        /// The sum itself is not there: it is neither computed nor written.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $dot(
            handle: usize, count: c_int, x: u64, step_x: c_int, y: u64, step_y: c_int, _result: *mut c_void,
        ) -> c_int {
            run(|| {
                let stream = stream_of(handle)?;
                let touched = [
                    vector(x, $data_type, count, step_x)?.touched(false)?,
                    vector(y, $data_type, count, step_y)?.touched(false)?,
                ];
                launch(&touched, duration(1, 1, u64::try_from(count).unwrap_or(0), 1), stream)
            })
        }
    )*};
}

vectors! {
    fn cublasSgemv_v2 fn cublasSdot_v2 : 0
    fn cublasDgemv_v2 fn cublasDdot_v2 : 1
    fn cublasCgemv_v2 fn cublasCdotu_v2 : 4
    fn cublasZgemv_v2 fn cublasZdotu_v2 : 5
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments)]
extern "C" fn cublasSgemmEx(
    handle: usize,
    transposed_a: c_int,
    transposed_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    a: u64,
    type_a: c_int,
    leading_a: c_int,
    b: u64,
    type_b: c_int,
    leading_b: c_int,
    _beta: *const c_void,
    c: u64,
    type_c: c_int,
    leading_c: c_int,
) -> c_int {
    let shape = Shape { transposed: [transposed_a, transposed_b], m, n, k, count: 1 };
    let operand = |address, data_type, leading| Operand { address, data_type, leading, stride: 0 };
    let (a, b) = (operand(a, type_a, leading_a), operand(b, type_b, leading_b));
    run(|| multiply(handle, shape, a, b, operand(c, type_c, leading_c)))
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments)]
extern "C" fn cublasGemmEx(
    handle: usize,
    transposed_a: c_int,
    transposed_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    type_a: c_int,
    leading_a: c_int,
    b: u64,
    type_b: c_int,
    leading_b: c_int,
    beta: *const c_void,
    c: u64,
    type_c: c_int,
    leading_c: c_int,
    _compute_type: c_int,
    _algorithm: c_int,
) -> c_int {
    cublasSgemmEx(
        handle,
        transposed_a,
        transposed_b,
        m,
        n,
        k,
        alpha,
        a,
        type_a,
        leading_a,
        b,
        type_b,
        leading_b,
        beta,
        c,
        type_c,
        leading_c,
    )
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, clippy::too_many_arguments)]
extern "C" fn cublasGemmStridedBatchedEx(
    handle: usize,
    transposed_a: c_int,
    transposed_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    a: u64,
    type_a: c_int,
    leading_a: c_int,
    stride_a: c_longlong,
    b: u64,
    type_b: c_int,
    leading_b: c_int,
    stride_b: c_longlong,
    _beta: *const c_void,
    c: u64,
    type_c: c_int,
    leading_c: c_int,
    stride_c: c_longlong,
    count: c_int,
    _compute_type: c_int,
    _algorithm: c_int,
) -> c_int {
    let shape = Shape { transposed: [transposed_a, transposed_b], m, n, k, count };
    let operand =
        |address, data_type, leading, stride| Operand { address, data_type, leading, stride };
    let (a, b) = (operand(a, type_a, leading_a, stride_a), operand(b, type_b, leading_b, stride_b));
    run(|| multiply(handle, shape, a, b, operand(c, type_c, leading_c, stride_c)))
}
