//! Durations in Go's notation, such as `3m0.001s`, for which users of the kubelet search in health
//! messages.

use std::time::Duration;

const MICRO: u32 = 1_000;
const MILLI: u32 = 1_000_000;
const SECOND: u32 = 1_000_000_000;

/// Formats a duration like Go: hours and minutes as needed, a fraction without trailing zeros,
/// small ones in `ms`, `µs` or `ns`.
pub(super) fn go_duration(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 {
        return match nanos {
            0 => "0s".to_owned(),
            1..MICRO => format!("{nanos}ns"),
            MICRO..MILLI => with_fraction((nanos / MICRO).into(), nanos % MICRO, 3, "µs"),
            MILLI.. => with_fraction((nanos / MILLI).into(), nanos % MILLI, 6, "ms"),
        };
    }
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let rest = with_fraction(seconds % 60, nanos % SECOND, 9, "s");
    match (hours, minutes) {
        (0, 0) => rest,
        (0, _) => format!("{minutes}m{rest}"),
        _ => format!("{hours}h{}m{rest}", minutes % 60),
    }
}

/// Formats a whole number, its fraction of `digits` digits without trailing zeros, and the unit.
fn with_fraction(whole: u64, fraction: u32, digits: usize, unit: &str) -> String {
    let fraction = format!("{fraction:0digits$}");
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{whole}{point}{fraction}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        let rows: [(u64, &str); 16] = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (200_000_000, "200ms"),
            (999_999_999, "999.999999ms"),
            (1_000_000_000, "1s"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (180_000_000_000, "3m0s"),
            (180_001_000_000, "3m0.001s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (480_000_000_001, "8m0.000000001s"),
        ];
        for (nanos, text) in rows {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
        let longest = go_duration(Duration::MAX);
        assert!(longest.ends_with("15.999999999s"), "{longest}");
    }
}
