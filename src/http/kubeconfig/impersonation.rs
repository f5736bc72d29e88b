//! Acting as somebody else: the headers for a kubeconfig's `as`, `as-uid`, `as-groups` and `as-user-extra`.

use std::fmt::Write as _;

use super::section::Section;
use crate::error::Error;

/// The headers, name and value; none when nobody is impersonated.
pub(super) fn headers(user: &Section) -> Result<Vec<(String, String)>, Error> {
    let mut headers = Vec::new();
    let name = user.text("as")?;
    if let Some(name) = name {
        headers.push(header(user, "as", "Impersonate-User", name)?);
    }
    if let Some(uid) = user.text("as-uid")? {
        headers.push(header(user, "as-uid", "Impersonate-Uid", uid)?);
    }
    for group in user.texts("as-groups")? {
        headers.push(header(user, "as-groups", "Impersonate-Group", group)?);
    }
    if user.has("as-user-extra") {
        let extra = user.child("as-user-extra")?;
        for key in extra.fields() {
            let name = format!("Impersonate-Extra-{}", escaped(key));
            for value in extra.texts(key)? {
                headers.push(header(&extra, key, &name, value)?);
            }
        }
    }
    if name.is_none() && !headers.is_empty() {
        return Err(user.error(
            "as",
            "missing: as-uid, as-groups and as-user-extra need a user to impersonate",
        ));
    }
    Ok(headers)
}

fn header(
    section: &Section,
    field: &str,
    name: &str,
    value: &str,
) -> Result<(String, String), Error> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if value.is_empty() || !value.bytes().all(printable) {
        return Err(section.error(
            field,
            "cannot be sent: only printable ASCII characters can stand in a header",
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Percent-encodes what a header's name cannot hold, as client-go does.
fn escaped(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        let legal = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        if legal {
            name.push(char::from(byte));
        } else {
            let written = write!(name, "%{byte:02X}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    name
}
