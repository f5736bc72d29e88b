//! Faults of a TLS handshake: each new connection meets one.

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::object::ObjectKey;
use kubecache::rustls::crypto::ring::default_provider;
use kubecache::testing::{ApiServer, TestAuthority};

use super::stage::{Row, Stage, faults, meet, secret, value_of};

pub(super) fn stage(hangs: bool) -> Stage {
    let authority = TestAuthority::new("test-authority", default_provider().into()).unwrap();
    Stage::of(ApiServer::builder(), Some(&authority), hangs)
}

faults! {
    meet(stage);
    certificate {
        fault: r#"{"act":"certificate","flaw":"expired"}"#,
        reads: ["Tls", "Tls", "one", "Tls"],
        says: "expired",
        kept: "-",
        told: Some(ErrorKind::Tls),
        hangs: false,
    }
    certificate_not_yet_valid {
        fault: r#"{"act":"certificate","flaw":"not-yet-valid"}"#,
        reads: ["Tls", "Tls", "one", "Tls"],
        says: "valid",
        kept: "-",
        told: Some(ErrorKind::Tls),
        hangs: false,
    }
    certificate_wrong_host {
        fault: r#"{"act":"certificate","flaw":"wrong-host"}"#,
        reads: ["Tls", "Tls", "one", "Tls"],
        says: "127.0.0.1",
        kept: "-",
        told: Some(ErrorKind::Tls),
        hangs: false,
    }
    certificate_unknown_authority {
        fault: r#"{"act":"certificate","flaw":"unknown-authority"}"#,
        reads: ["Tls", "Tls", "one", "Tls"],
        says: "authority",
        kept: "-",
        told: Some(ErrorKind::Tls),
        hangs: false,
    }
    client_certificate {
        fault: r#"{"act":"client-certificate"}"#,
        reads: ["Tls", "Tls", "one", "Tls"],
        says: "client certificate",
        kept: "-",
        told: Some(ErrorKind::Tls),
        hangs: false,
    }
    stall {
        fault: r#"{"act":"stall","part":"handshake","after":10}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "handshake",
        kept: "-",
        told: Some(ErrorKind::Timeout),
        hangs: true,
    }
    dribble_handshake {
        fault: r#"{"act":"dribble","part":"handshake","bytes":1,"everyMilliseconds":5000}"#,
        reads: ["Timeout", "Timeout", "one", "Timeout"],
        says: "handshake",
        kept: "-",
        told: None,
        hangs: true,
    }
}

/// A server shows certificates of an authority that nobody trusts, and then of the right one again.
#[test]
fn rotate_tls() {
    let stage = stage(false);
    let authority = |name| TestAuthority::new(name, default_provider().into()).unwrap();
    stage
        .server
        .rotate_tls(&authority("other-authority"))
        .unwrap();
    let kept = stage.client.get::<Secret>(&ObjectKey::new("shop", "db"));
    assert_eq!(value_of(&kept.unwrap()), "one", "on a kept connection");
    stage.server.crash();
    stage.server.come_back().unwrap();
    let [got, listed, _, _] = stage.reads();
    assert!(got.starts_with("Tls") && listed.starts_with("Tls"), "{got}");
    stage.until_told(ErrorKind::Tls);
    stage
        .server
        .rotate_tls(&authority("test-authority"))
        .unwrap();
    stage.server.apply(&secret("db", "two")).unwrap();
    stage.follow("two");
}
