//! Acting as somebody else: the headers for `as`, `as-uid`, `as-groups` and `as-user-extra`, or kubectl's options.

use std::fmt::Write as _;

use super::KubeconfigOptions;
use super::section::Section;
use crate::error::{Error, ErrorKind};

/// The headers, name and value; none when nobody is impersonated. An option goes before the user's field.
pub(super) fn headers(
    user: Option<&Section>,
    options: &KubeconfigOptions,
) -> Result<Vec<(String, String)>, Error> {
    let mut headers = Vec::new();
    let name = given_or(options.impersonate_user.as_deref(), "--as", user, "as")?;
    if let Some((place, name)) = &name {
        headers.push(header(place, "Impersonate-User", name)?);
    }
    let uid = options.impersonate_uid.as_deref();
    if let Some((place, uid)) = given_or(uid, "--as-uid", user, "as-uid")? {
        headers.push(header(&place, "Impersonate-Uid", uid)?);
    }
    if let (true, Some(user)) = (options.impersonate_groups.is_empty(), user) {
        for group in user.texts("as-groups")? {
            headers.push(header(
                &user.place("as-groups"),
                "Impersonate-Group",
                group,
            )?);
        }
    }
    for group in &options.impersonate_groups {
        headers.push(header("--as-group", "Impersonate-Group", group)?);
    }
    if let Some(user) = user.filter(|user| user.has("as-user-extra")) {
        let extra = user.child("as-user-extra")?;
        for key in extra.fields() {
            let name = format!("Impersonate-Extra-{}", escaped(key));
            for value in extra.texts(key)? {
                headers.push(header(&extra.place(key), &name, value)?);
            }
        }
    }
    if name.is_some() || headers.is_empty() {
        return Ok(headers);
    }
    Err(match user {
        Some(user) if uid.is_none() && options.impersonate_groups.is_empty() => user.error(
            "as",
            "missing: as-uid, as-groups and as-user-extra need a user to impersonate",
        ),
        _ => Error::new(
            ErrorKind::Config,
            "--as is missing: --as-uid and --as-group need a user to impersonate",
        ),
    })
}

/// A value and its place, for messages.
fn given_or<'a>(
    given: Option<&'a str>,
    flag: &str,
    user: Option<&'a Section>,
    field: &str,
) -> Result<Option<(String, &'a str)>, Error> {
    if let Some(given) = given {
        return Ok(Some((flag.to_owned(), given)));
    }
    let Some(user) = user else {
        return Ok(None);
    };
    let text = user.text(field)?;
    Ok(text.map(|text| (user.place(field), text)))
}

fn header(place: &str, name: &str, value: &str) -> Result<(String, String), Error> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if value.is_empty() || !value.bytes().all(printable) {
        return Err(Error::new(
            ErrorKind::Config,
            format!(
                "{place}: cannot be sent: only printable ASCII characters can stand in a header"
            ),
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
