//! Durations as people write them.

use std::time::Duration;

const UNITS: [(&str, f64); 5] =
    [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// The longest that can be said: a year.
const MOST_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// `500ms`, `30s`, `5m`, `1.5h`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("'{text}' is no duration: use a number and a unit, such as 500ms, 30s or 5m");
    let (number, seconds) = UNITS
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * seconds;
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        return Err(format!("'{text}' is not between nothing and a year"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_told_apart() {
        let said =
            ["500ms", "30s", "5m", "1.5h", "7 us"].map(|text| parse(text).unwrap().as_micros());
        assert_eq!(said, [500_000, 30_000_000, 300_000_000, 5_400_000_000, 7]);
        for wrong in ["30", "s", "-1s", "nans", "infs", "1e300h", "", "5 minutes"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
