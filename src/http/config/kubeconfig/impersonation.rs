//! The headers by which a client acts as another user, from a kubeconfig's user or kubectl's
//! options.

use super::options::KubeconfigOptions;
use crate::error::Error;
use crate::http::requests::percent_encode;
use crate::yaml::Section;

/// Returns the names and values of the headers. An option replaces the field of the user.
pub(super) fn headers(
    user: &Section,
    options: &KubeconfigOptions,
) -> Result<Vec<(String, String)>, Error> {
    let mut headers = Vec::new();
    let mut add = |place: &str, name: &str, value: &str| {
        check(value).map_err(|why| Error::config(format!("{place}: {why}")))?;
        headers.push((name.to_owned(), value.to_owned()));
        Ok(())
    };
    let (uid, groups) = (&options.impersonate_uid, &options.impersonate_groups);
    for (given, field, name) in [
        (&options.impersonate_user, "as", "Impersonate-User"),
        (uid, "as-uid", "Impersonate-Uid"),
    ] {
        if let Some(given) = given {
            add(&format!("--{field}"), name, given)?;
        } else if let Some(text) = user.text(field)? {
            add(&user.location(field), name, text)?;
        }
    }
    for group in groups {
        add("--as-group", "Impersonate-Group", group)?;
    }
    if groups.is_empty() {
        for group in user.texts("as-groups")? {
            add(&user.location("as-groups"), "Impersonate-Group", group)?;
        }
    }
    let extra = user.child("as-user-extra")?;
    for key in extra.fields() {
        let mut name = "Impersonate-Extra-".to_owned();
        // client-go encodes the characters that no header's name can hold like this.
        percent_encode(&mut name, key, "!#$&'*+-.^_`|~");
        for value in extra.texts(key)? {
            add(&extra.location(key), &name, value)?;
        }
    }
    match headers.first() {
        Some((first, _)) if first != "Impersonate-User" => {
            Err(if uid.is_none() && groups.is_empty() {
                user.error(
                    "as",
                    "missing: as-uid, as-groups and as-user-extra need a user to impersonate",
                )
            } else {
                Error::config("--as is missing: --as-uid and --as-group need a user to impersonate")
            })
        }
        _ => Ok(headers),
    }
}

/// Checks that a server reads the value of a header as it was written.
fn check(value: &str) -> Result<(), &'static str> {
    let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if value.is_empty() {
        Err("is empty: remove it, or name somebody")
    } else if !value.bytes().all(is_printable) {
        Err("cannot be sent: only printable ASCII characters can stand in a header")
    } else if value.trim_ascii() != value {
        // Servers trim it, and would impersonate another user.
        Err("begins or ends with a blank, which servers cut off: remove it")
    } else {
        Ok(())
    }
}
