//! Answers of plugins, each measured: client-go 0.37.2 takes it with this outcome, or refuses it.

use super::exec_credential::{ExecVersion, decode};

/// Refused.
const NO: Option<&str> = None;
/// The token `t` without an end.
const T: Option<&str> = Some("t  ");

/// The texts that replace the marks in the rows.
const MARKS: [(&str, &str); 5] = [
    ("<JSON>", r#"{<J>,"status":{"token":"t"}}"#),
    (
        "<FLOW>",
        "{kind: ExecCredential, <API>, status: {token: t}}",
    ),
    ("<HEAD>", "kind: ExecCredential\n<API>\n"),
    (
        "<J>",
        r#""apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential""#,
    ),
    ("<API>", "apiVersion: client.authentication.k8s.io/v1"),
];

#[rustfmt::skip]
const ROWS: &[(&str, Option<&str>)] = &[
    // JSON, of which each member counts.
    ("<JSON>", T),
    (" \r\n<JSON>\r\n", T),
    (r#"{<J>,"status":{"token":"t"},"spec":5}"#, NO),
    (r#"{<J>,"status":{"token":"t"},"spec":null,"metadata":5}"#, T),
    (r#"{<J>,"status":{"token":"t"},"unknown":{"a":[1]}}"#, T),
    (r#"{<J>,"status":{"token":"t"},"unknown":{a b}}"#, NO),
    (r#"{<J>,"status":{"token":"t"},"unknown":[1,]}"#, NO),
    (r#"{<J>,"status":{"token":"t"},"unknown":01}"#, NO),
    (r#"{<J>,"status":{"token":"t",}}"#, NO),
    (r#"{<J>,"status":{token: flow}}"#, NO),
    (r#"{<J>,"status":{"tok\u0065n":"t"}}"#, T),
    (r#"{<J>,"status":{"Token":"t"}}"#, NO),
    (r#"{<J>,"Status":{"token":"t"}}"#, NO),
    (r#"{<J>,"status":{"token":"a","token":"t"}}"#, T),
    (r#"{<J>,"status":{"token":"t","token":null}}"#, T),
    (r#"{<J>,"status":{"token":"t","token":""}}"#, NO),
    (r#"{<J>,"status":{"token":5,"token":"t"}}"#, NO),
    (r#"{<J>,"status":{"token":"a"},"status":{"token":"t"}}"#, T),
    (r#"{<J>,"status":{"clientKeyData":"k"},"status":{"clientCertificateData":"c"}}"#,
        Some(" c k")),
    (r#"{<J>,"status":{"token":"t"},"status":null}"#, NO),
    (r#"{<J>,"status":{"clientKeyData":"k"},"status":null,"status":{"token":"t"}}"#, T),
    (r#"{<J>,"status":"x","status":{"token":"t"}}"#, NO),
    (r#"{<J>,"status":[],"status":{"token":"t"}}"#, NO),
    (r#"{<J>,"kind":"Other","status":{"token":"t"}}"#, NO),
    (r#"{<J>,"kind":"Other","kind":null,"status":{"token":"t"}}"#, NO),
    (r#"{<J>,"kind":"Other","kind":"ExecCredential","status":{"token":"t"}}"#, T),
    (r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}"#, T),
    (r#"{<J>,"kind":"","status":{"token":"t"}}"#, T),
    (r#"{<J>,"kind":7,"status":{"token":"t"}}"#, NO),
    (r#"{"kind":"ExecCredential","status":{"token":"t"}}"#, NO),
    (r#"{"apiVersion":null,"kind":null,"status":{"token":"t"}}"#, NO),
    (r#"{<J>,"status":{"token":"t","expirationTimestamp":""}}"#, NO),
    (r#"{<J>,"status":{"token":"t","expirationTimestamp":null}}"#, T),
    (r#"{<J>,"status":{"token":"t","expirationTimestamp":"2001-01-01T00:00:00Z",
        "expirationTimestamp":null}}"#, T),
    (r#"{<J>,"status":{"token":"t","expirationTimestamp":"2001-01-01T00:00:00Z",
        "expirationTimestamp":"2999-01-01T00:00:00Z"}}"#, Some("t   ends")),
    (r#"{<J>,"status":{"token":"t","expirationTimestamp":"x",
        "expirationTimestamp":"2999-01-01T00:00:00Z"}}"#, NO),
    // Text around it, and a byte order mark, which makes it YAML.
    ("\u{feff}<JSON>", T),
    ("\u{feff}<JSON> trailing", T),
    ("\u{feff}{<J>,\"status\":{\"clientKeyData\":\"k\"},\"status\":{\"token\":\"t\"}}", T),
    ("<JSON>\u{feff}", NO),
    ("<JSON> trailing", NO),
    ("<JSON>{}", NO),
    ("<JSON>\n<JSON>", NO),
    ("<JSON>\0", NO),
    ("\u{b}<JSON>", NO),
    ("\u{a0}<JSON>", NO),
    ("[<JSON>]", NO),
    ("warning: old\n<JSON>", NO),
    ("warning\n<JSON>", NO),
    ("<FLOW>", NO),
    ("\u{feff}<FLOW>", T),
    ("--- <FLOW>", T),
    ("--- <FLOW>\n---\nx: [", T),
    // YAML, of which the first document and the last field count.
    ("<HEAD>status: {token: t}", T),
    ("<HEAD>status: {token: t}\n...\n[broken", T),
    ("---\n# c\n<HEAD>status:\n  token: t\n", T),
    ("---\n---\n<HEAD>status: {token: t}", NO),
    ("%YAML 1.1\n---\n<HEAD>status: {token: t}", T),
    ("\u{feff}<HEAD>status: {token: t}", T),
    ("kind: ExecCredential\r\n<API>\r\nstatus:\r\n  token: t\r\n", T),
    ("\t<HEAD>status: {token: t}", NO),
    ("<API>\nstatus: {token: t}", T),
    ("<API>\nkind: ~\nstatus: {token: t}", T),
    ("<API>\nkind: 5\nstatus: {token: t}", NO),
    ("<API>\nkind: execcredential\nstatus: {token: t}", NO),
    ("kind: ExecCredential\nstatus: {token: t}", NO),
    ("<HEAD>status: {clientKeyData: k}\nstatus: {token: t}", T),
    ("<HEAD>status: {token: a, token: t}", T),
    ("<HEAD>status: {token: t, token: ~}", NO),
    ("<HEAD>status: {token: t}\nstatus: ~", NO),
    ("<HEAD>x: {a: 1, a: 2}\nstatus: {token: t}", T),
    ("<HEAD>status: []", NO),
    ("<HEAD>spec: []\nstatus: {token: t}", NO),
    ("<HEAD>spec: {interactive: false}\nstatus: {token: t}", T),
    ("<HEAD>status: {token: yes}", NO),
    ("<HEAD>status: {token: 5}", NO),
    ("<HEAD>status: {token: 1.50}", NO),
    ("<HEAD>status: {token: .inf}", NO),
    ("<HEAD>status: {token: !!int '5'}", NO),
    ("<HEAD>status: {token: !!str 5}", Some("5  ")),
    ("<HEAD>status: {token: 2001-01-01}", Some("2001-01-01  ")),
    ("<HEAD>status: {token: 123e4567}", Some("123e4567  ")),
    ("<HEAD>status: {token: ~}", NO),
    ("<HEAD>status: {token: [t]}", NO),
    ("<HEAD>status: {token: !!binary dA==}", T),
    ("<HEAD>status: {token: !!binary '*'}", NO),
    ("<HEAD>status:\n  ? token\n  : t", T),
    ("<HEAD>status:\n  1: x\n  token: t", T),
    ("<HEAD>x: &x {token: t}\nstatus:\n  <<: *x", T),
    ("<HEAD>x: &x t\nstatus: {token: *x}", T),
    ("<HEAD>status: {token: *x}", NO),
    ("<HEAD>status: &s {token: t, self: *s}", NO),
    ("<HEAD>status:\n  token: |\n    t\n", Some("t\n  ")),
    ("<HEAD>status:\n  clientCertificateData: |\r\n    a\r\n    b\r\n  \
        clientKeyData: >-\n    c\n    d",
        Some(" a\nb\n c d")),
    ("<HEAD>status: {token: t, expirationTimestamp: ''}", NO),
    ("<HEAD>status: {token: t, expirationTimestamp: ~}", T),
    ("<HEAD>status: {token: t, expirationTimestamp: 2999-01-01}", NO),
    ("<HEAD>status: {token: t, expirationTimestamp: 2999-01-01T00:00:00Z}", Some("t   ends")),
    ("", NO),
    ("null", NO),
    ("# only", NO),
    ("text", NO),
];

fn taken(answer: &[u8]) -> Result<String, String> {
    let status = decode(answer, ExecVersion::V1)?;
    let (certificate, key) = status.identity.unwrap_or_default();
    let token = status.token.unwrap_or_default();
    let end = status.valid_for.map_or("", |_| " ends");
    Ok(format!("{} {} {}{end}", *token, *certificate, *key))
}

fn written(row: &str) -> String {
    let marks = MARKS.iter();
    marks.fold(row.to_owned(), |text, (mark, meant)| {
        text.replace(mark, meant)
    })
}

#[test]
fn answers_are_taken_as_go_takes_them() {
    let wrong = ROWS.iter().filter_map(|(row, expected)| {
        let taken = taken(written(row).as_bytes());
        (taken.as_deref().ok() != *expected).then(|| format!("{row:?}: {taken:?}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// As Windows writes it.
#[test]
fn an_answer_in_utf_16_begins_with_its_mark() {
    let units = written("\u{feff}<HEAD>status: {token: t}");
    let units: Vec<_> = units.encode_utf16().collect();
    let little: Vec<_> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<_> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    for answer in [little, big] {
        assert_eq!(taken(&answer).as_deref().ok(), T);
        assert!(taken(&answer[..answer.len() - 1]).is_err());
        assert!(taken(&answer[2..]).is_err());
    }
}

/// In the limits of a kubeconfig: what aliases add, levels, and work that grows with the size.
#[test]
fn an_answer_in_yaml_has_bounds_and_its_error_repeats_nothing() {
    let why = |answer: &str| {
        let why = taken(answer.as_bytes()).unwrap_err();
        assert!(!why.contains("canary"), "{why}");
        why
    };
    let head = written("<HEAD>status: {token: canary}\n");
    let many = vec!["x"; 10_000].join(", ");
    let bomb = format!(
        "{head}a: &a [{many}]\nb: [{}]\n",
        vec!["*a"; 1000].join(", ")
    );
    assert!(why(&bomb).contains("(aliases and merge keys (<<) add more than "));
    let deep = format!("{head}a: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    assert!(why(&deep).contains("no ExecCredential in JSON or YAML ("));
    for broken in [
        "canary: [",
        "canary: 'canary",
        "{canary}",
        "- canary",
        "canary: canary: x",
        "a: *canary",
        "canary",
    ] {
        assert!(
            why(broken).contains("bytes that are no ExecCredential"),
            "{broken}"
        );
    }
    crate::wire::steps::grow_with_the_size("answers", |bytes| {
        for rest in ["k: [b, *c]\n", "status: {token: canary}\n"] {
            let rest = rest.repeat(bytes / rest.len());
            let answer = format!("{head}x: &c canary\n{rest}");
            assert!(taken(answer.as_bytes()).is_ok());
        }
        let status = r#","status":{"token":"t"}"#;
        let statuses = status.repeat(bytes / status.len());
        let answer = written(&format!("{{<J>{statuses}}}"));
        assert_eq!(taken(answer.as_bytes()).as_deref().ok(), T);
    });
}
