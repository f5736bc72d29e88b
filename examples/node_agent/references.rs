//! References that the command line gives: objects that are kept without a pod that names them.

use std::collections::BTreeSet;
use std::path::Path;

use kubecache::local_file::read_text;
use kubecache::object::ObjectKey;

use crate::managers::ObjectId;

/// References of more objects than a node has.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The kinds, as flags and files name them.
const KINDS: [(&str, &str); 2] = [("secret", "Secret"), ("configmap", "ConfigMap")];

/// Reads `NAMESPACE/NAME` after the flag of a kind.
pub(crate) fn of_flag(flag: &str, value: &str) -> Result<ObjectId, String> {
    reference(flag, value).ok_or_else(|| format!("--{flag} {value:?}: write NAMESPACE/NAME"))
}

/// Reads a file of references: a kind and `NAMESPACE/NAME` per line.
pub(crate) fn of_file(file: &Path) -> Result<BTreeSet<ObjectId>, String> {
    let told = |what: &str| format!("--references {}: {what}", file.display());
    let text = read_text(file, FILE_BYTES_MAX);
    let text = text.map_err(|error| format!("--references {error}"))?;
    let lines = text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let line = line.trim();
        (!line.is_empty()).then(|| {
            let words = line.split_once(char::is_whitespace);
            let found = words.and_then(|(kind, name)| reference(kind, name.trim()));
            let number = at.saturating_add(1);
            let wrong = "write secret NAMESPACE/NAME or configmap NAMESPACE/NAME";
            found.ok_or_else(|| told(&format!("line {number}: {line:?}: {wrong}")))
        })
    });
    lines.collect()
}

/// Reads `NAMESPACE/NAME` of a kind, as flags and files name it or as the API does.
pub(crate) fn reference(kind: &str, name: &str) -> Option<ObjectId> {
    let is_kind = |(word, proper): &&(&str, &str)| *word == kind || *proper == kind;
    let (_, kind) = KINDS.iter().find(is_kind)?;
    let (namespace, name) = name.split_once('/')?;
    let plain = |part: &str| {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
        !part.is_empty() && part.len() <= NAME_MAX && part.chars().all(allowed)
    };
    (plain(namespace) && plain(name)).then(|| ObjectId {
        kind: (*kind).into(),
        key: ObjectKey::new(namespace, name),
    })
}

/// The most bytes of an object's name.
const NAME_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_namespace_and_a_name() {
        let object = of_flag("configmap", "shop/flags.v1").unwrap();
        assert_eq!(
            (&*object.kind, object.key),
            ("ConfigMap", ObjectKey::new("shop", "flags.v1"))
        );
        for wrong in ["db", "/db", "shop/", "shop/db/x", "shop/..%2f", "shop/ü"] {
            let error = of_flag("secret", wrong).unwrap_err();
            assert_eq!(
                error,
                format!("--secret {wrong:?}: write NAMESPACE/NAME"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_file_has_a_reference_per_line_and_an_error_names_the_line() {
        let directory = std::env::temp_dir().join(format!("references-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("references");
        std::fs::write(
            &file,
            "# what the proxy needs\nsecret  shop/db # twice\n\nsecret shop/db\nconfigmap a/b\n",
        )
        .unwrap();
        let read: Vec<_> = of_file(&file).unwrap().into_iter().collect();
        let names = read.iter().map(|object| object.key.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["a/b", "shop/db"]);
        std::fs::write(&file, "secret shop/db\nsecrets shop/db\n").unwrap();
        let error = of_file(&file).unwrap_err();
        assert!(
            error.contains("references: line 2: \"secrets shop/db\""),
            "{error}"
        );
        std::fs::remove_dir_all(&directory).unwrap();
        let error = of_file(&file).unwrap_err();
        assert!(error.contains("no such file"), "{error}");
    }
}
