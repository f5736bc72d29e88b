//! The `ExecCredential` of the API: the input of a plugin, and its answer.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::super::lifetime;
use crate::http::certificates::pem::Pem;
use crate::sync::{Arc, Mutex};
use crate::wire::{self, NotOfType, PlainObject};
use crate::yaml::{Node, yaml_document};

/// The versions of `client.authentication.k8s.io` that plugins speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecVersion {
    V1,
    V1Beta1,
}

impl ExecVersion {
    /// The versions' names, for messages.
    pub(crate) const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

/// The cluster, for plugins that ask for it (`provideClusterInfo`).
pub(crate) struct ClusterInfo {
    pub(crate) server: String,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) insecure_skip_verify: bool,
    /// As they were read last.
    pub(crate) authorities: Mutex<Option<Pem>>,
    pub(crate) proxy_url: Option<String>,
    pub(crate) disable_compression: bool,
    /// The extension `client.authentication.k8s.io/exec` of the cluster.
    pub(crate) config: Option<Value>,
}

impl ClusterInfo {
    /// Blocks for the read of a local file.
    fn to_json(&self) -> Value {
        let mut cluster = Map::new();
        let mut add = |name: &str, value: Value| drop(cluster.insert(name.to_owned(), value));
        add("server", self.server.as_str().into());
        if let Some(name) = &self.tls_server_name {
            add("tls-server-name", name.as_str().into());
        }
        if self.insecure_skip_verify {
            add("insecure-skip-tls-verify", true.into());
        }
        let known = self.authorities.lock().clone();
        if let Some(known) = known {
            let authorities = known.loaded().unwrap_or_else(|error| {
                log::warn!("{error}: the plugin gets what was read last");
                known
            });
            let text = STANDARD.encode(authorities.bytes.as_slice());
            add("certificate-authority-data", text.into());
            let before = self.authorities.lock().replace(authorities);
            drop(before);
        }
        if let Some(proxy_url) = &self.proxy_url {
            add("proxy-url", proxy_url.as_str().into());
        }
        if self.disable_compression {
            add("disable-compression", true.into());
        }
        if let Some(config) = &self.config {
            add("config", config.clone());
        }
        cluster.into()
    }
}

/// Returns the value of `KUBERNETES_EXEC_INFO`. Blocks for the read of a local file.
pub(super) fn exec_info(
    version: ExecVersion,
    is_interactive: bool,
    cluster: Option<&ClusterInfo>,
) -> String {
    let mut spec = json!({ "interactive": is_interactive });
    if let (Some(cluster), Some(spec)) = (cluster, spec.as_object_mut()) {
        spec.insert("cluster".to_owned(), cluster.to_json());
    }
    let info = json!({
        "apiVersion": version.as_str(),
        "kind": "ExecCredential",
        "spec": spec,
    });
    info.to_string()
}

/// The credentials in a plugin's answer.
pub(super) struct ExecStatus {
    pub(super) token: Option<Zeroizing<String>>,
    /// The certificate and its key, in PEM text.
    pub(super) identity: Option<(Zeroizing<String>, Zeroizing<String>)>,
    pub(super) valid_for: Option<Duration>,
}

const NO_TIME: &str = "answered an expirationTimestamp that is no time of RFC 3339";

/// A mapping of an answer, in JSON or in YAML.
enum PluginAnswer<'a> {
    Json(PlainObject<'a>),
    Yaml(Arc<Node>),
}

impl<'a> PluginAnswer<'a> {
    /// Reads an answer as Go does: as JSON if a brace begins it, else as YAML, whose first document
    /// counts. A byte order mark makes it YAML.
    fn read(answer: &'a [u8]) -> Result<Self, String> {
        let why = if answer.trim_ascii_start().starts_with(b"{") {
            match PlainObject::parse(answer) {
                Some(object) => return Ok(Self::Json(object)),
                None => "not JSON".to_owned(),
            }
        } else {
            match yaml_document(Zeroizing::new(answer.to_vec())) {
                Ok(Some(root)) if matches!(*root, Node::Mapping(_)) => return Ok(Self::Yaml(root)),
                Ok(_) => "not a mapping".to_owned(),
                Err(why) => why,
            }
        };
        Err(match answer.trim_ascii().len() {
            0 => "answered nothing: it must write an ExecCredential to standard output".to_owned(),
            length => format!(
                "answered {length} bytes that are no ExecCredential in JSON or YAML ({why}): it \
                 must write nothing else to standard output"
            ),
        })
    }

