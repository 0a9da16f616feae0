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

/// The value of `text` in the model's units, or what it should have been.
pub(crate) fn parse(text: &str, unit: Unit) -> Result<f64, String> {
    let positive = |number: f64| (number.is_finite() && number > 0.0).then_some(number);
    match unit {
        Unit::Bytes => bytes(text).and_then(positive).ok_or("must be a size such as 80GiB".into()),
        Unit::BytesPerSecond => text
            .strip_suffix("/s")
            .and_then(bytes)
            .and_then(positive)
            .ok_or("must be a rate such as 16GB/s".into()),
        Unit::Micros => text
            .parse()
            .ok()
            .filter(|us: &f64| us.is_finite() && *us >= 0.0)
            .map(|us| us * 1e3)
            .ok_or("must be a number of microseconds, 0 or more".into()),
        Unit::Count => text
            .parse::<u32>()
            .ok()
            .map(f64::from)
            .and_then(positive)
            .ok_or("must be a whole number, 1 or more".into()),
        Unit::Percent => text
            .parse()
            .ok()
            .filter(|percent: &f64| (0.0..=100.0).contains(percent))
            .ok_or("must be a number from 0 to 100".into()),
    }
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
