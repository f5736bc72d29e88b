//! Inputs from a grammar, and mutations of inputs.

use crate::dice::Dice;

/// A rule and its alternatives. `<name>` stands for another rule. At the end of the fuel the first
/// alternative counts, so that it must lead to an end.
pub type Rule = (&'static str, &'static [&'static str]);

const RULES: &[Rule] = &[
    // JSON
    ("s", &["", "", "", " ", "\n", "\t \r\n"]),
    ("value", &["1", "null", "true", "<string>", "<number>", "{<s>}", "[<value>,<value>]",
        "{\"a\":<value>,\"a\":<value>}", "[<s>]", "{\"metadata\":{\"name\":<string>}}"]),
    ("number", &["0", "-0", "7", "01", "-", "1.5", "1e999", "-1.25E+2", "18446744073709551616"]),
    ("string", &["\"\"", "\"a\"", "\"a\"", "\"b\\n\\\"\\u00e9\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\"",
        "\"{[\\\\\"", "\"é\u{1f600}\"", "\"a\nb\"", "\"\\x\"", "\"}],\""]),
    ("any", &["<value>", "<value>", "<metadata>", "<object>"]),
    ("member", &["\"x\":<value>", "\"managedFields\":<value>", "\"metadata\":<metadata>",
        "\"kind\":<kind>", "\"apiVersion\":<version>", "\"immutable\":<value>", "\"data\":<data>",
        "\"type\":<string>", "\"stringData\":<data>", "<string>:<value>", "\"items\":<value>"]),
    ("members", &["<member>", "<member>,<s><member>", "<member>,<members>"]),
    ("kind", &["\"Secret\"", "\"ConfigMap\"", "\"\"", "null", "\"Status\"", "\"Pod\"", "1",
        "\"Sec\\u0072et\"", "\"List\""]),
    ("listkind", &["\"SecretList\"", "\"ConfigMapList\"", "\"List\"", "\"\"", "<kind>"]),
    ("version", &["\"v1\"", "\"v1\"", "\"\"", "null", "\"v2\"", "\"meta.k8s.io/v1\""]),
    ("data", &["{}", "{\"k\":\"Zm9v\"}", "{\"k\":\"Zm9v\",\"l\":\"\"}", "{\"k\":\"Zm9\"}",
        "{\"k\":\"Zm9v\\u0059\"}", "{\"k\":<value>}", "null", "{\"k\":\"a\",\"k\":\"YQ==\"}"]),
    ("metadata", &["{\"name\":\"a\"}", "{\"name\":\"a\",\"resourceVersion\":\"<digits>\"}",
        "{\"name\":<string>,\"namespace\":<string>,\"uid\":<string>}",
        "{\"annotations\":<annotations>,\"name\":\"b\"}", "{\"labels\":{<string>:<string>}}",
        "{\"name\":\"a\",\"managedFields\":[<value>]}", "{\"name\":\"c\",\"generation\":<number>}",
        "{\"creationTimestamp\":<time>,\"name\":\"a\"}", "null", "{<members>}",
        "{\"resourceVersion\":\"<digits>\",\"continue\":<string>}"]),
    ("annotations", &["{}", "{\"k8s.io/initial-events-end\":\"true\"}", "{<string>:<value>}",
        "{\"kubectl.kubernetes.io/last-applied-configuration\":<string>}", "null"]),
    ("time", &["null", "\"2024-02-30T00:00:00Z\"", "\"2024-01-01T00:00:00Z\"",
        "\"9999-12-31T23:59:60.9Z\"", "\"-0001-01-01T00:00:00+01:00\"", "<string>"]),
    ("digits", &["1", "0", "42", "007", "18446744073709551616", "-1", ""]),
    ("object", &["{\"metadata\":<metadata>}", "{\"metadata\":<metadata>,\"data\":<data>}",
        "{<s>\"kind\":<kind>,<s>\"apiVersion\":<version>,\"metadata\":<metadata>,<members>}",
        "{<members>,\"metadata\":<metadata>}", "{<members>}"]),
    ("objects", &["", "<object>", "<object><s>,<s><object>", "<object>,<objects>", "<object>,<any>"]),
    ("head", &["\"kind\":<listkind>,\"apiVersion\":<version>", "\"kind\":<listkind>", "<members>",
        "\"metadata\":<metadata>"]),
    ("list", &["{<head>,\"metadata\":<metadata>,\"items\":[<objects>]}",
        "{\"items\":[<s><objects><s>],<head>}", "{<head>,\"items\":null}", "{<head>}",
        "{\"items\":[<objects>],\"items\":[<objects>]}", "{\"items\":<any>}<s>", "<status>",
        "{\"ite\\u006ds\":[<objects>],<head>}"]),
    ("event", &["{\"type\":\"<type>\",\"object\":<object>}", "{\"object\":<object>,\"type\":\"<type>\"}",
        "{\"type\":\"<type>\",<s>\"object\":<object>}", "{\"type\":\"BOOKMARK\",\"object\":<object>}",
        "{\"type\":\"ERROR\",\"object\":<status>}", "{\"type\":\"<type>\",\"object\":<any>}",
        "{<members>}", "{\"type\":<value>,\"type\":\"<type>\",\"object\":<object>}"]),
    ("type", &["ADDED", "MODIFIED", "DELETED", "ADDED", "BOOKMARK", "ERROR", "added", "ADD\\u0045D",
        ""]),
    ("watch", &["<event>\n", "<event>\n<event>\n", "<event>\n<watch>", "<event><event>", "<event>",
        "\n<event>\r\n<s><event>"]),
    ("status", &["{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":410,\"reason\":\"Expired\"}",
        "{\"kind\":\"Status\",\"code\":<number>,\"message\":<string>,\"reason\":<string>}",
        "{\"kind\":\"Status\",<members>,\"details\":<details>}", "{\"status\":\"Failure\",<members>}",
        "{\"kind\":\"Status\",\"metadata\":<metadata>,\"code\":<value>}"]),
    ("details", &["{}", "{\"causes\":[{\"reason\":<string>,\"message\":<string>}]}", "null",
        "{\"retryAfterSeconds\":<number>}", "{<members>}"]),
    // kubeconfig
    ("kubeconfig", &["<kcluster><kcontext><kuser>current-context: c\n",
        "<kcluster><kcontext><kuser>current-context: <yaml>\n", "<kuser><kcontext>current-context: c\n<kcluster>",
        "<kmap>", "{\"current-context\":\"c\",\"clusters\":<value>,\"contexts\":<value>}"]),
    ("kcluster", &["clusters:\n- name: k\n  cluster: {server: \"<url>\"}\n",
        "clusters:\n- cluster:\n    server: <url>\n    <kfield>\n  name: k\n", "clusters: <yaml>\n"]),
    ("kcontext", &["contexts:\n- name: c\n  context: {cluster: k, user: u}\n",
        "contexts: [{name: c, context: {cluster: k, namespace: <yaml>}}]\n", "contexts: <yaml>\n"]),
    ("kuser", &["users:\n- name: u\n  user: {token: CANARY}\n", "users:\n- name: u\n  user:\n    <kfield>\n", "",
        "users:\n- name: u\n  user:\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: <yaml>, env: <yaml>, interactiveMode: <yaml>}\n"]),
    ("kfield", &["token: <yaml>", "insecure-skip-tls-verify: <yaml>", "certificate-authority-data: <yaml>",
        "username: <yaml>\n    password: <yaml>", "proxy-url: <url>", "tls-server-name: <yaml>",
        "tokenFile: <yaml>", "as: <yaml>", "as-user-extra: <yaml>", "client-certificate-data: Zm9v",
        "extensions: <yaml>", "disable-compression: <yaml>"]),
    ("kmap", &["a: b\n", "<yaml>: <yaml>\n", "<yaml>: <yaml>\n<kmap>", "? <yaml>\n: <yaml>\n", "---\n<kmap>"]),
    ("yaml", &["a", "\"b\"", "'c''d'", "1", "0x1F", "0o7", "1e3", ".inf", "~", "yes", "true", "[<yaml>, <yaml>]",
        "{<yaml>: <yaml>}", "&x <yaml>", "*x", "!!str 1", "|\n      text\n", ">-\n      a\n      b\n",
        "\"\\x41\\u00e9\"", "2001-01-01", "<<", "", "- a", "# c"]),
    ("url", &["https://h:6443", "http://h", "https://[::1]:1/p", "h", "unix:///s", "https://u:p@h/?q#f", "//",
        "https://h:99999", "https://é.example", "socks5://h:1", "<yaml>"]),
    // plugins
    ("plugin", &["{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":<pstatus>}",
        "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":<pstatus>,\"spec\":<value>}",
        "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus: {token: CANARY}\n",
        "apiVersion: client.authentication.k8s.io/v1\nstatus:\n  token: <yaml>\n  expirationTimestamp: <yaml>\n",
        "{\"kind\":<string>,\"apiVersion\":<string>}", "<kmap>"]),
    ("pstatus", &["{\"token\":\"CANARY\"}", "{\"token\":\"CANARY\",\"expirationTimestamp\":<time>}",
        "{\"token\":<value>,\"token\":<string>}", "{\"clientCertificateData\":<string>,\"clientKeyData\":\"CANARY\"}",
        "{<members>}", "null", "<value>"]),
    // selectors
    ("selector", &["<requirement>", "<requirement>,<requirement>", "<requirement><blank>,<blank><selector>", "", ","]),
    ("requirement", &["<label>=<word>", "<label>", "!<label>", "<label>==<word>", "<label>!=<word>",
        "<label> in (<words>)", "<label> notin (<words>)", "<label><blank>><blank><digits>", "<label>\u{3c}<digits>",
        "<label> in <word>", "in in (in)", "notin", "!<label>=<word>", "<label>in(<words>)", "()"]),
    ("blank", &["", "", " ", "\t", "\n"]),
    ("label", &["a", "b", "x/y", "example.com/a", "-a", "a-", "A_b.c", "/a", "a/", "a/b/c", "é", "in", ""]),
    ("word", &["b", "1", "", "a.b", "-", "x/y", "b c", "notin", "é"]),
    ("words", &["b", "<word>,<word>", "<blank><word><blank>,<words>", "", ",", "(b)"]),
    // waits
    ("retry-after", &["5", "<digits>", " 12 ", "<date>\n<date>", "<date>", "1.5", "+3", "99999999999999999999", "-2"]),
    ("date", &["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT", "Mon, 31 Feb 2026 25:61:61 +9999",
        "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "06 Nov 94 08:49 -0000", "(c) 1 Jan 2000 00:00 Z"]),
    // proxies
    ("proxy", &["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.<digit> <code> <reason>\r\n<fields>\r\n<body>",
        "HTTP/1.1 <code>\n\n", "SSH-2.0-x\r\n", "\r\nHTTP/1.0 407 a\r\n<fields>\r\n"]),
    ("digit", &["1", "0", "2"]),
    ("code", &["200", "407", "99", "1000", "20x", "503", "000"]),
    ("reason", &["OK", "", "Proxy Authentication Required", "\u{7f}", "é"]),
    ("fields", &["", "Content-Length: <digits>\r\n<fields>", "Proxy-Authenticate: Basic\r\n<fields>",
        "A:\r\n b\r\n", "X: \u{1}\r\n", "content-length:\t5 \r\n<fields>", "A : b\n"]),
    ("body", &["", "no", "<html>", "{}"]),
    // PEM
    ("pem", &["-----BEGIN CERTIFICATE-----\n<base64>\n-----END CERTIFICATE-----\n<pem>",
        "-----BEGIN CERTIFICATE-----\r\n<base64>\r\n-----END CERTIFICATE-----", "",
        "-----BEGIN PRIVATE KEY-----\n<base64>\n-----END PRIVATE KEY-----\n<pem>", "text\n<pem>",
        "-----BEGIN CERTIFICATE-----\n<base64>", "-----END CERTIFICATE-----\n"]),
    ("base64", &["MIIB", "MIIBCjCBsKADAgECAgEBMAoGCCqGSM49BAMCMAAwHhcNMjQwMTAxMDAwMDAwWhcNMjUwMTAxMDAwMDAwWjAAMAA=",
        "MIIB\n<base64>", "", "MA==", "MAA=", "!", "MIGAMIAwgDCA", "<base64><base64>"]),
    // recordings
    ("recording", &["{\"recording\":1,\"server\":\"s\",\"taken\":\"t\"}\n<exchanges>",
        "{\"recording\":1,\"server\":<string>,\"taken\":<string>}\n<exchanges>", "{\"recording\":<number>}\n", "# c\n<recording>"]),
    ("exchanges", &["", "{\"at\":0,\"request\":{\"method\":\"GET\",\"target\":\"/\",\"headers\":{}}}\n<answer><exchanges>",
        "{\"at\":<number>,\"request\":{\"method\":<string>,\"target\":<string>,\"headers\":<headers>,\"body\":<value>}}\n<answer>"]),
    ("answer", &["{\"response\":{\"status\":200,\"headers\":{}},\"after\":1}\n<chunk>{\"end\":\"clean\",\"after\":1}\n",
        "{\"response\":{\"status\":<number>,\"headers\":<headers>},\"after\":<number>}\n<chunk>{\"end\":<end>,\"after\":2}\n",
        "{\"end\":<end>}\n", ""]),
    ("headers", &["{}", "[]", "{\"A\":\"b\"}", "[[\"A\",\"b\"]]", "<value>"]),
    ("chunk", &["", "{\"after\":1,\"line\":<object>}\n<chunk>", "{\"after\":1,\"text\":<string>}\n<chunk>", "{\"after\":<value>}\n"]),
    ("end", &["\"clean\"", "\"cut\"", "\"open\"", "<value>"]),
    // snapshots
    ("snapshot", &["{\"written\":1}\n<parts>", "{\"written\":<number>}\n<parts>", "<parts>"]),
    ("parts", &["", "{\"kind\":\"Secret\"}\n<lines><parts>", "{\"kind\":<value>}\n<lines>"]),
    ("lines", &["", "{\"owner\":[\"Pod\",\"n\",\"p\",\"u\"],\"keys\":[[\"n\",\"a\"]]}\n<lines>",
        "{\"object\":[\"n\",\"a\"],\"contact\":1}\n<object>\n<lines>", "{\"owner\":<value>,\"keys\":<value>}\n", "\n"]),
    ("object-target", &["<object>", "<status>", "<s><object><s>", "<list>", "<event>"]),
];

/// Pieces that are hard on readers of text.
const PIECES: &[&[u8]] = &[
    b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b" ", b"\0", b"\xff", b"\\u", b"null",
    b"-", b"1e999", b"\r\n", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"'", b"\"items\":[", b"&x ",
    b"*x", b"-----", b"=", b"\"kind\":\"Status\",", b"\"metadata\":{", b"\"object\":", b"\t",
];

/// An input of the target from the grammar.
pub fn grow(target: &str, dice: &mut Dice) -> Vec<u8> {
    let start = if target == "object" { "object-target" } else { target };
    let mut text = String::with_capacity(256);
    let mut fuel = 24 + dice.below(40);
    expand(start, dice, &mut fuel, &mut text);
    text.into_bytes()
}

fn expand(name: &str, dice: &mut Dice, fuel: &mut usize, text: &mut String) {
    let Some((_, alternatives)) = RULES.iter().find(|(rule, _)| *rule == name) else {
        text.push('<');
        text.push_str(name);
        text.push('>');
        return;
    };
    let at = if *fuel == 0 { 0 } else { dice.below(alternatives.len()) };
    *fuel = fuel.saturating_sub(1);
    let mut rest = alternatives[at];
    while let Some((before, after)) = rest.split_once('<') {
        text.push_str(before);
        match after.split_once('>') {
            Some((name, after)) => {
                // A rule whose first alternative repeats it ends here.
                if *fuel > 0 || name != "pem" {
                    expand(name, dice, fuel, text);
                }
                rest = after;
            }
            None => {
                text.push('<');
                rest = after;
            }
        }
    }
    text.push_str(rest);
}

/// Changes up to four places of an input.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            bytes.push(b'{');
        }
        let at = dice.below(bytes.len());
        let until = (at + dice.below(12)).min(bytes.len());
        match dice.below(7) {
            0 => bytes[at] = u8::try_from(dice.below(256)).unwrap_or_default(),
            1 => drop(bytes.drain(at..until)),
            2 => {
                let copy = bytes[at..until].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            3 => bytes.truncate(at.max(1)),
            4 if !other.is_empty() => {
                let from = dice.below(other.len());
                let to = (from + dice.below(40)).min(other.len());
                bytes.splice(at..until, other[from..to].iter().copied());
            }
            5 => bytes[at] ^= 1 << dice.below(8),
            _ => {
                let piece = PIECES[dice.below(PIECES.len())];
                bytes.splice(at..until, piece.iter().copied());
            }
        }
    }
}
