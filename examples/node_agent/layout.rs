//! How an entry of the configuration lays out the files of its objects.

use std::collections::BTreeMap;

use kubecache::outlet::{Laid, Layout, Presence};
use kubecache::{Error, ErrorKind};

/// What becomes of the files where the object or a key is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Absence {
    /// They stay as they are.
    #[default]
    Keep,
    /// They go; of a key, its file alone.
    Remove,
    /// They stay, and that is a failure.
    Fail,
}

/// How the keys of a file become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One after the other, each on lines of its own.
    Concat,
    /// Lines `KEY="VALUE"`, for a shell and for `EnvironmentFile=` of systemd.
    Env,
}

/// A file, and the keys that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Combined {
    pub(crate) file: String,
    /// Empty: all.
    pub(crate) keys: Vec<String>,
    pub(crate) format: Format,
}

impl Combined {
    /// The file of one key.
    pub(crate) fn of_key(file: &str, key: &str) -> Self {
        Self {
            file: file.to_owned(),
            keys: vec![key.to_owned()],
            format: Format::Concat,
        }
    }

    fn contents(&self, data: &Data<'_>) -> Result<Vec<u8>, String> {
        let named = self
            .keys
            .iter()
            .map(|key| (key.as_str(), data[key.as_str()]));
        let parts: Vec<_> = if self.keys.is_empty() {
            data.iter().map(|(key, bytes)| (*key, *bytes)).collect()
        } else {
            named.collect()
        };
        let room = |(key, bytes): &(&str, &[u8])| match self.format {
            Format::Concat => bytes.len().saturating_add(1),
            // At most each byte is escaped.
            Format::Env => bytes
                .len()
                .saturating_mul(2)
                .saturating_add(key.len())
                .saturating_add(4),
        };
        // Never grown: what is copied out of a smaller buffer would stay in memory.
        let mut contents = Vec::with_capacity(parts.iter().map(room).sum());
        match (self.format, parts.as_slice()) {
            (Format::Concat, [(_, only)]) => contents.extend_from_slice(only),
            (Format::Concat, parts) => {
                for (_, bytes) in parts {
                    contents.extend_from_slice(bytes);
                    if !bytes.ends_with(b"\n") {
                        contents.push(b'\n');
                    }
                }
            }
            (Format::Env, parts) => {
                for (key, bytes) in parts {
                    add_variable(key, bytes, &mut contents)?;
                }
            }
        }
        Ok(contents)
    }
}

/// The files of an entry's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// By their names; none: a file per key.
    pub(crate) files: BTreeMap<String, Combined>,
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) missing: Absence,
    pub(crate) deleted: Absence,
}

type Data<'a> = BTreeMap<&'a str, &'a [u8]>;

impl Rules {
    /// Lays out an object's files. The error names the entry.
    pub(crate) fn lay_out(&self, entry: &str, presence: Presence<'_>) -> Result<Laid, Error> {
        let failed = |kind, why: &str| Err(Error::new(kind, format!("entry {entry:?}: {why}")));
        let (absence, why) = match presence {
            Presence::There(data) => match self.files_of(data) {
                Ok(files) => return Ok(Laid::Files(files)),
                Err(Wrong::Contents(why)) => return failed(ErrorKind::Config, &why),
                Err(Wrong::Missing(key)) => (self.missing, format!("the key {key:?} is missing")),
            },
            Presence::Deleted => (self.deleted, "the server has deleted the object".to_owned()),
            Presence::Missing | _ => (self.missing, "the server has no such object".to_owned()),
        };
        match absence {
            Absence::Keep => Ok(Laid::Kept),
            Absence::Remove => Ok(Laid::Removed),
            Absence::Fail => failed(ErrorKind::NotFound, &why),
        }
    }

