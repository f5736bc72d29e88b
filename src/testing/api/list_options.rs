//! The parameters of lists and watches: the requested version, and conflicts between parameters.

use serde_json::Value;

use super::refusal::{FieldComplaint, Refusal};
use crate::testing::recording::{Target, is_true};

/// A version that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedVersion {
    /// The parameter is absent or empty: the present state.
    MostRecent,
    /// `0`: any state.
    Any,
    At(u64),
}

impl AskedVersion {
    fn of(target: &Target) -> Result<Self, String> {
        match text(target, "resourceVersion") {
            "" => Ok(Self::MostRecent),
            "0" => Ok(Self::Any),
            text => text.parse().map(Self::At).map_err(|_not_a_number| {
                format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing \
                     {text:?}: invalid syntax"
                )
            }),
        }
    }

    /// The version that a get or a list asks for.
    pub(super) fn of_list(target: &Target) -> Result<Self, Refusal> {
        let asked = Self::of(target);
        asked.map_err(|why| Refusal::bad_request(format!("invalid resource version: {why}")))
    }

    /// The version from which a watch starts.
    pub(super) fn of_watch(target: &Target) -> Result<Self, Refusal> {
        Self::of(target).map_err(Refusal::internal)
    }
}

/// A parameter; empty when it is missing.
pub(super) fn text<'a>(target: &'a Target, name: &str) -> &'a str {
    target.value(name).unwrap_or_default()
}

/// The value of a boolean parameter; `None` when it is missing.
pub(super) fn flag(target: &Target, name: &str) -> Option<bool> {
    target.value(name).map(is_true)
}

/// The value of a numeric parameter; `None` when it is missing.
pub(super) fn number(target: &Target, name: &str) -> Result<Option<i64>, Refusal> {
    let read = target.value(name).map(|text| {
        text.parse().map_err(|_not_a_number| {
            Refusal::bad_request(format!(
                "strconv.ParseInt: parsing {text:?}: invalid syntax"
            ))
        })
    });
    read.transpose()
}

const MATCH: &str = "resourceVersionMatch";

fn unsupported(value: &str, known: &str) -> FieldComplaint {
    FieldComplaint::unsupported(MATCH, &Value::from(value), known)
}

fn refuse(complaints: &[FieldComplaint]) -> Result<(), Refusal> {
    match complaints {
        [] => Ok(()),
        complaints => Err(Refusal::invalid_options("ListOptions", complaints)),
    }
}

const WITH_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

/// Refuses conflicting parameters of a list.
pub(super) fn check_list(target: &Target) -> Result<(), Refusal> {
    let (version, matching) = (text(target, "resourceVersion"), text(target, MATCH));
    let mut complaints = Vec::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let message = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            complaints.push(FieldComplaint::forbidden(MATCH, message));
        }
        if !text(target, "continue").is_empty() {
            complaints.push(FieldComplaint::forbidden(MATCH, WITH_CONTINUE));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = "\"Exact\", \"NotOlderThan\", \"\"";
            complaints.push(unsupported(matching, known));
        }
        if matching == "Exact" && version == "0" {
            let message = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            complaints.push(FieldComplaint::forbidden(MATCH, message));
        }
    }
    if flag(target, "sendInitialEvents").is_some() {
        let message = "sendInitialEvents is forbidden for list";
        complaints.push(FieldComplaint::forbidden("sendInitialEvents", message));
    }
    refuse(&complaints)
}

/// Refuses conflicting parameters of a watch.
pub(super) fn check_watch(target: &Target) -> Result<(), Refusal> {
    let (matching, sends) = (text(target, MATCH), flag(target, "sendInitialEvents"));
    let mut complaints = Vec::new();
    if sends.is_some() && matching != "NotOlderThan" {
        let message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        complaints.push(FieldComplaint::forbidden(MATCH, message));
    }
    if !matching.is_empty() {
        if sends.is_none() {
            let message =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            complaints.push(FieldComplaint::forbidden(MATCH, message));
        }
        if matching != "NotOlderThan" {
            complaints.push(unsupported(matching, "\"NotOlderThan\""));
        }
        if !text(target, "continue").is_empty() {
            complaints.push(FieldComplaint::forbidden(MATCH, WITH_CONTINUE));
        }
    }
    refuse(&complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(check: fn(&Target) -> Result<(), Refusal>, query: &str) -> Option<String> {
        let target = Target::parse(&format!("/x?{query}"));
        check(&target)
            .err()
            .map(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        assert_eq!(
            refused(check_list, "resourceVersionMatch=Exact&resourceVersion=5"),
            None
        );
        assert_eq!(
            refused(check_list, "resourceVersionMatch=Exact").as_deref(),
            Some(
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
                 resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        );
        let both = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(refused(check_watch, both), None);
        assert!(refused(check_watch, "sendInitialEvents=true").is_some());
        assert!(refused(check_list, both).is_some());
    }
}
