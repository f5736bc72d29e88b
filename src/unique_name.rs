//! Names of unfinished files: no earlier file had the name, and a later process can tell it from
//! others.

use std::hash::{BuildHasher as _, RandomState};

/// The number of digits after the beginning of such a name.
const DIGITS: usize = 16;

/// Makes a name with this beginning.
pub(crate) fn unique_name(begin: &str) -> String {
    let number = RandomState::new().hash_one(begin);
    format!("{begin}{number:0DIGITS$x}")
}

/// Whether [`unique_name`] makes such names from that beginning.
pub(crate) fn is_unique_name(name: &[u8], begin: &[u8]) -> bool {
    let number = name.strip_prefix(begin).unwrap_or_default();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    number.len() == DIGITS && number.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_and_is_no_name_of_others() {
        let name = unique_name(".new");
        assert_ne!(name, unique_name(".new"));
        assert!(is_unique_name(name.as_bytes(), b".new"), "{name}");
        for other in ["", ".new", ".newest", ".new0123", ".new-0123456789abcde"] {
            assert!(!is_unique_name(other.as_bytes(), b".new"), "{other}");
        }
        assert!(!is_unique_name(name.as_bytes(), b".ne"));
    }
}
