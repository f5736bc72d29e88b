//! Durations as Kubernetes programs write them: Go's syntax for input, kubectl's ages for output.

use std::time::Duration;

/// The units of Go's `time.ParseDuration`, in nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Reads `10s`, `1m30s`, `1.5h`, `0`, or, as kubectl does, a whole number of seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write it as 10s, 1m30s or 0");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut nanos = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .ok_or_else(wrong)?;
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        let number: f64 = number.parse().map_err(|_not_a_number| wrong())?;
        let end = tail
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end).ok_or_else(wrong)?;
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        nanos += number * scale;
        rest = tail;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(nanos / 1e9).map_err(|_too_long| wrong())
}

/// An age in kubectl's short form: two units at most, the second only where it tells something.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let years = days / 365;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let rows = [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("1h0m0.5s", 3_600_500),
            ("1500us", 1),
            ("30", 30_000),
        ];
        for (text, millis) in rows {
            let read = parse(text).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(read.as_millis(), millis, "{text}");
        }
        for text in [
            "",
            "s",
            "10",
            "-1s",
            "1 s",
            "1d",
            "10x",
            "1.2.3s",
            "ms5",
            "1e30h",
            "9999999999999999h",
        ] {
            let number = text.parse::<u32>().is_ok();
            assert_eq!(parse(text).is_ok(), number, "{text}");
        }
    }

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let rows = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (3 * 3_600 + 20 * 60, "3h20m"),
            (8 * 3_600, "8h"),
            (47 * 3_600 + 3_599, "47h"),
            (5 * 86_400 + 3 * 3_600, "5d3h"),
            (2 * 86_400, "2d"),
            (8 * 86_400 + 3_600, "8d"),
            (800 * 86_400, "2y70d"),
            (8 * 365 * 86_400, "8y"),
        ];
        for (seconds, text) in rows {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
