//! Gives an object a version made of its text, for a server whose versions say nothing about that.

use std::hash::{BuildHasher as _, RandomState};

use super::members::members_of;
use super::scan::spells;
use super::wiped::Wiped;
use crate::object::ResourceVersion;

/// The text of an object with a version made of that text in place of its own. Two texts have the
/// same version if they are equal. `None` if it is not a JSON object.
pub(super) fn with_text_version(json: &[u8], texts: &RandomState) -> Option<Wiped> {
    let version = ResourceVersion::local("text", texts.hash_one(json));
    let version = format!("\"{version}\"");
    // More than enough for the version, so that the text never moves.
    let room = json.len().saturating_add(version.len()).saturating_add(64);
    let mut object = Vec::with_capacity(room);
    object.push(b'{');
    for member in members_of(json) {
        let (key, value) = member.ok()?;
        begin(&mut object, key);
        if !spells(key, "metadata") || !value.starts_with(b"{") {
            object.extend_from_slice(value);
            continue;
        }
        object.push(b'{');
        for member in members_of(value) {
            let (key, value) = member.ok()?;
            if !spells(key, "resourceVersion") {
                begin(&mut object, key);
                object.extend_from_slice(value);
            }
        }
        begin(&mut object, b"\"resourceVersion\"");
        object.extend_from_slice(version.as_bytes());
        object.push(b'}');
    }
    object.push(b'}');
    Some(Wiped::from(object))
}

/// Begins the next member.
fn begin(object: &mut Vec<u8>, key: &[u8]) {
    if !object.ends_with(b"{") {
        object.push(b',');
    }
    object.extend_from_slice(key);
    object.push(b':');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versioned(json: &str, texts: &RandomState) -> String {
        let text = with_text_version(json.as_bytes(), texts).unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn the_version_changes_with_the_text_and_the_rest_stays() {
        let texts = RandomState::new();
        let pod = r#"{"a":{}, "metadata" : {"resourceVersion":"7","name":"a"},"spec":{"b":[1]}}"#;
        let text = versioned(pod, &texts);
        let (before, after) = text.split_once("local-text-").unwrap();
        assert_eq!(
            before,
            r#"{"a":{},"metadata":{"name":"a","resourceVersion":""#
        );
        assert!(after.ends_with(r#""},"spec":{"b":[1]}}"#), "{after}");
        assert_eq!(
            versioned(pod, &texts),
            text,
            "the same text, the same version"
        );
        let other = versioned(&pod.replace("[1]", "[2]"), &texts);
        assert_ne!(other.replace("[2]", "[1]"), text);
    }

    #[test]
    fn metadata_without_members_gets_a_version_and_what_is_no_object_gets_none() {
        let texts = RandomState::new();
        assert!(versioned(r#"{"metadata":{}}"#, &texts).contains(r#"{"resourceVersion":"local-"#));
        assert_eq!(versioned(r#"{"metadata":7}"#, &texts), r#"{"metadata":7}"#);
        assert_eq!(versioned("{}", &texts), "{}");
        assert!(with_text_version(b"[1]", &texts).is_none());
        assert!(with_text_version(br#"{"metadata":{"a"}}"#, &texts).is_none());
    }
}
