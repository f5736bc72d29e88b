//! Whom a request impersonates, by its headers, and the rights that this takes.

use super::refusal::Refusal;
use crate::testing::http::message::RequestMessage;

/// The group of what a user has besides a name and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The user of a request without credentials.
pub(super) const ANONYMOUS: &str = "system:anonymous";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The user that a request names.
pub(super) struct Impersonated {
    name: String,
    groups: Vec<String>,
    /// The resources of its uid and of its further fields, each with the value.
    more: Vec<(String, String)>,
}

/// The right to impersonate a user, or something of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Right<'a> {
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: &'a str,
}

impl Impersonated {
    /// The user that a request names, if it impersonates one.
    ///
    /// # Errors
    ///
    /// A 400, when it names groups, a uid or more of nobody.
    pub(super) fn of(request: &RequestMessage) -> Result<Option<Self>, Refusal> {
        let (mut name, mut groups, mut more) = (String::new(), Vec::new(), Vec::new());
        for (header, value) in &request.headers {
            let header = header.to_ascii_lowercase();
            match header.strip_prefix("impersonate-") {
                Some("user") => name.clone_from(value),
                Some("group") => groups.push(value.clone()),
                Some("uid") => more.push(("uids".to_owned(), value.clone())),
                Some(rest) => {
                    if let Some(key) = rest.strip_prefix("extra-") {
                        more.push((format!("userextras/{key}"), value.clone()));
                    }
                }
                None => {}
            }
        }
        if !name.is_empty() {
            return Ok(Some(Self { name, groups, more }));
        }
        if groups.is_empty() && more.is_empty() {
            return Ok(None);
        }
        let message = "the request impersonates groups, a uid or more without a user";
        Err(Refusal::bad_request(message))
    }

    /// The namespace and the name, if it is a service account.
    fn service_account(&self) -> Option<(&str, &str)> {
        let account = self.name.strip_prefix("system:serviceaccount:")?;
        account.split_once(':')
    }

    /// What kind of user it is, in the verbs of the API.
    pub(super) fn mode(&self) -> &'static str {
        match self.service_account() {
            Some(_) => "serviceaccount",
            None => "user-info",
        }
    }

    /// All rights that it takes.
    pub(super) fn rights(&self) -> Vec<Right<'_>> {
        let right = |group, resource, namespace, name| Right {
            group,
            resource,
            namespace,
            name,
        };
        let mut rights = vec![match self.service_account() {
            Some((namespace, name)) => right("", "serviceaccounts", Some(namespace), name),
            None => right("", "users", None, &self.name),
        }];
        let groups = self.groups.iter();
        rights.extend(groups.map(|group| right("", "groups", None, group)));
        let more = self.more.iter();
        rights.extend(more.map(|(kind, value)| right(AUTHENTICATION, kind, None, value)));
        rights
    }

    /// The name of the user, and its groups with those that the server adds.
    pub(super) fn into_parts(self) -> (String, Vec<String>) {
        let mut groups = self.groups.clone();
        if let Some((namespace, _)) = self.service_account()
            && groups.is_empty()
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if !groups
            .iter()
            .any(|group| [AUTHENTICATED, UNAUTHENTICATED].contains(&&**group))
        {
            let is_anonymous = self.name == ANONYMOUS;
            let added = if is_anonymous {
                UNAUTHENTICATED
            } else {
                AUTHENTICATED
            };
            groups.push(added.to_owned());
        }
        (self.name, groups)
    }
}
