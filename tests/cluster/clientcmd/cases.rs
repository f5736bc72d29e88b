//! Kubeconfigs of many kinds, always the same ones: each is a small change of one that works.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;

/// Where the server, the proxy and the certificates of the tests are.
pub(crate) struct Places {
    pub(crate) port: u16,
    pub(crate) proxy: u16,
    pub(crate) certificates: PathBuf,
}

/// One kubeconfig, and the files beside it.
pub(crate) struct Case {
    pub(crate) name: String,
    text: Vec<u8>,
}

/// Files that kubeconfigs may name.
const TOKENS: [(&str, &str); 4] = [
    ("token-file", "token-of-a-file"),
    ("token-file-with-break", "token-of-a-file\n"),
    ("token-file-of-spaces", " \n"),
    ("token-file-empty", ""),
];

impl Case {
    pub(crate) fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let tokens = TOKENS.map(|(name, text)| (name, text.as_bytes().to_vec()));
        let mut files = vec![("config", self.text.clone())];
        files.extend(tokens);
        files
    }
}

/// The four parts of a kubeconfig of one context. Each part is the inside of a mapping in flow
/// style.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) cluster: String,
    user: String,
    context: String,
    rest: String,
}

impl Parts {
    pub(super) fn text(&self) -> String {
        let Self {
            cluster,
            user,
            context,
            rest,
        } = self;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n{rest}\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u{context}}}}}]\n"
        )
    }
}

/// Collects the cases of one server.
pub(super) struct Cases<'a> {
    places: &'a Places,
    all: Vec<Case>,
}

