//! Where a matrix lies, and how long a product of two takes.

use std::time::Duration;

use crate::status::Status;

/// Assumed for every device: a hundred million million operations a second, about what a large GPU does with short floats.
const OPERATIONS_PER_NANOSECOND: u128 = 100_000;

/// Matrices by columns, as these libraries have them: `count` of them, `stride` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Elements from one column to the next.
    pub(crate) leading: u64,
    pub(crate) element_bytes: u64,
    pub(crate) count: u64,
    pub(crate) stride: u64,
}

/// Bytes that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) written: bool,
}

impl Matrix {
    /// From the first byte of the first to the last of the last; nothing if there are no elements.
    pub(crate) fn touched(&self, written: bool) -> Result<Option<Touched>, Status> {
        if self.rows == 0 || self.columns == 0 || self.count == 0 {
            return Ok(None);
        }
        if self.leading < self.rows || self.address == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let bytes = || {
            let one = self.leading.checked_mul(self.columns - 1)?.checked_add(self.rows)?;
            let all = self.stride.checked_mul(self.count - 1)?.checked_add(one)?;
            all.checked_mul(self.element_bytes)
        };
        let bytes = bytes().ok_or(Status::INVALID_VALUE)?;
        Ok(Some(Touched { address: self.address, bytes, written }))
    }
}

/// How long a product of `count` pairs of an `m × k` and a `k × n` matrix takes.
pub(crate) fn duration(m: u64, n: u64, k: u64, count: u64) -> Duration {
    let operations = [m, n, k, count]
        .iter()
        .try_fold(2u128, |product, &factor| product.checked_mul(factor.into()));
    let nanoseconds = operations.unwrap_or(u128::MAX) / OPERATIONS_PER_NANOSECOND;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Bytes of an element of a `cudaDataType`; types of less than a byte have no whole number of them.
pub(crate) fn element_bytes(data_type: i32) -> Result<u64, Status> {
    Ok(match data_type {
        // Signed and unsigned bytes, and floats of eight bits.
        3 | 8 | 28 | 29 | 30 => 1,
        // Halves and short integers; pairs of bytes.
        2 | 14 | 20 | 22 | 7 | 9 => 2,
        // Floats and integers; pairs of halves and of short integers.
        0 | 10 | 12 | 6 | 15 | 21 | 23 => 4,
        // Doubles and long integers; pairs of floats and of integers.
        1 | 24 | 26 | 4 | 11 | 13 => 8,
        5 | 25 | 27 => 16,
        _ => return Err(Status::NOT_SUPPORTED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: Matrix = Matrix {
        address: 4096,
        rows: 3,
        columns: 5,
        leading: 8,
        element_bytes: 4,
        count: 1,
        stride: 0,
    };

    #[test]
    fn a_matrix_ends_with_its_last_column() {
        let bytes = |matrix: Matrix| {
            matrix.touched(false).map(|touched| touched.map(|touched| touched.bytes))
        };
        assert_eq!(bytes(MATRIX), Ok(Some((8 * 4 + 3) * 4)));
        assert_eq!(bytes(Matrix { count: 3, stride: 100, ..MATRIX }), Ok(Some((200 + 35) * 4)));
        assert_eq!(
            bytes(Matrix { count: 3, stride: 0, ..MATRIX }),
            Ok(Some(35 * 4)),
            "one for all"
        );
        assert_eq!(bytes(Matrix { columns: 0, address: 0, ..MATRIX }), Ok(None));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            Matrix { leading: 2, ..MATRIX },
            Matrix { address: 0, ..MATRIX },
            Matrix { columns: u64::MAX, ..MATRIX },
            Matrix { count: u64::MAX, stride: u64::MAX, ..MATRIX },
        ] {
            assert_eq!(wrong.touched(true), Err(Status::INVALID_VALUE));
        }
        assert_eq!(element_bytes(16), Err(Status::NOT_SUPPORTED));
        assert_eq!(element_bytes(14), Ok(2));
    }

    #[test]
    fn time_grows_with_the_work() {
        assert_eq!(duration(1000, 1000, 1000, 1), Duration::from_nanos(20_000));
        assert_eq!(duration(0, 9, 9, 9), Duration::ZERO);
        assert_eq!(
            duration(u64::MAX, u64::MAX, u64::MAX, u64::MAX),
            Duration::from_nanos(u64::MAX)
        );
    }
}
