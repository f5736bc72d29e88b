//! Cases of the differential test about YAML itself: documents, and ways to write the same.

use super::cases::Cases;

impl Cases<'_> {
    pub(super) fn contexts(&mut self) {
        let text = self.parts().text();
        let rows = [
            ("none", text.replace("current-context: x\n", "")),
            (
                "empty",
                text.replace("current-context: x", "current-context: ''"),
            ),
            (
                "unknown",
                text.replace("current-context: x", "current-context: y"),
            ),
            ("no-user", text.replace(", user: u}}]", "}}]")),
            ("empty-user", text.replace("user: u}}]", "user: ''}}]")),
            ("unknown-user", text.replace("user: u}}]", "user: v}}]")),
            ("no-cluster", text.replace("{cluster: c, user", "{user")),
            (
                "unknown-cluster",
                text.replace("{cluster: c, user", "{cluster: d, user"),
            ),
            (
                "namespace",
                text.replace("user: u}}]", "user: u, namespace: shop}}]"),
            ),
            (
                "twice",
                text.replace(
                    "contexts: [",
                    "contexts: [{name: x, context: {cluster: d}}, ",
                ),
            ),
            (
                "user-twice",
                text.replace("users: [", "users: [{name: u, user: {token: other}}, "),
            ),
            (
                "no-name",
                text.replace("users: [", "users: [{user: {token: other}}, "),
            ),
            (
                "null-context",
                text.replace(
                    "contexts: [{name: x, context: {cluster: c, user: u}}]",
                    "contexts: [{name: x, context: ~}]",
                ),
            ),
            (
                "null-user",
                text.replace("user: {token: made-up}", "user: ~"),
            ),
            (
                "null-users",
                text.replace("users: [{name: u, user: {token: made-up}}]", "users: ~"),
            ),
            (
                "users-mapping",
                text.replace("users: [{name: u, user: {token: made-up}}]", "users: {}"),
            ),
            ("null-entry", text.replace("users: [", "users: [~, ")),
        ];
        for (name, text) in rows {
            self.add(&format!("context-{name}"), text);
        }
    }

    pub(super) fn documents(&mut self) {
        let text = self.parts().text();
        let other = text.replace("made-up", "second");
        let utf16 = |mark: bool, bytes: fn(u16) -> [u8; 2]| {
            let mark = mark.then_some(0xfeff);
            let units = mark.into_iter().chain(text.encode_utf16());
            units.flat_map(bytes).collect::<Vec<_>>()
        };
        let rows: Vec<(&str, Vec<u8>)> = vec![
            ("plain", text.clone().into()),
            ("no-kind", text.replace("kind: Config\n", "").into()),
            ("no-version", text.replace("apiVersion: v1\n", "").into()),
            (
                "neither",
                text.replace("apiVersion: v1\nkind: Config\n", "").into(),
            ),
            (
                "other-kind",
                text.replace("kind: Config", "kind: Pod").into(),
            ),
            (
                "other-version",
                text.replace("apiVersion: v1", "apiVersion: v2").into(),
            ),
            ("leading-marker", format!("---\n{text}").into()),
            ("trailing-marker", format!("{text}---\n").into()),
            ("trailing-marker-twice", format!("{text}---\n---\n").into()),
            ("trailing-dots", format!("{text}...\n").into()),
            ("second", format!("{text}---\n{other}").into()),
            ("second-wrong", format!("{text}---\n[\n").into()),
            ("second-text", format!("{text}---\nhello\n").into()),
            ("first-empty", format!("---\n---\n{text}").into()),
            ("after-dots", format!("{text}...\nhello: [\n").into()),
            ("directive", format!("%YAML 1.1\n---\n{text}").into()),
            ("directive-1.2", format!("%YAML 1.2\n---\n{text}").into()),
            (
                "tag-directive",
                format!("%TAG ! tag:x,2000:\n---\n{text}").into(),
            ),
            ("comment", format!("# hello\n{text}# bye\n").into()),
            ("mark", format!("\u{feff}{text}").into()),
            ("carriage-returns", text.replace('\n', "\r\n").into()),
            ("old-mac", text.replace('\n', "\r").into()),
            ("no-last-break", text.trim_end().into()),
            ("utf-16-le", utf16(true, u16::to_le_bytes)),
            ("utf-16-be", utf16(true, u16::to_be_bytes)),
            ("utf-16-le-unmarked", utf16(false, u16::to_le_bytes)),
            ("utf-16-be-unmarked", utf16(false, u16::to_be_bytes)),
            (
                "latin-1",
                text.replace("made-up", "made-\u{1}")
                    .replace('\u{1}', "up")
                    .into_bytes()
                    .into_iter()
                    .chain(*b"# \xe9\n")
                    .collect(),
            ),
            ("nul", format!("{text}\0").into()),
            ("control", format!("{text}# \u{7}\n").into()),
            ("empty", Vec::new()),
            ("blank", b"\n \n".to_vec()),
            ("text", b"hello\n".to_vec()),
            ("list", b"[]\n".to_vec()),
            ("null", b"~\n".to_vec()),
            ("broken", format!("{text}users: [\n").into()),
            ("tab-indent", b"clusters:\n\t- name: c\n".to_vec()),
        ];
        for (name, text) in rows {
            self.add(&format!("document-{name}"), text);
        }
    }

    /// Ways to write the same in YAML.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(super) fn shapes(&mut self) {
        let text = self.parts().text();
        let cluster = self.parts().cluster;
        let (server, data) = (self.server(), self.data("authority.pem"));
        let users = "users: [{name: u, user: {token: made-up}}]";
        let with_users = |users_now: &str| text.replace(users, users_now);
        let json = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Config\",\"current-context\":\"x\",\
             \"clusters\":[{{\"name\":\"c\",\"cluster\":{{\"server\":\"{server}\",\
             \"certificate-authority-data\":\"{data}\"}}}}],\
             \"users\":[{{\"name\":\"u\",\"user\":{{\"token\":\"made-up\"}}}}],\
             \"contexts\":[{{\"name\":\"x\",\"context\":{{\"cluster\":\"c\",\"user\":\"u\"}}}}]}}"
        );
        let rows: Vec<(&str, String)> = vec![
            ("json", json.clone()),
            ("json-tabs", json.replace(',', ",\n\t")),
            (
                "block",
                with_users("users:\n- name: u\n  user:\n    token: made-up"),
            ),
            (
                "block-indented",
                with_users("users:\n  - name: u\n    user:\n      token: made-up"),
            ),
            (
                "tab-after-dash",
                with_users("users:\n-\tname: u\n\tuser: {token: made-up}"),
            ),
            (
                "tab-after-dash-alone",
                with_users("users:\n-\tname: u\n  user: {token: made-up}"),
            ),
            (
                "tab-after-dash-flow",
                with_users("users:\n-\t{name: u, user: {token: made-up}}"),
            ),
            (
                "tab-after-colon",
                with_users("users: [{name:\tu, user: {token:\tmade-up}}]"),
            ),
            (
                "tab-before-comment",
                with_users("users: [{name: u, user: {token: made-up}}]\t# x"),
            ),
            (
                "tab-in-flow",
                with_users("users: [{name: u,\n\tuser: {token: made-up}}]"),
            ),
            (
                "literal",
                with_users("users:\n- name: u\n  user:\n    token: |\n      made-up"),
            ),
            (
                "literal-stripped",
                with_users("users:\n- name: u\n  user:\n    token: |-\n      made-up"),
            ),
            (
                "folded",
                with_users("users:\n- name: u\n  user:\n    token: >-\n      made-up"),
            ),
            (
                "literal-kept",
                with_users("users:\n- name: u\n  user:\n    token: |+\n      made-up\n\n"),
            ),
            (
                "two-lines",
                with_users("users:\n- name: u\n  user:\n    token: made\n      up"),
            ),
            (
                "explicit-key",
                with_users("users:\n- ? name\n  : u\n  ? user\n  : token: made-up"),
            ),
            (
                "quoted-keys",
                with_users("'users': [{\"name\": u, 'user': {\"token\": made-up}}]"),
            ),
            (
                "anchor",
                with_users("users: [{name: u, user: &a {token: made-up}}, {name: v, user: *a}]"),
            ),
            (
                "alias",
                with_users("users: [{name: v, user: &a {token: made-up}}, {name: u, user: *a}]"),
            ),
            (
                "alias-of-text",
                with_users(
                    "users: [{name: &n u, user: {token: made-up, username: ~}}, \
                     {name: v, user: {token: *n}}]",
                ),
            ),
            (
                "merge",
                with_users(
                    "users: [{name: v, user: &a {token: made-up}}, {name: u, user: {<<: *a}}]",
                ),
            ),
            (
                "merge-over",
                with_users(
                    "users: [{name: v, user: &a {token: other}}, \
                     {name: u, user: {<<: *a, token: made-up}}]",
                ),
            ),
            (
                "merge-under",
                with_users(
                    "users: [{name: v, user: &a {token: other}}, \
                     {name: u, user: {token: made-up, <<: *a}}]",
                ),
            ),
            (
                "merge-list",
                with_users(
                    "users: [{name: v, user: &a {token: made-up}}, \
                     {name: w, user: &b {token: other, as: jane}}, {name: u, user: {<<: [*a, \
                     *b]}}]",
                ),
            ),
            (
                "merge-list-reversed",
                with_users(
                    "users: [{name: v, user: &a {token: made-up}}, \
                     {name: w, user: &b {token: other, as: jane}}, {name: u, user: {<<: [*b, \
                     *a]}}]",
                ),
            ),
            (
                "merge-inline",
                with_users("users: [{name: u, user: {<<: {token: made-up}}}]"),
            ),
            (
                "merge-of-merge",
                with_users(
                    "users: [{name: v, user: &a {token: made-up}}, \
                     {name: w, user: &b {<<: *a, as: jane}}, {name: u, user: {<<: *b}}]",
                ),
            ),
            (
                "merge-twice",
                with_users(
                    "users: [{name: v, user: &a {token: made-up}}, \
                     {name: w, user: &b {as: jane}}, {name: u, user: {<<: *a, <<: *b}}]",
                ),
            ),
            (
                "merge-text",
                with_users("users: [{name: u, user: {<<: made-up}}]"),
            ),
            (
                "merge-null",
                with_users("users: [{name: u, user: {<<: ~, token: made-up}}]"),
            ),
            (
                "merge-empty-list",
                with_users("users: [{name: u, user: {<<: [], token: made-up}}]"),
            ),
            (
                "merge-list-of-text",
                with_users("users: [{name: u, user: {<<: [a], token: made-up}}]"),
            ),
            (
                "merge-quoted",
                with_users("users: [{name: u, user: {'<<': {token: other}, token: made-up}}]"),
            ),
            (
                "merge-tagged",
                with_users("users: [{name: u, user: {!!merge <<: {token: made-up}}}]"),
            ),
            (
                "duplicate-token",
                with_users("users: [{name: u, user: {token: first, token: made-up}}]"),
            ),
            (
                "duplicate-null",
                with_users("users: [{name: u, user: {token: first, token: ~}}]"),
            ),
            (
                "duplicate-list",
                format!("{text}users: [{{name: u, user: {{token: last}}}}]\n"),
            ),
            (
                "duplicate-quoted",
                with_users("users: [{name: u, user: {token: first, 'token': made-up}}]"),
            ),
            ("duplicate-current", format!("{text}current-context: y\n")),
            (
                "duplicate-server",
                text.replace(
                    &cluster,
                    &format!("server: 'https://127.0.0.1:1', {cluster}"),
                ),
            ),
            (
                "duplicate-mapping",
                with_users("users: [{name: u, user: {token: first}, user: {as: jane}}]"),
            ),
            (
                "upper-key",
                with_users("users: [{name: u, user: {Token: made-up}}]"),
            ),
            (
                "number-key",
                with_users("users: [{name: u, user: {token: made-up, 5: x}}]"),
            ),
            (
                "bool-key",
                with_users("users: [{name: u, user: {token: made-up, yes: x}}]"),
            ),
            (
                "null-key",
                with_users("users: [{name: u, user: {token: made-up, ~: x}}]"),
            ),
            (
                "list-key",
                with_users("users: [{name: u, user: {token: made-up, [a]: x}}]"),
            ),
            (
                "float-key",
                with_users("users: [{name: u, user: {token: made-up, 1.5: x}}]"),
            ),
            (
                "bare-key",
                with_users("users: [{name: u, user: {token: made-up, x}}]"),
            ),
            (
                "last-comma",
                with_users("users: [{name: u, user: {token: made-up,},},]"),
            ),
            (
                "unknown-alias",
                with_users("users: [{name: u, user: {token: *x}}]"),
            ),
            (
                "unknown-tag",
                with_users("users: [{name: u, user: {token: !x made-up}}]"),
            ),
            (
                "binary-tag",
                with_users("users: [{name: u, user: {token: !!binary bWFkZS11cA==}}]"),
            ),
            (
                "map-tag",
                with_users("users: [{name: u, user: !!map {token: made-up}}]"),
            ),
            (
                "seq-tag",
                with_users("users: !!seq [{name: u, user: {token: made-up}}]"),
            ),
            (
                "set-tag",
                with_users("users: [{name: u, user: {token: made-up}, x: !!set {a, b}}]"),
            ),
            (
                "extensions",
                format!("{text}extensions: [{{name: x, extension: {{a: [1, 2.5, ~, yes]}}}}]\n"),
            ),
            (
                "preferences",
                format!("{text}preferences: {{colors: true}}\n"),
            ),
            (
                "preferences-wrong",
                format!("{text}preferences: {{colors: red}}\n"),
            ),
            ("preferences-empty", format!("{text}preferences: {{}}\n")),
        ];
        for (name, text) in rows {
            self.add(&format!("shape-{name}"), text);
        }
    }
}
