//! Numbers with units, as profiles write them.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `80GiB`, `512B`.
    Bytes,
    /// `16GB/s`, `16GiB/s`.
    BytesPerSecond,
    /// Microseconds in the file, nanoseconds in the model.
    Micros,
    /// A whole number.
    Count,
    /// 0 to 100.
    Percent,
}

/// The largest of anything that a figure may count: beyond it the model's arithmetic would not mean anything.
const MOST_COUNT: f64 = 1e6;
const MOST_MICROS: f64 = 1e9;
const RATES: std::ops::RangeInclusive<f64> = 1e6..=1e15;

/// The value of `text` in the model's units, or what it should have been.
pub(crate) fn parse(text: &str, unit: Unit) -> Result<f64, String> {
    let number = |text: &str| text.parse::<f64>().ok();
    let (value, expected) = match unit {
        Unit::Bytes => (bytes(text).filter(|size| *size > 0.0), "must be a size such as 80GiB"),
        Unit::BytesPerSecond => (
            text.strip_suffix("/s").and_then(bytes).filter(|rate| RATES.contains(rate)),
            "must be a rate such as 16GB/s, from 1MB/s to 1PB/s",
        ),
        Unit::Micros => (
            number(text).filter(|us| (0.0..=MOST_MICROS).contains(us)).map(|us| us * 1e3),
            "must be a number of microseconds, from 0 to 1000000000",
        ),
        Unit::Count => (
            number(text).filter(|count| (1.0..=MOST_COUNT).contains(count) && count.fract() == 0.0),
            "must be a whole number, from 1 to 1000000",
        ),
        Unit::Percent => (
            number(text).filter(|percent| (0.0..=100.0).contains(percent)),
            "must be a number from 0 to 100",
        ),
    };
    value.ok_or_else(|| expected.to_owned())
}

fn bytes(text: &str) -> Option<f64> {
    text.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_units_differ() {
        assert_eq!(parse("16GB/s", Unit::BytesPerSecond), Ok(16e9));
        assert_eq!(parse("16GiB/s", Unit::BytesPerSecond), Ok(16.0 * f64::from(1 << 30)));
        assert_eq!(parse("1.5", Unit::Micros), Ok(1500.0));
        assert!(parse("16GB", Unit::BytesPerSecond).is_err());
    }
}