    fn object(&self, name: &str) -> Result<Option<Self>, NotOfType> {
        match self {
            Self::Json(object) => Ok(object.object(name)?.map(Self::Json)),
            Self::Yaml(node) => match node.get(name) {
                Some(field) if !matches!(**field, Node::Mapping(_)) => Err(NotOfType),
                field => Ok(field.map(|field| Self::Yaml(Arc::clone(field)))),
            },
        }
    }

    /// All texts of that name, and nulls. In YAML the last field of a name replaces the others.
    fn texts(&self, name: &str) -> Result<Vec<Option<Zeroizing<String>>>, NotOfType> {
        let node = match self {
            Self::Json(object) => return object.texts(name),
            Self::Yaml(node) => node,
        };
        let field = node.get(name).into_iter();
        let texts = field.map(|field| field.text().ok_or(NotOfType));
        texts
            .map(|text| Ok(Some(Zeroizing::new(text?.to_owned()))))
            .collect()
    }

    /// The last text of that name, even before a later null; `None` also for an empty one.
    fn text(&self, name: &str) -> Result<Option<Zeroizing<String>>, NotOfType> {
        let last = self.texts(name)?.into_iter().flatten().last();
        Ok(last.filter(|text| !text.is_empty()))
    }
}

/// Returns the token of an answer, even if the rest of it is wrong.
pub(super) fn token(answer: &[u8]) -> Option<Zeroizing<String>> {
    let status = PluginAnswer::read(answer).ok()?.object("status").ok()??;
    status.text("token").ok()?
}

/// The token that an answer gives, or why it is refused, for the fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn plugin_answer(answer: &[u8]) -> Result<Option<Zeroizing<String>>, String> {
    decode(answer, ExecVersion::V1).map(|status| status.token)
}

