//! Values as people write them: in settings, in stacks, and as arguments.

use bytesize::ByteSize;

/// A number of bytes: `1048576`, `1MiB`, `1.5GB`. `None`: it is no size, or more than can be counted.
///
/// ```
/// use millpond::written::size;
///
/// assert_eq!(size("4GiB"), Some(4 << 30));
/// assert_eq!(size("1000"), Some(1000));
/// assert_eq!(size("99999999999999999999GiB"), None);
/// ```
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    // What is too large for it is the largest that there is.
    let with_unit = || text.parse::<ByteSize>().ok().map(|size| size.as_u64());
    text.parse().ok().or_else(|| with_unit().filter(|bytes| *bytes < u64::MAX))
}

/// Yes or no, in the ways of PyTorch's settings and of ours: `True`, `true` and `1`, or `False`, `false` and `0`.
pub fn switch(text: &str) -> Option<bool> {
    match text {
        "True" | "true" | "1" => Some(true),
        "False" | "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_bytes_that_can_be_counted() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            (" 1MiB ", 1 << 20),
            ("1.5KiB", 1536),
            ("2 GB", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "-1", "much", "4XiB", "99999999999999999999", "17179869184GiB", "1e30EiB"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
