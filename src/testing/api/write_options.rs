//! The options of writes: dry runs, and what a delete says in its body or else in its parameters.

use serde_json::Value;

use super::list_options::{flag, number};
use super::refusal::{FieldComplaint, Refusal};
use crate::testing::http::message::RequestMessage;
use crate::testing::recording::Target;

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    fn of(policy: &str) -> Option<Self> {
        match policy {
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            "Orphan" => Some(Self::Orphan),
            _ => None,
        }
    }
}

/// The options of a delete.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteRequest {
    pub(super) grace: Option<i64>,
    /// The object must have this uid.
    pub(super) uid: Option<String>,
    /// The object must have this version.
    pub(super) version: Option<String>,
    /// `None` leaves it to the kind and the object.
    pub(super) propagation: Option<Propagation>,
    pub(super) is_dry_run: bool,
}

/// Reads `dryRun` among the parameters of a write, whose options are of that kind.
pub(super) fn is_dry_run(kind: &'static str, target: &Target) -> Result<bool, Refusal> {
    let given = dry_runs(target);
    match dry_run_complaint(&given) {
        None => Ok(!given.is_empty()),
        Some(complaint) => Err(Refusal::invalid_options(kind, &[complaint])),
    }
}

fn dry_runs(target: &Target) -> Vec<String> {
    let given = target.query.iter().filter(|(name, _)| name == "dryRun");
    given.map(|(_, value)| value.clone()).collect()
}

fn dry_run_complaint(given: &[String]) -> Option<FieldComplaint> {
    let is_known = given.iter().all(|one| one == "All");
    let unsupported = || FieldComplaint::unsupported("dryRun", &Value::from(given), "\"All\"");
    (!is_known).then(unsupported)
}

impl DeleteRequest {
    /// Reads the options: all from the body, or all from the parameters if there is no body.
    pub(super) fn read(request: &RequestMessage) -> Result<Self, Refusal> {
        let given = if request.body.is_empty() {
            GivenOptions::of_parameters(&request.target)?
        } else {
            request.check_media_type()?;
            GivenOptions::of_body(&request.body)?
        };
        given.checked()
    }
}

/// The options of a delete before they are checked.
struct GivenOptions {
    dry_run: Vec<String>,
    propagation: Option<String>,
    orphans: Option<bool>,
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
}

impl GivenOptions {
    fn of_parameters(target: &Target) -> Result<Self, Refusal> {
        Ok(Self {
            dry_run: dry_runs(target),
            propagation: target.value("propagationPolicy").map(str::to_owned),
            orphans: flag(target, "orphanDependents"),
            grace: number(target, "gracePeriodSeconds")?,
            uid: None,
            version: None,
        })
    }

    fn of_body(body: &[u8]) -> Result<Self, Refusal> {
        let body: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::bad_request(format!(
                "couldn't get version/kind; json parse error: {error}"
            ))
        })?;
        if !body.is_object() {
            let message = "couldn't get version/kind; json parse error: not an object";
            return Err(Refusal::bad_request(message));
        }
        if let Some(kind) = field(&body, "/kind", Value::as_str)?
            && kind != "DeleteOptions"
        {
            let message = format!("no kind {kind:?} is registered for the options of a delete");
            return Err(Refusal::bad_request(message));
        }
        let text = |path| Ok(field(&body, path, Value::as_str)?.map(str::to_owned));
        let all = field(&body, "/dryRun", Value::as_array)?;
        let dry_run = all.into_iter().flatten().map(|one| {
            let one = one.as_str().ok_or_else(|| mistyped("/dryRun"))?;
            Ok(one.to_owned())
        });
        Ok(Self {
            dry_run: dry_run.collect::<Result<_, Refusal>>()?,
            propagation: text("/propagationPolicy")?,
            orphans: field(&body, "/orphanDependents", Value::as_bool)?,
            grace: field(&body, "/gracePeriodSeconds", Value::as_i64)?,
            uid: text("/preconditions/uid")?,
            version: text("/preconditions/resourceVersion")?,
        })
    }

    fn checked(self) -> Result<DeleteRequest, Refusal> {
        let mut complaints = Vec::new();
        if let Some(policy) = &self.propagation {
            let told = Value::from(policy.as_str());
            if self.orphans.is_some() {
                let message = "orphanDependents and deletionPropagation cannot be both set";
                complaints.push(FieldComplaint::invalid(PROPAGATION, &told, message));
            }
            if Propagation::of(policy).is_none() {
                let known = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                complaints.push(FieldComplaint::unsupported(PROPAGATION, &told, known));
            }
        }
        complaints.extend(dry_run_complaint(&self.dry_run));
        if !complaints.is_empty() {
            return Err(Refusal::invalid_options("DeleteOptions", &complaints));
        }
        let by_flag = self.orphans.map(|orphans| {
            if orphans {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        });
        let by_name = self.propagation.as_deref().and_then(Propagation::of);
        Ok(DeleteRequest {
            grace: self.grace,
            uid: self.uid,
            version: self.version,
            propagation: by_name.or(by_flag),
            is_dry_run: !self.dry_run.is_empty(),
        })
    }
}

const PROPAGATION: &str = "propagationPolicy";

/// A field of the options; `None` when it is missing or null.
fn field<'a, T>(
    body: &'a Value,
    path: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let found = body.pointer(path).filter(|value| !value.is_null());
    let read = found.map(|value| read(value).ok_or_else(|| mistyped(path)));
    read.transpose()
}

fn mistyped(path: &str) -> Refusal {
    let field = path.replace('/', ".");
    Refusal::bad_request(format!(
        "json: cannot unmarshal into Go struct field DeleteOptions{field}"
    ))
}