/// Reads a plugin's answer, as client-go does.
///
/// # Errors
///
/// The mistake, and what to do. The text repeats at most one character of the answer.
pub(super) fn decode(answer: &[u8], version: ExecVersion) -> Result<ExecStatus, String> {
    let wrong_type = |_: NotOfType| "answered an ExecCredential with a field of a wrong type";
    let credential = PluginAnswer::read(answer)?;
    let kind = credential.text("kind").map_err(wrong_type)?;
    if kind.is_some_and(|kind| kind.as_str() != "ExecCredential") {
        return Err("answered an object whose kind is not ExecCredential".to_owned());
    }
    let found = credential.text("apiVersion").map_err(wrong_type)?;
    if found.as_ref().map(|found| found.as_str()) != Some(version.as_str()) {
        // The error repeats only those names of the answer that are in this list.
        let known =
            ["v1", "v1beta1", "v1alpha1"].map(|v| ["client.authentication.k8s.io/", v].concat());
        let found = found.and_then(|found| known.into_iter().find(|name| *name == *found));
        return Err(format!(
            "answered apiVersion {}, but the kubeconfig says {}: make both the same",
            found.as_deref().unwrap_or("of another API"),
            version.as_str()
        ));
    }
    credential.object("spec").map_err(wrong_type)?;
    let Some(status) = credential.object("status").map_err(wrong_type)? else {
        return Err("answered an ExecCredential without a status".to_owned());
    };
    let text = |name| status.text(name).map_err(wrong_type);
    let token = text("token")?;
    let identity = match (text("clientCertificateData")?, text("clientKeyData")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            let why = "answered a client certificate without its key, or a key without its \
                       certificate";
            return Err(why.to_owned());
        }
    };
    if token.is_none() && identity.is_none() {
        return Err("answered a status with neither a token nor a client certificate".to_owned());
    }
    let ends = status.texts("expirationTimestamp").map_err(wrong_type)?;
    let ends = ends
        .into_iter()
        .map(|end| end.map(|end| wire::time(&end).ok_or(NO_TIME)).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let end = ends.last().copied().flatten();
    let left = end.and_then(lifetime::system_time).map(lifetime::left);
    let left = left.transpose();
    let valid_for = left.map_err(|why| format!("answered credentials that {why}"))?;
    Ok(ExecStatus {
        token,
        identity,
        valid_for,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: &str) -> String {
        format!(
            "{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{status}}}\n"
        )
    }

    fn why(answer: &str) -> String {
        let why = decode(answer.as_bytes(), ExecVersion::V1)
            .map(drop)
            .unwrap_err();
        assert!(!why.contains("canary"), "{why}");
        why
    }

    #[test]
    fn an_answer_has_a_token_or_a_certificate_and_perhaps_an_end() {
        let decode = |status| decode(of(status).as_bytes(), ExecVersion::V1).unwrap();
        let token = decode(r#"{"token":"t","clientKeyData":null,"more":[1]}"#);
        assert_eq!(token.token.as_ref().unwrap().as_str(), "t");
        assert!(token.identity.is_none() && token.valid_for.is_none());
        let both = decode(
            r#"{"expirationTimestamp":"2999-01-01T00:00:00Z","clientCertificateData":"a\nb",
               "clientKeyData":"c"}"#,
        );
        let (certificate, key) = both.identity.as_ref().unwrap();
        assert_eq!((certificate.as_str(), key.as_str()), ("a\nb", "c"));
        assert!(
            both.token.is_none() && both.valid_for.unwrap() > Duration::from_secs(24 * 60 * 60)
        );
    }

    /// The end of the calendar is "never" in many programs, and Go's zero time is in client-go.
    #[test]
    fn a_plugin_can_say_that_its_answer_never_ends() {
        let valid_for = |time: &str| {
            let status = format!(r#"{{"token":"t","expirationTimestamp":"{time}"}}"#);
            let decoded = decode(of(&status).as_bytes(), ExecVersion::V1);
            decoded.map(|status| status.valid_for)
        };
        for late in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999+00:00"] {
            assert!(
                valid_for(late).unwrap().unwrap().as_secs() > 1 << 37,
                "{late}"
            );
        }
        for zero in ["0001-01-01T00:00:00Z", "0001-01-01T02:00:00+02:00"] {
            assert_eq!(valid_for(zero), Ok(None), "{zero}");
        }
        for early in ["0001-01-01T00:00:01Z", "0000-12-31T23:59:59Z"] {
            let why = valid_for(early).unwrap_err();
            assert!(
                why.starts_with("answered credentials that expired "),
                "{why}"
            );
        }
    }

    #[test]
    fn each_wrong_answer_is_told_without_repeating_it() {
        for (answer, expected) in [
            ("", "answered nothing"),
            (
                "canary",
                "answered 6 bytes that are no ExecCredential in JSON or YAML (not a mapping)",
            ),
            (
                "{\"kind\":\"canary\"}",
                "an object whose kind is not ExecCredential",
            ),
            (
                "{\"kind\":\"ExecCredential\",\"apiVersion\":\"canary\"}",
                "answered apiVersion of another API, but the kubeconfig says \
                 client.authentication.k8s.io/v1: make both the same",
            ),
            (
                "{\"kind\":\"ExecCredential\",\
                 \"apiVersion\":\"client.authentication.k8s.io/v1beta1\"}",
                "answered apiVersion client.authentication.k8s.io/v1beta1, but",
            ),
            ("{\"kind\":7}", "a field of a wrong type"),
        ] {
            assert!(why(answer).contains(expected), "{answer}: {}", why(answer));
        }
        for (status, expected) in [
            ("null", "without a status"),
            ("\"canary\"", "a field of a wrong type"),
            ("{}", "neither a token nor a client certificate"),
            ("{\"token\":[\"canary\"]}", "a field of a wrong type"),
            (
                "{\"clientKeyData\":\"canary\"}",
                "a key without its certificate",
            ),
            (
                "{\"token\":\"canary\",\"expirationTimestamp\":\"canary\"}",
                "no time of RFC 3339",
            ),
            (
                "{\"token\":\"canary\",\"expirationTimestamp\":\"2001-01-01T00:00:00Z\"}",
                "answered credentials that expired ",
            ),
        ] {
            let why = why(&of(status));
            assert!(why.contains(expected), "{status}: {why}");
        }
    }
}
