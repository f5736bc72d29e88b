//! Resource versions as numbers that a gauge can show (ST-10).

use prometheus::IntGauge;

use crate::object::ResourceVersion;

/// The number of decimal digits that are exact in Prometheus's 64-bit floating point numbers.
const DIGITS: usize = 15;

/// The last 15 characters of a version as a number, 0 for the empty version; `None` if they are not
/// a number (ST-10), or if this program made the version, perhaps as a hash.
pub(super) fn position(version: &ResourceVersion) -> Option<i64> {
    if version.is_local() {
        return None;
    }
    let text = version.as_str();
    if text.is_empty() {
        return Some(0);
    }
    let start = text.char_indices().rev().nth(DIGITS.saturating_sub(1));
    text.get(start.map_or(0, |(at, _)| at)..)?.parse().ok()
}

/// Moves the gauge to the largest version. It does not move if no version is a number.
pub(super) fn set_largest(gauge: &IntGauge, versions: impl Iterator<Item = ResourceVersion>) {
    if let Some(largest) = versions.filter_map(|version| position(&version)).max() {
        gauge.set(largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn st_10_a_version_is_its_last_fifteen_digits() {
        let rows = [
            ("", Some(0)),
            ("0", Some(0)),
            ("42", Some(42)),
            ("007", Some(7)),
            ("123456789012345", Some(123_456_789_012_345)),
            ("9123456789012345", Some(123_456_789_012_345)),
            ("99999999999999999999999", Some(999_999_999_999_999)),
            // Only the last characters count, whatever stands before them.
            ("odd-000000000000005", Some(5)),
            ("ö123456789012345", Some(123_456_789_012_345)),
            ("12x", None),
            ("ö", None),
            (" 5", None),
            // A hash of the content, which is no position of a server.
            ("local-pods-123456789012345", None),
        ];
        for (version, expected) in rows {
            assert_eq!(position(&version.into()), expected, "{version:?}");
        }
    }

    #[test]
    fn st_10_what_is_no_number_leaves_the_gauge() {
        let gauge = IntGauge::new("g", "g").unwrap();
        let show = |versions: &[&str]| {
            let versions: Vec<ResourceVersion> = versions.iter().map(|v| (*v).into()).collect();
            set_largest(&gauge, versions.into_iter());
            gauge.get()
        };
        assert_eq!(show(&["7", "odd", "12"]), 12);
        assert_eq!(show(&["odd"]), 12);
        assert_eq!(show(&[]), 12);
        // It is not a maximum over time: it follows a server that was put back.
        assert_eq!(show(&["3"]), 3);
        assert_eq!(show(&[""]), 0);
    }
}