pub(crate) fn cases(places: &Places) -> Vec<Case> {
    let mut cases = Cases {
        places,
        all: Vec::new(),
    };
    cases.scalars();
    cases.flags();
    cases.names();
    cases.credentials();
    cases.servers();
    cases.trust();
    cases.identities();
    cases.impersonation();
    cases.proxies();
    cases.contexts();
    cases.documents();
    cases.shapes();
    cases.all
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Cases<'_> {
    pub(super) fn add(&mut self, name: &str, text: impl Into<Vec<u8>>) {
        let text = text.into();
        let name = name.to_owned();
        self.all.push(Case { name, text });
    }

    pub(super) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.places.port)
    }

    fn path(&self, name: &str) -> String {
        self.places.certificates.join(name).display().to_string()
    }

    pub(super) fn data(&self, name: &str) -> String {
        base64(fs::read(self.places.certificates.join(name)).unwrap())
    }

    /// A kubeconfig that works.
    pub(super) fn parts(&self) -> Parts {
        Parts {
            cluster: format!(
                "server: '{}', certificate-authority-data: {}",
                self.server(),
                self.data("authority.pem")
            ),
            user: "token: made-up".to_owned(),
            context: String::new(),
            rest: String::new(),
        }
    }

    fn user(&mut self, name: &str, user: impl Into<String>) {
        let mut parts = self.parts();
        parts.user = user.into();
        self.add(name, parts.text());
    }

    fn cluster(&mut self, name: &str, cluster: impl Into<String>) {
        let mut parts = self.parts();
        parts.cluster = cluster.into();
        self.add(name, parts.text());
    }

    fn scalars(&mut self) {
        let values = [
            "abc",
            "12345",
            "-7",
            "+7",
            "007",
            "0o17",
            "0x1F",
            "0b11",
            "1_000",
            "1e3",
            "1.5",
            ".5",
            ".inf",
            "-.Inf",
            ".nan",
            "1:30",
            "true",
            "False",
            "yes",
            "No",
            "on",
            "OFF",
            "y",
            "n",
            "~",
            "null",
            "NULL",
            "\"\"",
            "'12345'",
            "\"yes\"",
            "2001-01-01",
            "2001-01-01T00:00:00Z",
            "!!str 5",
            "!!int '5'",
            "!!bool yes",
            "a:b",
            "a#b",
            "'it''s'",
            "\"tab\\tbed\"",
            "\"caf\\u00e9\"",
            "'two words'",
            "' x '",
            "0.",
            "1e",
            "0x",
            "_1",
            "=",
            "12345678901234567890123",
            "'on'",
        ];
        for (index, value) in values.into_iter().enumerate() {
            self.user(&format!("token-{index:02}"), format!("token: {value}"));
        }
        for (index, value) in ["7", "no", "abc", "~", "'7'", "1.0"]
            .into_iter()
            .enumerate()
        {
            self.user(
                &format!("password-{index:02}"),
                format!("username: jane, password: {value}"),
            );
        }
    }

    fn flags(&mut self) {
        let values = [
            "true",
            "True",
            "TRUE",
            "tRuE",
            "yes",
            "Yes",
            "YES",
            "yEs",
            "on",
            "On",
            "ON",
            "y",
            "Y",
            "false",
            "False",
            "FALSE",
            "no",
            "No",
            "NO",
            "off",
            "Off",
            "OFF",
            "n",
            "N",
            "\"true\"",
            "'yes'",
            "1",
            "0",
            "~",
            "",
            "!!bool true",
            "!!bool \"true\"",
            "[]",
        ];
        for (index, value) in values.into_iter().enumerate() {
            let server = self.server();
            self.cluster(
                &format!("insecure-{index:02}"),
                format!("server: '{server}', insecure-skip-tls-verify: {value}"),
            );
        }
    }

    fn names(&mut self) {
        for (index, name) in [
            "5",
            "'5'",
            "true",
            "1e3",
            "~",
            "''",
            "x y",
            "ü",
            "2001-01-01",
        ]
        .into_iter()
        .enumerate()
        {
            let text = self.parts().text();
            let text = text.replace("name: u", &format!("name: {name}"));
            let text = text.replace("user: u", &format!("user: {name}"));
            self.add(&format!("user-name-{index:02}"), text);
            let text = self.parts().text();
            let text = text.replace("name: x", &format!("name: {name}"));
            let text = text.replace("current-context: x", &format!("current-context: {name}"));
            self.add(&format!("context-name-{index:02}"), text);
        }
    }

    fn credentials(&mut self) {
        let identity = format!(
            "client-certificate: {}, client-key: {}",
            self.path("client-one.pem"),
            self.path("client-one.key")
        );
        let fields = [
            "token: made-up",
            "tokenFile: token-file",
            "username: jane",
            "password: secret",
            &identity,
        ];
        for set in 0..32_u32 {
            let chosen = fields.iter().enumerate();
            let chosen = chosen.filter(|(bit, _)| set & (1 << bit) != 0);
            let user: Vec<_> = chosen.map(|(_, field)| *field).collect();
            self.user(&format!("credentials-{set:02}"), user.join(", "));
        }
        for name in [
            "token-file-with-break",
            "token-file-of-spaces",
            "token-file-empty",
            "missing",
        ] {
            self.user(&format!("credentials-{name}"), format!("tokenFile: {name}"));
        }
        self.user("credentials-colon", "username: 'a:b', password: c");
        self.user("credentials-umlaut", "username: jäne, password: ß");
        self.user("credentials-provider", "auth-provider: {name: oidc}");
        self.user("credentials-none", "");
    }

    fn servers(&mut self) {
        let port = self.places.port;
        let rest = format!("certificate-authority-data: {}", self.data("authority.pem"));
        let urls = [
            ("slash", format!("https://127.0.0.1:{port}/")),
            ("path", format!("https://127.0.0.1:{port}/k8s/c-1")),
            ("path-slash", format!("https://127.0.0.1:{port}/k8s/c-1/")),
            (
                "path-slashes",
                format!("https://127.0.0.1:{port}//k8s//c-1"),
            ),
            ("query", format!("https://127.0.0.1:{port}/k8s?x=1")),
            ("query-alone", format!("https://127.0.0.1:{port}?x=1")),
            ("fragment", format!("https://127.0.0.1:{port}/k8s#x")),
            ("escaped", format!("https://127.0.0.1:{port}/a%20b")),
            ("upper", format!("HTTPS://127.0.0.1:{port}")),
            ("name", format!("https://localhost:{port}")),
            ("upper-name", format!("https://LOCALHOST:{port}")),
            ("dot", format!("https://localhost.:{port}")),
            ("user", format!("https://jane:secret@127.0.0.1:{port}")),
            ("no-scheme", format!("127.0.0.1:{port}")),
            ("no-scheme-name", format!("localhost:{port}")),
            ("no-scheme-path", format!("localhost:{port}/k8s")),
            ("http", format!("http://127.0.0.1:{port}")),
            ("http-path", format!("http://127.0.0.1:{port}/k8s")),
            ("ftp", format!("ftp://127.0.0.1:{port}")),
            ("space", format!("https://127.0.0.1:{port}/a b")),
            ("space-before", format!(" https://127.0.0.1:{port}")),
            ("no-port", "https://".to_owned()),
            ("bad-port", "https://127.0.0.1:x".to_owned()),
            ("empty", String::new()),
        ];
        for (name, url) in &urls {
            self.cluster(
                &format!("server-{name}"),
                format!("server: '{url}', {rest}"),
            );
        }
        for (name, url) in [
            ("no-scheme-alone", format!("127.0.0.1:{port}")),
            ("http-alone", format!("http://127.0.0.1:{port}")),
        ] {
            self.cluster(&format!("server-{name}"), format!("server: '{url}'"));
        }
        self.cluster("server-missing", rest.clone());
        self.cluster("server-null", format!("server: ~, {rest}"));
        self.cluster("server-number", format!("server: 5, {rest}"));
    }

    fn trust(&mut self) {
        let (server, data) = (self.server(), self.data("authority.pem"));
        let (path, other) = (self.path("authority.pem"), self.data("other-authority.pem"));
        let short = data.trim_end_matches('=').to_owned();
        let rows = [
            ("none", String::new()),
            ("file", format!("certificate-authority: {path}")),
            (
                "both",
                format!("certificate-authority: missing, certificate-authority-data: {data}"),
            ),
            ("other", format!("certificate-authority-data: {other}")),
            ("missing", "certificate-authority: missing".to_owned()),
            ("no-pem", "certificate-authority-data: aGVsbG8=".to_owned()),
            ("no-base64", "certificate-authority-data: '%%'".to_owned()),
            ("unpadded", format!("certificate-authority-data: {short}")),
            (
                "broken-lines",
                format!(
                    "certificate-authority-data: \"{}\\n{}\"",
                    &data[..60],
                    &data[60..]
                ),
            ),
            (
                "spaces",
                format!(
                    "certificate-authority-data: \"{} {}\"",
                    &data[..60],
                    &data[60..]
                ),
            ),
            ("empty", "certificate-authority-data: ''".to_owned()),
            (
                "insecure-too",
                format!("certificate-authority-data: {data}, insecure-skip-tls-verify: true"),
            ),
            (
                "named",
                format!("certificate-authority-data: {data}, tls-server-name: localhost"),
            ),
            (
                "wrong-name",
                format!("certificate-authority-data: {data}, tls-server-name: wrong.test"),
            ),
            (
                "insecure-named",
                "insecure-skip-tls-verify: true, tls-server-name: wrong.test".to_owned(),
            ),
            (
                "empty-name",
                format!("certificate-authority-data: {data}, tls-server-name: ''"),
            ),
            (
                "uncompressed",
                format!("certificate-authority-data: {data}, disable-compression: true"),
            ),
            (
                "unknown-field",
                format!("certificate-authority-data: {data}, colour: red"),
            ),
            ("upper-field", format!("Certificate-Authority-Data: {data}")),
        ];
        for (name, rest) in rows {
            self.cluster(
                &format!("trust-{name}"),
                format!("server: '{server}', {rest}"),
            );
        }
    }

    fn identities(&mut self) {
        let pair = |cases: &Self, certificate: &str, key: &str| {
            format!(
                "client-certificate-data: {}, client-key-data: {}",
                cases.data(certificate),
                cases.data(key)
            )
        };
        let rows = [
            ("data", pair(self, "client-one.pem", "client-one.key")),
            ("v1", pair(self, "client-v1.pem", "client-v1.key")),
            (
                "v1-other-key",
                pair(self, "client-v1.pem", "client-one.key"),
            ),
            ("other-key", pair(self, "client-one.pem", "client-two.key")),
            (
                "no-key",
                format!("client-certificate-data: {}", self.data("client-one.pem")),
            ),
            (
                "key-alone",
                format!("client-key-data: {}", self.data("client-one.key")),
            ),
            (
                "both",
                format!(
                    "{}, client-certificate: missing, client-key: missing",
                    pair(self, "client-one.pem", "client-one.key")
                ),
            ),
            (
                "mixed",
                format!(
                    "client-certificate: {}, client-key-data: {}",
                    self.path("client-one.pem"),
                    self.data("client-one.key")
                ),
            ),
            (
                "missing",
                "client-certificate: missing, client-key: missing".to_owned(),
            ),
            (
                "no-pem",
                "client-certificate-data: aGVsbG8=, client-key-data: aGVsbG8=".to_owned(),
            ),
            (
                "and-token",
                format!(
                    "{}, token: made-up",
                    pair(self, "client-one.pem", "client-one.key")
                ),
            ),
        ];
        for (name, user) in rows {
            self.user(&format!("identity-{name}"), user);
        }
    }

    fn impersonation(&mut self) {
        let rows = [
            ("user", "as: jane"),
            ("groups", "as: jane, as-groups: [a, b]"),
            ("uid", "as: jane, as-uid: '7'"),
            ("number", "as: jane, as-uid: 7"),
            (
                "extra",
                "as: jane, as-user-extra: {Scope: [x, z], 'a.b/c%d': ['1 2']}",
            ),
            ("groups-alone", "as-groups: [a]"),
            ("uid-alone", "as-uid: '7'"),
            ("empty", "as: ''"),
            ("null-groups", "as: jane, as-groups: ~"),
            ("one-group", "as: jane, as-groups: a"),
            ("odd", "as: \"a\\nb\""),
            ("umlaut", "as: jäne"),
            ("spaces", "as: ' jane '"),
        ];
        for (name, user) in rows {
            self.user(
                &format!("impersonate-{name}"),
                format!("token: made-up, {user}"),
            );
        }
    }

    fn proxies(&mut self) {
        let proxy = format!("127.0.0.1:{}", self.places.proxy);
        let rows = [
            ("empty", "''".to_owned()),
            ("null", "~".to_owned()),
            ("http", format!("'http://{proxy}'")),
            ("slash", format!("'http://{proxy}/'")),
            ("path", format!("'http://{proxy}/a?b'")),
            ("user", format!("'http://jane:secret@{proxy}'")),
            ("name-alone", format!("'http://jane@{proxy}'")),
            ("escaped", format!("'http://ja%40ne:se%3Acret%2F@{proxy}'")),
            ("socks5", format!("'socks5://{proxy}'")),
            ("socks5-user", format!("'socks5://jane:secret@{proxy}'")),
            ("socks5-name-alone", format!("'socks5://jane@{proxy}'")),
            ("socks5h", format!("'socks5h://{proxy}'")),
            ("socks4", format!("'socks4://{proxy}'")),
            ("upper", format!("'HTTP://{proxy}'")),
            ("no-scheme", format!("'{proxy}'")),
            (
                "no-scheme-name",
                format!("'localhost:{}'", self.places.proxy),
            ),
            ("space", format!("'http://{proxy}/ '")),
            ("number", "5".to_owned()),
            ("list", "[]".to_owned()),
        ];
        for (name, value) in rows {
            let cluster = format!("{}, proxy-url: {value}", self.parts().cluster);
            self.cluster(&format!("proxy-{name}"), cluster);
        }
        let port = self.places.port;
        for (name, server) in [
            ("named", format!("https://localhost:{port}")),
            ("plain", format!("http://127.0.0.1:{port}")),
            ("far", "https://10.1.2.3".to_owned()),
            ("ipv6", "https://[fd00::7]:6443".to_owned()),
            ("far-name", "https://api.test:6443/base".to_owned()),
        ] {
            for scheme in ["http", "socks5"] {
                self.cluster(
                    &format!("proxy-{scheme}-{name}"),
                    format!(
                        "server: '{server}', insecure-skip-tls-verify: true, proxy-url: \
                         '{scheme}://{proxy}'"
                    ),
                );
            }
        }
    }
}
