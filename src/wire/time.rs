//! Times beyond the range of `jiff`, which ends two hours before the year 9999 does. Many programs
//! write that year for "never".

use k8s_openapi::jiff::Timestamp;

/// The last time in the range.
const LAST: &str = "9999-12-30T22:00:00.999999999Z";

/// Returns the last time in the range if `text` is a later RFC 3339 time.
pub(super) fn beyond(text: &str) -> Option<&'static str> {
    if !text.starts_with("9999-12-") || text.parse::<Timestamp>().is_ok() {
        return None;
    }
    // It is a time if the same text with the year before is one.
    let a_year_before = text.replacen("9999", "9998", 1);
    a_year_before.parse::<Timestamp>().is_ok().then_some(LAST)
}

/// Reads an RFC 3339 time. A time beyond the range becomes the last one in it.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    beyond(text).unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_calendar_is_a_time_and_what_is_none_stays_none() {
        for late in [
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59.999999Z",
            "9999-12-31T23:59:59+00:00",
            "9999-12-30T22:00:01Z",
            "9999-12-30T23:59:59-23:00",
        ] {
            assert_eq!(time(late), Some(Timestamp::MAX), "{late}");
        }
        for held in [
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "2026-01-01T00:00:00+14:00",
            "9999-12-30T22:00:00Z",
            "9999-12-31T10:00:00+23:59",
        ] {
            assert_eq!(beyond(held), None, "{held}");
            assert_eq!(time(held), held.parse().ok(), "{held}");
            assert!(time(held).is_some(), "{held}");
        }
        for none in [
            "",
            "9999-12-31",
            "9999-12-31T23:59:59",
            "9999-12-32T00:00:00Z",
            "9999-12-31T25:00:00Z",
            "10000-01-01T00:00:00Z",
            "never",
        ] {
            assert_eq!(time(none), None, "{none}");
        }
    }
}