    fn files_of(&self, data: &Data<'_>) -> Result<Layout, Wrong> {
        let mut layout = Layout::new();
        if self.files.is_empty() {
            for (key, bytes) in data {
                layout = layout.file(*key, bytes.to_vec());
            }
        }
        for (name, file) in &self.files {
            let missing = file
                .keys
                .iter()
                .find(|key| !data.contains_key(key.as_str()));
            match missing {
                Some(_) if self.missing == Absence::Remove => {}
                Some(key) => return Err(Wrong::Missing(key.clone())),
                None => {
                    let contents = file
                        .contents(data)
                        .map_err(|why| Wrong::Contents(format!("the file {name:?}: {why}")))?;
                    layout = layout.file(name.as_str(), contents);
                }
            }
        }
        if let Some(mode) = self.mode {
            layout = layout.mode(mode);
        }
        if let Some(user) = self.user {
            layout = layout.user(user);
        }
        if let Some(group) = self.group {
            layout = layout.group(group);
        }
        Ok(layout)
    }
}

/// Why there are no files.
enum Wrong {
    Missing(String),
    Contents(String),
}

/// Adds a line that a shell and systemd read as the value. Within double quotes both take these
/// four characters as they are only after a backslash.
fn add_variable(key: &str, bytes: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
    let is_name = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name || key.bytes().next().is_none_or(|byte| byte.is_ascii_digit()) {
        return Err(format!("the key {key:?} is no name of a variable"));
    }
    if std::str::from_utf8(bytes).is_err() || bytes.contains(&0) {
        return Err(format!("the value of {key} is no text"));
    }
    to.extend_from_slice(key.as_bytes());
    to.extend_from_slice(b"=\"");
    for byte in bytes {
        if b"\"\\$`".contains(byte) {
            to.push(b'\\');
        }
        to.push(*byte);
    }
    to.extend_from_slice(b"\"\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn of(file: Combined, missing: Absence) -> Rules {
        Rules {
            files: [(file.file.clone(), file)].into(),
            missing,
            ..Rules::default()
        }
    }

    fn combined(keys: &[&str], format: Format) -> Combined {
        Combined {
            file: "f".to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            format,
        }
    }

    #[test]
    fn parts_stand_on_lines_of_their_own_and_one_part_as_it_is() {
        let data: Data<'_> = [("a", &b"1"[..]), ("b", b"2\n"), ("c", b"3")].into();
        let contents = |keys: &[&str]| combined(keys, Format::Concat).contents(&data).unwrap();
        assert_eq!(contents(&["c", "b", "a"]), b"3\n2\n1\n");
        assert_eq!(contents(&["a"]), b"1");
    }

    /// Whatever the value is, a shell reads it as it is.
    #[test]
    fn a_shell_reads_each_value_as_it_is() {
        for value in [
            "plain",
            "",
            "a b",
            "a\nb\n",
            "\"'$HOME`id`\\ \\n \\\" #x",
            "ü=%s!*",
        ] {
            let data: Data<'_> = [("KEY", value.as_bytes())].into();
            let text = combined(&[], Format::Env).contents(&data).unwrap();
            let text = String::from_utf8(text).unwrap();
            let script = format!("{text}printf '%s|' \"$KEY\"");
            let read = Command::new("sh").args(["-c", &script]).output().unwrap();
            let read = String::from_utf8(read.stdout).unwrap();
            assert_eq!(read, format!("{value}|"), "{text}");
        }
    }

    #[test]
    fn what_is_no_variable_is_refused_by_name_and_without_its_value() {
        for (key, value) in [
            ("tls.crt", &b"x"[..]),
            ("1A", b"x"),
            ("", b"x"),
            ("A", b"\xffsecret"),
        ] {
            let data: Data<'_> = [(key, value)].into();
            let laid = of(combined(&[], Format::Env), Absence::Keep);
            let error = laid
                .lay_out("e", Presence::There(&data))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("entry \"e\": the file \"f\": the "),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_key_that_is_missing_keeps_removes_or_fails() {
        let data: Data<'_> = [("a", &b"1"[..])].into();
        let presence = Presence::There(&data);
        let laid = |absence| of(Combined::of_key("f", "b"), absence).lay_out("e", presence);
        assert!(matches!(laid(Absence::Keep), Ok(Laid::Kept)));
        let Ok(Laid::Files(files)) = laid(Absence::Remove) else {
            panic!("the other files are written");
        };
        assert_eq!(files.names().count(), 0);
        let error = laid(Absence::Fail).unwrap_err();
        assert_eq!(error.to_string(), "entry \"e\": the key \"b\" is missing");
    }
}
