//! What is shown: a row per pod and referenced object. Plain data, never a value of a secret.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use kubecache::manager::{ObjectReport, ObjectState};
use kubecache::object::ObjectKey;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::tell::one_line;

/// Which row: a pod and an object it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowKey {
    /// Without a name for a reference that no pod has made.
    pub(crate) pod: ObjectKey,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) name: String,
}

impl RowKey {
    /// The object, as `kubectl get -o name` writes it.
    pub(crate) fn object(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }

    /// Whether a pod names the object.
    pub(crate) fn has_pod(&self) -> bool {
        !self.pod.name().is_empty()
    }
}

/// How an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// What its manager says.
    Kept(ObjectState),
    /// The pod does not name it any more, or is gone: the last line about it.
    Removed,
    /// The pod needs it, and the agent keeps no objects of its kind.
    NotKept,
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) state: State,
    /// Whether there was another content of it before.
    pub(crate) changed: bool,
    /// Whether it is polled, since there is no room for its watch.
    pub(crate) polled: bool,
    /// Why it is not synced; one line.
    pub(crate) reason: Option<String>,
    /// Whether the reason is a failure.
    pub(crate) failed: bool,
    pub(crate) content: Option<Content>,
    /// Since the server last confirmed this.
    pub(crate) heard: Option<Duration>,
}

/// What is shown of an object that is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) resource_version: String,
    pub(crate) immutable: bool,
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) created: Option<SystemTime>,
}

impl Facts {
    /// What a manager reports of an object.
    pub(crate) fn of(report: &ObjectReport) -> Self {
        let content = (!report.resource_version.is_empty()).then(|| Content {
            resource_version: report.resource_version.to_string(),
            immutable: report.immutable,
            keys: report.keys,
            bytes: report.bytes,
            created: report.created.as_ref().and_then(|time| {
                let seconds = u64::try_from(time.0.as_second()).ok()?;
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
            }),
        });
        Self {
            state: State::Kept(report.state),
            changed: false,
            polled: report.polled,
            reason: Some(one_line(&report.reason)).filter(|reason| !reason.is_empty()),
            failed: report.last_error.is_some(),
            content,
            heard: report.since_contact,
        }
    }

    /// The state as a table shows it.
    pub(crate) fn state_in_words(&self) -> String {
        let polled = if self.polled { " (polled)" } else { "" };
        if self.changed {
            return format!("Changed{polled}");
        }
        format!("{}{polled}", self.state)
    }

    /// The last line about an object.
    pub(crate) fn removed() -> Self {
        Self::without_content(State::Removed, None)
    }

    /// The line about what the agent does not keep.
    pub(crate) fn not_kept() -> Self {
        let reason = "the agent keeps Secrets and ConfigMaps: a kubelet has to provide this";
        Self::without_content(State::NotKept, Some(reason.to_owned()))
    }

    /// The line about an object that no server can have.
    pub(crate) fn impossible() -> Self {
        let reason = "no object can have this name".to_owned();
        Self::without_content(State::Kept(ObjectState::NotFound), Some(reason))
    }

    fn without_content(state: State, reason: Option<String>) -> Self {
        Self {
            state,
            changed: false,
            polled: false,
            reason,
            failed: false,
            content: None,
            heard: None,
        }
    }

    /// Whether it says the same as before; ages and the wording of a failure are no news, that
    /// there is one is.
    pub(crate) fn says_the_same(&self, before: &Self) -> bool {
        let now_says_why = self.failed && !before.failed && !self.is_definite();
        !now_says_why && (self.state, &self.content) == (before.state, &before.content)
    }

    /// Whether the server has answered for good: an absence or a refusal is an answer.
    pub(crate) fn is_definite(&self) -> bool {
        match self.state {
            State::Kept(state) => state.is_answer(),
            State::Removed | State::NotKept => true,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(state) => state.fmt(f),
            Self::Removed => f.write_str("Removed"),
            Self::NotKept => f.write_str("NotKept"),
        }
    }
}

/// An object as JSON shows it.
pub(crate) struct ObjectJson<'a>(pub(crate) &'a RowKey, pub(crate) &'a Facts);

impl Serialize for ObjectJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(key, facts) = self;
        let content = facts.content.as_ref();
        let mut object = serializer.serialize_struct("object", 8)?;
        object.serialize_field("kind", &key.kind)?;
        object.serialize_field("name", &key.name)?;
        object.serialize_field("state", &facts.state.to_string())?;
        object.serialize_field("reason", &facts.reason)?;
        let version = content.map(|content| &content.resource_version);
        object.serialize_field("resourceVersion", &version)?;
        object.serialize_field("immutable", &content.map(|content| content.immutable))?;
        object.serialize_field("keys", &content.map(|content| content.keys))?;
        object.serialize_field("bytes", &content.map(|content| content.bytes))?;
        object.end()
    }
}

/// A pod with its objects as JSON shows it; a reference without a pod has no name.
pub(crate) struct PodJson<'a>(pub(crate) &'a ObjectKey, pub(crate) Vec<ObjectJson<'a>>);

impl Serialize for PodJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pod = serializer.serialize_struct("pod", 3)?;
        pod.serialize_field("namespace", self.0.namespace())?;
        if self.0.name().is_empty() {
            pod.skip_field("name")?;
        } else {
            pod.serialize_field("name", self.0.name())?;
        }
        pod.serialize_field("objects", &self.1)?;
        pod.end()
    }
}

/// The whole node as JSON shows it.
pub(crate) struct NodeJson<'a> {
    pub(crate) node: Option<&'a str>,
    pub(crate) pods: Vec<PodJson<'a>>,
    /// By namespace.
    pub(crate) references: Vec<PodJson<'a>>,
}

impl Serialize for NodeJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut node = serializer.serialize_struct("node", 3)?;
        node.serialize_field("node", &self.node)?;
        node.serialize_field("pods", &self.pods)?;
        if self.references.is_empty() {
            node.skip_field("references")?;
        } else {
            node.serialize_field("references", &self.references)?;
        }
        node.end()
    }
}

/// One change: the pod, and its one object as it is now.
pub(crate) struct ChangeJson<'a> {
    pub(crate) node: Option<&'a str>,
    pub(crate) key: &'a RowKey,
    pub(crate) facts: &'a Facts,
}

impl Serialize for ChangeJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = PodJson(&self.key.pod, vec![ObjectJson(self.key, self.facts)]);
        let (pods, references) = if self.key.has_pod() {
            (vec![object], Vec::new())
        } else {
            (Vec::new(), vec![object])
        };
        NodeJson {
            node: self.node,
            pods,
            references,
        }
        .serialize(serializer)
    }
}
