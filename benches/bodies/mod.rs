//! List bodies as an API server writes them, made up from a seed: Secrets, ConfigMaps and Pods.

#![allow(
    dead_code,
    reason = "each program that includes this file uses a part of it"
)]

mod decode;

use std::fmt::Write as _;

pub(crate) use decode::decode;

/// What the objects of a body carry besides what readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dress {
    /// Neither managed fields nor a last-applied annotation.
    Bare,
    /// Managed fields on all, a last-applied annotation on every third, as on a server that people
    /// and controllers use.
    AsServed,
}

/// The kinds of object a body can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Three keys of 40 to 400 bytes in base64.
    Secret,
    /// A file of settings and three short values.
    ConfigMap,
    /// Two containers, volumes, a full status.
    Pod,
}

/// A whole list of `count` objects.
pub(crate) fn list(kind: Kind, dress: Dress, count: usize) -> Vec<u8> {
    let mut random = Random(0x5eed);
    let mut body = format!(
        "{{\"kind\":\"{kind:?}List\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"resourceVersion\":\"918273\"}},\"items\":["
    );
    for nth in 0..count {
        if nth > 0 {
            body.push(',');
        }
        body.push_str(&object(kind, dress, nth, &mut random));
    }
    body.push_str("]}\n");
    body.into_bytes()
}

