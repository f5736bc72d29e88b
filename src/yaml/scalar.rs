//! The value of a YAML scalar: the types of YAML 1.1, as Go's parser reads them.

use serde_json::Number;

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScalarValue {
    Null,
    Bool(bool),
    /// `None` is infinite, or not a number (`.nan`).
    Number(Option<Number>),
    Text,
}

impl ScalarValue {
    /// The value of a scalar with this text, if it has no quotes.
    pub(crate) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Self::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
            | "-.inf" | "-.Inf" | "-.INF" => Self::Number(None),
            _ => number(text).map_or(Self::Text, |number| Self::Number(Some(number))),
        }
    }
}

fn number(text: &str) -> Option<Number> {
    let first = text.bytes().next()?;
    if first == b'.' {
        return float(text);
    }
    if !matches!(first, b'+' | b'-' | b'0'..=b'9') {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

/// A whole number. Go takes a leading zero for octal.
fn integer(text: &str) -> Option<Number> {
    let is_negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (digits.get(2..)?, 16),
        [b'0', b'o' | b'O', ..] => (digits.get(2..)?, 8),
        [b'0', b'b' | b'B', ..] => (digits.get(2..)?, 2),
        [b'0', _, ..] => (digits.get(1..)?, 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['-', '+']) {
        return None;
    }
    let amount = u64::from_str_radix(digits, radix).ok()?;
    if is_negative {
        0_i64.checked_sub_unsigned(amount).map(Number::from)
    } else {
        Some(Number::from(amount))
    }
}

fn float(text: &str) -> Option<Number> {
    let fits = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if !text.bytes().all(fits) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_without_quotes_have_the_types_of_yaml() {
        let rows = [
            ("null", "null"),
            ("~", "null"),
            ("yes", "true"),
            ("y", "true"),
            ("Off", "false"),
            ("yEs", "text"),
            ("42", "42"),
            ("-7", "-7"),
            ("+7", "7"),
            ("0123", "83"),
            ("08", "8.0"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("-0b11", "-3"),
            ("1_000", "1000"),
            ("18446744073709551615", "18446744073709551615"),
            ("12345678901234567890123", "1.2345678901234568e+22"),
            ("1.5", "1.5"),
            (".5", "0.5"),
            ("1.", "1.0"),
            ("1e3", "1000.0"),
            (".inf", "not finite"),
            (".NaN", "not finite"),
            ("1e999", "text"),
            ("1e", "text"),
            ("0x", "text"),
            ("_1", "text"),
            (".", "text"),
            ("1.2.3", "text"),
            ("inf", "text"),
            ("1:30", "text"),
            ("2001-01-01", "text"),
            ("06e3fbd18de8", "text"),
            ("audience", "text"),
        ];
        for (text, expected) in rows {
            let shown = match ScalarValue::plain(text) {
                ScalarValue::Null => "null".to_owned(),
                ScalarValue::Bool(value) => value.to_string(),
                ScalarValue::Number(Some(number)) => number.to_string(),
                ScalarValue::Number(None) => "not finite".to_owned(),
                ScalarValue::Text => "text".to_owned(),
            };
            assert_eq!(shown, expected, "{text}");
        }
    }
}
