//! `libcublasLt.so.12`: descriptions of matrices and of products, and the product. Whose handle it is does not matter here.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
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
const VERSION: usize = 120_804;

// CUBLASLT_MATRIX_LAYOUT_…
const LAYOUT_TYPE: c_int = 0;
const LAYOUT_ORDER: c_int = 1;
const LAYOUT_ROWS: c_int = 2;
const LAYOUT_COLUMNS: c_int = 3;
const LAYOUT_LEADING: c_int = 4;
const LAYOUT_COUNT: c_int = 5;
const LAYOUT_STRIDE: c_int = 6;
const ORDER_BY_ROWS: i64 = 1;

// CUBLASLT_MATMUL_DESC_…
const TRANSPOSED_A: c_int = 3;

/// What a program described. Numbers are kept as they were given.
#[derive(Clone, Copy, Debug)]
enum Description {
    Layout(Layout),
    Product { transposed_a: bool },
    Preference,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    data_type: c_int,
    by_rows: bool,
    rows: u64,
    columns: u64,
    leading: i64,
    count: c_int,
    stride: i64,
}

impl Layout {
    fn matrix(&self, address: u64) -> Result<Matrix, Status> {
        let (rows, columns) =
            if self.by_rows { (self.columns, self.rows) } else { (self.rows, self.columns) };
        Ok(Matrix {
            address,
            rows,
            columns,
            leading: u64::try_from(self.leading).map_err(|_| Status::INVALID_VALUE)?,
            element_bytes: element_bytes(self.data_type)?,
            count: u64::try_from(self.count).map_err(|_| Status::INVALID_VALUE)?,
            stride: u64::try_from(self.stride).map_err(|_| Status::INVALID_VALUE)?,
        })
    }
}

/// By number, so that what was destroyed, or never was one, is found out.
static DESCRIPTIONS: Mutex<(BTreeMap<usize, Description>, usize)> =
    Mutex::new((BTreeMap::new(), 0));

fn descriptions() -> MutexGuard<'static, (BTreeMap<usize, Description>, usize)> {
    DESCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// The pointer is null or can be written.
unsafe fn create(out: *mut usize, description: Description) -> Result<(), Status> {
    if out.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let mut descriptions = descriptions();
    descriptions.1 += 1;
    let number = 0x6d6c_0000_0000 + descriptions.1 * 16;
    descriptions.0.insert(number, description);
    // SAFETY: not null, so it can be written.
    unsafe { out.write_unaligned(number) };
    Ok(())
}

fn destroy(number: usize) -> Result<(), Status> {
    descriptions().0.remove(&number).map(drop).ok_or(Status::INVALID_VALUE)
}