/// One object, without `kind` and `apiVersion`, as the items of a list come.
pub(crate) fn object(kind: Kind, dress: Dress, nth: usize, random: &mut Random) -> String {
    let payload = match kind {
        Kind::Secret => secret(random),
        Kind::ConfigMap => config_map(random),
        Kind::Pod => pod(nth, random),
    };
    let mut json = String::from(r#"{"metadata":{"#);
    write!(
        json,
        "\"name\":\"{}-{nth:05}\",\"namespace\":\"team-{}\",\"uid\":\"{}\",\
         \"resourceVersion\":\"{}\",\"creationTimestamp\":\"2026-03-0{}T11:22:33Z\",\
         \"labels\":{{\"app.kubernetes.io/name\":\"checkout\",\
         \"app.kubernetes.io/instance\":\"checkout-{}\",\
         \"app.kubernetes.io/managed-by\":\"Helm\"}}",
        name(kind),
        nth % 17,
        random.uid(),
        random.below(900_000),
        random.below(9) + 1,
        nth % 5
    )
    .unwrap();
    if dress == Dress::AsServed {
        let applied = nth
            .is_multiple_of(3)
            .then(|| last_applied(kind, nth, &payload));
        if let Some(applied) = &applied {
            let quoted = serde_json::to_string(applied).unwrap();
            write!(
                json,
                r#","annotations":{{"kubectl.kubernetes.io/last-applied-configuration":{quoted}}}"#
            )
            .unwrap();
        }
        json.push_str(r#","managedFields":["#);
        json.push_str(&managed_fields(kind, &payload, applied.is_some()));
        json.push(']');
    }
    write!(json, "}},{payload}}}").unwrap();
    json
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Secret => "credentials",
        Kind::ConfigMap => "settings",
        Kind::Pod => "checkout-6b7f9c5d4",
    }
}

fn secret(random: &mut Random) -> String {
    let length = [40, 120, 400];
    let value = length.map(|length| random.base64(length));
    format!(
        r#""data":{{"username":"{}","password":"{}","tls.key":"{}"}},"type":"Opaque""#,
        value[0], value[1], value[2]
    )
}

fn config_map(random: &mut Random) -> String {
    let mut file = String::new();
    for line in 0..12 {
        writeln!(
            file,
            "feature-{line}:\n  enabled: true\n  weight: {}",
            random.below(1000)
        )
        .unwrap();
    }
    let file = serde_json::to_string(&file).unwrap();
    format!(
        "\"data\":{{\"LOG_LEVEL\":\"info\",\"REGION\":\"eu-central-1\",\"TIMEOUT_SECONDS\":\"{}\",\
         \"settings.yaml\":{file}}}",
        random.below(60)
    )
}

fn container(name: &str) -> String {
    format!(
        "{{\"name\":\"{name}\",\"image\":\"registry.example/{name}:1.24.3\",\
             \"args\":[\"--listen=:8080\",\"--region=eu-central-1\"],\
             \"ports\":[{{\"name\":\"http\",\"containerPort\":8080,\"protocol\":\"TCP\"}}],\
             \"env\":[{{\"name\":\"DB_PASSWORD\",\
             \"valueFrom\":{{\"secretKeyRef\":{{\"name\":\"credentials\",\
             \"key\":\"password\"}}}}}},{{\"name\":\"LOG_LEVEL\",\"value\":\"info\"}}],\
             \"resources\":{{\"limits\":{{\"cpu\":\"500m\",\"memory\":\"256Mi\"}},\
             \"requests\":{{\"cpu\":\"100m\",\"memory\":\"128Mi\"}}}},\
             \"volumeMounts\":[{{\"name\":\"settings\",\"readOnly\":true,\
             \"mountPath\":\"/etc/settings\"}},{{\"name\":\"kube-api-access\",\"readOnly\":true,\
             \"mountPath\":\"/var/run/secrets/kubernetes.io/serviceaccount\"}}],\
             \"livenessProbe\":{{\"httpGet\":{{\"path\":\"/healthz\",\"port\":\"http\",\
             \"scheme\":\"HTTP\"}},\"timeoutSeconds\":1,\"periodSeconds\":10,\
             \"successThreshold\":1,\"failureThreshold\":3}},\
             \"terminationMessagePath\":\"/dev/termination-log\",\
             \"terminationMessagePolicy\":\"File\",\"imagePullPolicy\":\"IfNotPresent\"}}"
    )
}

fn pod(nth: usize, random: &mut Random) -> String {
    let status = |name: &str, id: &str| {
        format!(
            "{{\"name\":\"{name}\",\
             \"state\":{{\"running\":{{\"startedAt\":\"2026-03-04T11:22:40Z\"}}}},\
             \"lastState\":{{}},\"ready\":true,\"restartCount\":0,\
             \"image\":\"registry.example/{name}:1.24.3\",\
             \"imageID\":\"registry.example/{name}@sha256:{id}\",\
             \"containerID\":\"containerd://{id}\",\"started\":true}}"
        )
    };
    let condition = |name: &str| {
        format!(
            "{{\"type\":\"{name}\",\"status\":\"True\",\"lastProbeTime\":null,\
             \"lastTransitionTime\":\"2026-03-04T11:22:41Z\"}}"
        )
    };
    let conditions: Vec<String> = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .map(condition)
    .to_vec();
    format!(
        "\"spec\":{{\"volumes\":[{{\"name\":\"settings\",\"configMap\":{{\"name\":\"settings\",\
         \"defaultMode\":420}}}},{{\"name\":\"kube-api-access\",\
         \"projected\":{{\"sources\":[{{\"serviceAccountToken\":{{\"expirationSeconds\":3607,\
         \"path\":\"token\"}}}},{{\"configMap\":{{\"name\":\"kube-root-ca.crt\",\
         \"items\":[{{\"key\":\"ca.crt\",\"path\":\"ca.crt\"}}]}}}}],\"defaultMode\":420}}}}],\
         \"containers\":[{},{}],\"restartPolicy\":\"Always\",\"terminationGracePeriodSeconds\":30,\
         \"dnsPolicy\":\"ClusterFirst\",\"serviceAccountName\":\"checkout\",\
         \"serviceAccount\":\"checkout\",\"nodeName\":\"node-{}\",\"securityContext\":{{}},\
         \"schedulerName\":\"default-scheduler\",\
         \"tolerations\":[{{\"key\":\"node.kubernetes.io/not-ready\",\"operator\":\"Exists\",\
         \"effect\":\"NoExecute\",\"tolerationSeconds\":300}},\
         {{\"key\":\"node.kubernetes.io/unreachable\",\"operator\":\"Exists\",\
         \"effect\":\"NoExecute\",\"tolerationSeconds\":300}}],\"priority\":0,\
         \"enableServiceLinks\":true,\"preemptionPolicy\":\"PreemptLowerPriority\"}},\
         \"status\":{{\"phase\":\"Running\",\"conditions\":[{}],\"hostIP\":\"10.0.0.{}\",\
         \"podIP\":\"10.1.2.{}\",\"podIPs\":[{{\"ip\":\"10.1.2.3\"}}],\
         \"startTime\":\"2026-03-04T11:22:35Z\",\"containerStatuses\":[{},{}],\
         \"qosClass\":\"Burstable\"}}",
        container("checkout"),
        container("proxy"),
        nth % 40,
        conditions.join(","),
        nth % 250,
        nth % 250,
        status("checkout", &random.hex(64)),
        status("proxy", &random.hex(64)),
    )
}

fn last_applied(kind: Kind, nth: usize, payload: &str) -> String {
    let spec = payload.split(r#","status":"#).next().unwrap();
    format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"{kind:?}\",\"metadata\":{{\"annotations\":{{}},\
         \"name\":\"{}-{nth:05}\",\"namespace\":\"team-{}\"}},{spec}}}",
        name(kind),
        nth % 17
    ) + "\n"
}

/// One entry per manager; the fields are those of the payload, in the `f:` spelling.
fn managed_fields(kind: Kind, payload: &str, applied: bool) -> String {
    let value: serde_json::Value = serde_json::from_str(&format!("{{{payload}}}")).unwrap();
    let annotations = if applied {
        r#""f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},"#
    } else {
        ""
    };
    let labels = "\"f:labels\":{\".\":{},\"f:app.kubernetes.io/instance\":{},\
                  \"f:app.kubernetes.io/managed-by\":{},\"f:app.kubernetes.io/name\":{}}";
    let mut fields = format!(r#"{{"f:metadata":{{{annotations}{labels}}}"#);
    let mut status = String::new();
    for (name, member) in value.as_object().unwrap() {
        let owned = format!(r#","f:{name}":{}"#, owned(member));
        if name == "status" {
            status = owned;
        } else {
            fields.push_str(&owned);
        }
    }
    let entry = |manager: &str, subresource: &str, fields: &str| {
        format!(
            "{{\"manager\":\"{manager}\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"time\":\"2026-03-04T11:22:33Z\",\"fieldsType\":\"FieldsV1\",\
             \"fieldsV1\":{fields}{subresource}}}"
        )
    };
    fields.push('}');
    let manager = if applied {
        "kubectl-client-side-apply"
    } else {
        "helm"
    };
    let mut entries = entry(manager, "", &fields);
    if kind == Kind::Pod {
        let status = format!("{{{}}}", status.trim_start_matches(','));
        entries.push(',');
        entries.push_str(&entry("kubelet", r#","subresource":"status""#, &status));
    }
    entries
}

fn owned(value: &serde_json::Value) -> String {
    let members: Vec<String> = match value {
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(name, member)| format!(r#""f:{name}":{}"#, owned(member)))
            .collect(),
        serde_json::Value::Array(items) => items
            .iter()
            .filter_map(|item| {
                let name = item.get("name").or_else(|| item.get("type"))?;
                Some(format!(
                    r#""k:{{\"name\":\"{}\"}}":{}"#,
                    name.as_str()?,
                    owned(item)
                ))
            })
            .collect(),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => Vec::new(),
    };
    if members.is_empty() {
        "{}".to_owned()
    } else {
        format!(r#"{{".":{{}},{}}}"#, members.join(","))
    }
}

/// A generator that gives the same numbers for the same seed everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number (splitmix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn pick(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length)
            .map(|_| char::from(alphabet[self.below(alphabet.len())]))
            .collect()
    }

    fn base64(&mut self, length: usize) -> String {
        self.pick(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
            length / 4 * 4,
        )
    }

    fn hex(&mut self, length: usize) -> String {
        self.pick(b"0123456789abcdef", length)
    }

    fn uid(&mut self) -> String {
        let hex = self.hex(32);
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }
}
