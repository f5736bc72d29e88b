//! Faults of a TLS handshake: each new connection meets one.

use k8s_openapi::api::core::v1::Secret;
use kubecache::ErrorKind;
use kubecache::object::ObjectKey;
use kubecache::rustls::crypto::ring::default_provider;
use kubecache::testing::{ApiServer, TestAuthority};

use super::bed::{Bed, Row, faults, meet, secret, value_of};

pub(super) fn bed(hangs: bool) -> Bed {
    let authority = TestAuthority::new("test-authority", default_provider().into()).unwrap();
    Bed::of(ApiServer::builder(), Some(&authority), hangs)
}

faults! {
    meet(bed);
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
    let bed = bed(false);
    let authority = |name| TestAuthority::new(name, default_provider().into()).unwrap();
    bed.server
        .rotate_tls(&authority("other-authority"))
        .unwrap();
    let kept = bed.client.get::<Secret>(&ObjectKey::new("shop", "db"));
    assert_eq!(value_of(&kept.unwrap()), "one", "on a kept connection");
    bed.server.crash();
    bed.server.come_back().unwrap();
    let [got, listed, _, _] = bed.reads();
    assert!(got.starts_with("Tls") && listed.starts_with("Tls"), "{got}");
    bed.until_told(ErrorKind::Tls);
    bed.server.rotate_tls(&authority("test-authority")).unwrap();
    bed.server.apply(&secret("db", "two")).unwrap();
    bed.follow("two");
}