fn layout(number: usize) -> Result<Layout, Status> {
    match descriptions().0.get(&number) {
        Some(Description::Layout(layout)) => Ok(*layout),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// An attribute's value, of four or eight bytes.
///
/// # Safety
/// The pointer is null or has that many bytes.
unsafe fn value(buffer: *const c_void, bytes: usize) -> Result<i64, Status> {
    if buffer.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, so it has the bytes that the caller says.
    unsafe {
        match bytes {
            4 => Ok(buffer.cast::<i32>().read_unaligned().into()),
            8 => Ok(buffer.cast::<i64>().read_unaligned()),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(out: *mut usize) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { create(out, Description::Preference) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: usize) -> c_int {
    run(|| destroy(handle))
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    out: *mut usize,
    data_type: c_int,
    rows: u64,
    columns: u64,
    leading: i64,
) -> c_int {
    let layout = Layout { data_type, by_rows: false, rows, columns, leading, count: 1, stride: 0 };
    // SAFETY: the caller's pointer.
    run(|| unsafe { create(out, Description::Layout(layout)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    number: usize,
    attribute: c_int,
    buffer: *const c_void,
    bytes: usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller's pointer.
        let value = unsafe { value(buffer, bytes) }?;
        let mut descriptions = descriptions();
        let Some(Description::Layout(layout)) = descriptions.0.get_mut(&number) else {
            return Err(Status::INVALID_VALUE);
        };
        match attribute {
            LAYOUT_TYPE => layout.data_type = value as c_int,
            LAYOUT_ORDER => layout.by_rows = value == ORDER_BY_ROWS,
            LAYOUT_ROWS => layout.rows = value as u64,
            LAYOUT_COLUMNS => layout.columns = value as u64,
            LAYOUT_LEADING => layout.leading = value,
            LAYOUT_COUNT => layout.count = value as c_int,
            LAYOUT_STRIDE => layout.stride = value,
            _ => return Err(Status::NOT_SUPPORTED),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(number: usize) -> c_int {
    run(|| destroy(number))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(
    out: *mut usize,
    _compute_type: c_int,
    _scale_type: c_int,
) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { create(out, Description::Product { transposed_a: false }) })
}

/// Only what changes how much work it is matters: what else is done to the product on its way is not done here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    number: usize,
    attribute: c_int,
    buffer: *const c_void,
    bytes: usize,
) -> c_int {
    run(|| {
        let mut descriptions = descriptions();
        let Some(Description::Product { transposed_a }) = descriptions.0.get_mut(&number) else {
            return Err(Status::INVALID_VALUE);
        };
        if attribute == TRANSPOSED_A {
            // SAFETY: the caller's pointer.
            *transposed_a = unsafe { value(buffer, bytes) }? != 0;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(number: usize) -> c_int {
    run(|| destroy(number))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(out: *mut usize) -> c_int {
    // SAFETY: the caller's pointer.
    run(|| unsafe { create(out, Description::Preference) })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    number: usize,
    _attribute: c_int,
    _buffer: *const c_void,
    _bytes: usize,
) -> c_int {
    run(|| match descriptions().0.get(&number) {
        Some(Description::Preference) => Ok(()),
        _ => Err(Status::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(number: usize) -> c_int {
    run(|| destroy(number))
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// There is one way to compute nothing.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    _product: usize,
    _a: usize,
    _b: usize,
    _c: usize,
    _d: usize,
    _preference: usize,
    wanted: c_int,
    results: *mut Heuristic,
    found: *mut c_int,
) -> c_int {
    run(|| {
        if results.is_null() || found.is_null() || wanted < 1 {
            return Err(Status::INVALID_VALUE);
        }
        let result = Heuristic {
            algorithm: [1, 0, 0, 0, 0, 0, 0, 0],
            workspace_bytes: 0,
            status: 0,
            waves: 1.0,
            reserved: [0; 4],
        };
        // SAFETY: neither is null, and there is room for at least one result.
        unsafe {
            results.write_unaligned(result);
            found.write_unaligned(1);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "C" fn cublasLtMatmul(
    _handle: usize,
    product: usize,
    _alpha: *const c_void,
    a: u64,
    layout_a: usize,
    b: u64,
    layout_b: usize,
    _beta: *const c_void,
    _c: u64,
    _layout_c: usize,
    d: u64,
    layout_d: usize,
    _algorithm: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: Stream,
) -> c_int {
    run(|| {
        let Some(Description::Product { transposed_a }) = descriptions().0.get(&product).copied()
        else {
            return Err(Status::INVALID_VALUE);
        };
        let (of_a, of_d) = (layout(layout_a)?, layout(layout_d)?);
        // The addend is not touched: with a factor of 0, which may lie on the device, its memory need not be there.
        let touched = [
            of_a.matrix(a)?.touched(false)?,
            layout(layout_b)?.matrix(b)?.touched(false)?,
            of_d.matrix(d)?.touched(true)?,
        ];
        let inner = if transposed_a { of_a.rows } else { of_a.columns };
        let time = duration(of_d.rows, of_d.columns, inner, u64::try_from(of_d.count).unwrap_or(0));
        launch(&touched, time, stream)
    })
}
