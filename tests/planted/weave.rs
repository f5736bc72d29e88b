//! Weaves planted bugs into one copy of the source, so that one build serves them all: a function
//! that a patch changes gets the patched body beside its own, and an environment variable chooses.
//!
//! `weave TREE PATCHED`: below TREE is the source, below PATCHED/NAME/ are the files that the patch
//! NAME changes, as it leaves them. Prints the names of the bugs that are woven in. A patch that
//! changes more than bodies of functions is not, and needs a build of its own.
//!
//! `tests/planted/run` compiles it with `rustc`: it needs nothing but the standard library.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The variable that names the bug which a process has.
const SWITCH: &str = "
/// The planted bug that this process has.
pub(crate) mod planted {
    pub(crate) fn is(name: &str) -> bool {
        static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let own = NAME.get_or_init(|| std::env::var(\"KUBECACHE_PLANTED\").ok());
        own.as_deref() == Some(name)
    }
}
";

/// A source text, cut at the bodies of its functions.
struct Cut<'t> {
    /// What is around the bodies: one text before each, and one after the last.
    around: Vec<&'t str>,
    /// The bodies, without their braces.
    bodies: Vec<&'t str>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).map(PathBuf::from);
    let (Some(tree), Some(patched)) = (arguments.next(), arguments.next()) else {
        return Err("usage: weave TREE PATCHED".into());
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(&patched)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    // The patched bodies of each file and function, by the name of the bug.
    let mut woven: BTreeMap<PathBuf, BTreeMap<usize, Vec<(&str, String)>>> = BTreeMap::new();
    for name in &names {
        let room = patched.join(name);
        let mut found = Vec::new();
        for file in files(&room)? {
            let file = file.strip_prefix(&room)?.to_owned();
            let own = fs::read_to_string(tree.join(&file))?;
            let other = fs::read_to_string(room.join(&file))?;
            found.push(changed(&own, &other).map(|bodies| (file, bodies)));
        }
        let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else {
            continue;
        };
        println!("{name}");
        for (file, bodies) in found {
            let file = woven.entry(file).or_default();
            for (at, body) in bodies {
                file.entry(at).or_default().push((name, body));
            }
        }
    }
    for (file, changes) in &woven {
        let path = tree.join(file);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, weave(&cut(&text), changes))?;
    }
    let root = tree.join("src/lib.rs");
    let mut text = fs::read_to_string(&root)?;
    text.push_str(SWITCH);
    fs::write(&root, text)?;
    Ok(())
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The bodies that differ; `None` if anything else does.
fn changed(own: &str, other: &str) -> Option<Vec<(usize, String)>> {
    let (own, other) = (cut(own), cut(other));
    if own.around != other.around {
        return None;
    }
    let bodies = own.bodies.iter().zip(&other.bodies).enumerate();
    let changed = bodies.filter(|(_, (own, other))| own != other);
    let changed: Vec<_> = changed
        .map(|(at, (_, other))| (at, (*other).to_owned()))
        .collect();
    // A constant function cannot ask for the variable.
    let is_constant = |at: &usize| {
        let head = own.around[*at].trim_end();
        let head = head.rfind("fn ").map_or("", |at| &head[..at]);
        head.trim_end().ends_with("const")
    };
    (!changed.iter().any(|(at, _)| is_constant(at))).then_some(changed)
}

fn weave(text: &Cut<'_>, changes: &BTreeMap<usize, Vec<(&str, String)>>) -> String {
    let mut woven = String::new();
    for (at, around) in text.around.iter().enumerate() {
        woven.push_str(around);
        for (name, body) in changes.get(&at).into_iter().flatten() {
            let switch = format!(" if crate::planted::is({name:?}) {{ return {{{body}}}; }}\n");
            woven.push_str(&switch);
        }
        woven.push_str(text.bodies.get(at).unwrap_or(&""));
    }
    woven
}

/// Cuts a text at the bodies of its outermost functions.
fn cut(text: &str) -> Cut<'_> {
    let bytes = text.as_bytes();
    let mut cut = Cut {
        around: Vec::new(),
        bodies: Vec::new(),
    };
    let (mut at, mut kept) = (0, 0);
    while at < bytes.len() {
        let is_function = bytes[at..].starts_with(b"fn ")
            && (at == 0 || !is_word(bytes[at - 1]))
            && bytes.get(at + 3).is_some_and(|byte| is_word(*byte));
        if !is_function {
            at = after(bytes, at);
            continue;
        }
        while at < bytes.len() && bytes[at] != b'{' && bytes[at] != b';' {
            // Also over an array's type, whose length stands after a semicolon.
            at = if matches!(bytes[at], b'(' | b'[') {
                after_group(bytes, at)
            } else {
                after(bytes, at)
            };
        }
        if bytes.get(at) == Some(&b'{') {
            let end = after_group(bytes, at);
            cut.around.push(&text[kept..=at]);
            cut.bodies.push(&text[at + 1..end - 1]);
            kept = end - 1;
            at = end;
        }
    }
    cut.around.push(&text[kept..]);
    cut
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The place after the group that begins here.
fn after_group(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at = after(bytes, at);
        if depth == 0 {
            return at;
        }
    }
    at
}

/// The place after the comment, the text, the character or the byte that begins here.
fn after(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |mark: &[u8], from: usize| {
        let found = rest[from.min(rest.len())..]
            .windows(mark.len())
            .position(|window| window == mark);
        found.map_or(bytes.len(), |found| at + from + found + mark.len())
    };
    let starts_word = at == 0 || !is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => find(b"\n", 2),
        [b'/', b'*', ..] => find(b"*/", 2),
        [b'r', b'"' | b'#', ..] | [b'b', b'r', b'"' | b'#', ..] if starts_word => {
            let hashes = rest.iter().skip_while(|byte| byte.is_ascii_alphabetic());
            let hashes = hashes.take_while(|byte| **byte == b'#').count();
            let begin = rest.iter().position(|byte| *byte == b'"');
            let Some(begin) = begin.filter(|begin| *begin <= hashes + 2) else {
                return at + 1;
            };
            let mut end = vec![b'"'];
            end.resize(hashes + 1, b'#');
            find(&end, begin + 1)
        }
        [b'"', ..] => {
            let mut end = at + 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            end + 1
        }
        [b'\'', b'\\', ..] => find(b"'", 3),
        [b'\'', _, b'\'', ..] => at + 3,
        _ => at + 1,
    }
}
