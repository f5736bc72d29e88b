//! Each part of a kubeconfig, doubled: the work at most doubles. And the growth by a few aliases.

use super::*;
use crate::wire::steps::grow_with_the_size;

/// A kubeconfig with text in its lists of users, clusters and contexts, and after all of them.
fn kubeconfig(users: &str, clusters: &str, contexts: &str, behind: &str) -> String {
    format!(
        "{{current-context: c, clusters: [{clusters}{{name: k, cluster: {{server: 'http://a'}}}}],
users: [{users}{{name: u, user: {{token: t}}}}],
contexts: [{contexts}{{name: c, context: {{cluster: k, user: u}}}}]{behind}}}
"
    )
}

/// Makes a part of `bytes` bytes from numbered pieces.
fn sized(bytes: usize, piece: Piece<'_>) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&piece(number));
    }
    text
}

/// Puts a part into a kubeconfig.
type Frame<'a> = &'a dyn Fn(&str) -> String;

/// Writes the piece of a part with that number.
type Piece<'a> = &'a dyn Fn(usize) -> String;

#[test]
fn what_is_twice_as_large_is_at_most_twice_the_work() {
    let stage = Stage::new("sizes");
    let in_users = |part: &str| kubeconfig(part, "", "", "");
    let in_env = |part: &str| {
        let exec = format!("{{command: x, apiVersion: v1, env: [{part}]}}");
        kubeconfig("", "", "", &format!(", e: &e {{a: b}}, exec: {exec}"))
    };
    let in_extensions = |part: &str| {
        let cluster = format!("{{name: l, cluster: {{server: x, extensions: [{part}]}}}},");
        kubeconfig("", &cluster, "", "")
    };
    let rows: [(&str, Frame<'_>, Piece<'_>); 12] = [
        ("users", &in_users, &|nth| {
            format!("{{name: n{nth}, user: {{token: t}}}},")
        }),
        ("one user", &in_users, &|_| {
            "{name: n, user: {}},".to_owned()
        }),
        ("clusters", &|part| kubeconfig("", part, "", ""), &|nth| {
            format!("{{name: n{nth}, cluster: {{server: x}}}},")
        }),
        ("contexts", &|part| kubeconfig("", "", part, ""), &|nth| {
            format!("{{name: n{nth}, context: {{cluster: k}}}},")
        }),
        (
            "fields",
            &|part| kubeconfig("", "", "", &format!(", {part}")),
            &|nth| format!("k{nth}: v, "),
        ),
        (
            "a field",
            &|part| kubeconfig("", "", "", &format!(", {part}")),
            &|_| "k: v, ".to_owned(),
        ),
        (
            "a long text",
            &|part| kubeconfig("", "", "", &format!(", k: '{part}'")),
            &|_| "''".to_owned(),
        ),
        ("variables", &in_env, &|nth| {
            format!("{{name: n{nth}, value: v}},")
        }),
        ("aliases", &in_env, &|_| "*e,".to_owned()),
        ("merges", &in_env, &|_| "{<<: *e},".to_owned()),
        ("extensions", &in_extensions, &|nth| {
            format!("{{name: n{nth}}},")
        }),
        (
            "a list of lists",
            &|part| kubeconfig("", "", "", &format!(", k: [{part}]")),
            &|_| "[[]],".to_owned(),
        ),
    ];
    for (name, frame, piece) in rows {
        grow_with_the_size(name, |bytes| {
            drop(stage.load(&frame(&sized(bytes, piece))));
        });
    }
}

/// 700 bytes of aliases, written out, would be 2 GB of a plugin's extension.
#[test]
fn aliases_in_an_extension_add_a_limited_amount() {
    let stage = Stage::new("aliases");
    let mut levels = vec!["l0: &l0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for level in 1..=9 {
        let below = vec![format!("*l{}", level - 1); 10].join(", ");
        levels.push(format!("l{level}: &l{level} [{below}]"));
    }
    let levels = levels.join(", ");
    let name = "client.authentication.k8s.io/exec";
    let extension = format!("extensions: [{{name: {name}, extension: {{{levels}}}}}]");
    let cluster = format!("{{name: l, cluster: {{server: 'https://a', {extension}}}}},");
    let why = stage.load(&kubeconfig("", &cluster, "", "")).unwrap_err();
    let expected = "aliases and merge keys (<<) add more than 8388608 bytes at line 1";
    assert!(why.ends_with(expected), "{why}");
}
