//! Makes a server's text safe to show: it moves no cursor, forges no line and reverses no text.

use std::borrow::Cow;

/// Escapes characters that could change how a terminal or log shows the text: control characters,
/// newlines, and marks of direction.
///
/// Everything else, including quotes and backslashes, stays as it is. Borrows a text without such
/// characters.
///
/// # Examples
///
/// ```
/// use kubecache::object::visible;
///
/// assert_eq!(visible("no \u{1b}[2J entry\n"), "no \\u{1b}[2J entry\\n");
/// assert_eq!(visible("plain \"text\", ünïcode"), "plain \"text\", ünïcode");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// The same for a text whose line breaks are its own.
pub(super) fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |char| char != '\n' && is_obeyed(char))
}

fn escaped(text: &str, is_hidden: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len().saturating_add(16));
    for char in text.chars() {
        if is_hidden(char) {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal obeys it: control characters, and those without width, such as direction
/// marks, joiners, and line and paragraph separators.
fn is_obeyed(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_obeyed_is_escaped_and_all_else_stays() {
        let rows = [
            ("", ""),
            ("it's \"fine\" \\ ü 漢", "it's \"fine\" \\ ü 漢"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{1b}]0;x\u{7}", "\\u{1b}]0;x\\u{7}"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            (
                "a\u{202e}b\u{2066}c\u{2028}",
                "a\\u{202e}b\\u{2066}c\\u{2028}",
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(visible(text), expected);
            assert_eq!(visible(expected), expected, "twice is once");
        }
        assert!(matches!(visible("plain"), Cow::Borrowed("plain")));
    }
}
