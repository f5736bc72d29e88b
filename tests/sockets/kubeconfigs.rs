//! A kubeconfig that changes while a client runs: read again once the server rejects what it gave.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubecache::ErrorKind;
use kubecache::http::{Client, ClientOptions, Config, Environment, KubeconfigOptions};
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use super::server::Server;
use super::tls::{accept, der, of_all_names, pem, refuse, refusing};
use super::{client_of, get, secret};
use crate::support::{TempDirectory, alone};

const REJECTION: &str = "{\"kind\":\"Status\",\"code\":401,\"reason\":\"Unauthorized\",\
    \"message\":\"Unauthorized\"}";

/// A directory with a kubeconfig, and a server.
struct Stage {
    server: Server,
    directory: TempDirectory,
}

impl Stage {
    fn new(name: &str) -> Self {
        let directory = TempDirectory::new(&format!("kubeconfigs-{name}"));
        fs::write(directory.join("ca.crt"), pem("authority.pem")).unwrap();
        fs::write(directory.join("token"), "of-a-file").unwrap();
        let server = Server::start();
        Self { server, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// A kubeconfig whose user `u` has these fields, beside another context.
    fn text(&self, user: &str) -> String {
        format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}, {{name: v, user: {{token: of-v}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}, {{name: w, context: \
             {{cluster: c, user: v}}}}]\ncurrent-context: x\n",
            self.server.tls_url()
        )
    }

    fn write(&self, user: &str) {
        fs::write(self.path(), self.text(user)).unwrap();
    }

    /// Changes the text of a user with a token.
    fn change(&self, change: fn(&str) -> String) {
        fs::write(self.path(), change(&self.text("token: canary"))).unwrap();
    }

    fn client(&self) -> Client {
        client_of(&config_at(self.path()))
    }

    /// Sends `codes.len()` gets on one connection: what came as `Authorization`, and the last get's
    /// error.
    fn gets(&self, client: &Client, gets: usize, codes: &[u16]) -> (Vec<String>, Option<String>) {
        thread::scope(|scope| {
            let getting = scope.spawn(move || {
                let mut error = None;
                for _ in 0..gets {
                    error = get(client, "db").err().map(|error| error.to_string());
                }
                error
            });
            let mut peer = accept(&self.server, &of_all_names());
            let mut shown = Vec::new();
            for code in codes {
                let request = peer.request();
                shown.push(request.header("Authorization").unwrap_or("none").to_owned());
                let is_good = *code == 200;
                let body = if is_good {
                    secret("db", "1")
                } else {
                    REJECTION.to_owned()
                };
                peer.json(*code, &body);
            }
            (shown, getting.join().unwrap())
        })
    }
}

fn config_at(path: PathBuf) -> Config {
    Config::from_kubeconfig(&KubeconfigOptions::default().path(path)).unwrap()
}

/// The fields of a user with this client certificate, inline.
fn inline(name: &str) -> String {
    let [certificate, key] =
        ["pem", "key"].map(|end| STANDARD.encode(pem(&format!("{name}.{end}"))));
    format!("client-certificate-data: {certificate}, client-key-data: {key}")
}

/// The same, in files.
fn files(name: &str) -> String {
    let [certificate, key] =
        ["pem", "key"].map(|end| super::tls::fixture(&format!("{name}.{end}")));
    format!(
        "client-certificate: {}, client-key: {}",
        certificate.display(),
        key.display()
    )
}

fn exec(token: &str) -> String {
    let answer = format!(
        "{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"{token}\"}}}}"
    );
    format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: \
         /bin/echo, args: ['{answer}']}}"
    )
}

#[test]
fn what_a_rotation_writes_is_sent_after_a_401() {
    let name = "username: a, password: ";
    let [old_name, new_name] = ["old", "new"].map(|password| format!("{name}{password}"));
    let [old_basic, new_basic] = ["Basic YTpvbGQ=", "Basic YTpuZXc="];
    let rows = [
        ("token: old", "token: new", "Bearer old", "Bearer new"),
        (&old_name, &new_name, old_basic, new_basic),
        (&old_name, "token: new", old_basic, "Bearer new"),
        ("token: old", &new_name, "Bearer old", new_basic),
    ];
    for (before, after, old, new) in rows {
        for replaces in [false, true] {
            let stage = Stage::new("rotated");
            stage.write(before);
            let client = stage.client();
            assert_eq!(stage.gets(&client, 1, &[200]), (vec![old.to_owned()], None));
            if replaces {
                let other = stage.directory.join("new");
                fs::write(&other, stage.text(after)).unwrap();
                fs::rename(other, stage.path()).unwrap();
            } else {
                stage.write(after);
            }
            let (shown, error) = stage.gets(&client, 2, &[401, 200, 200]);
            assert_eq!(shown, [old, new, new], "{before} -> {after}");
            assert_eq!(error, None, "{before} -> {after}");
            assert_eq!(client.credentials_status().unwrap().runs, 1);
        }
    }
}

/// A context that is chosen anew and files that appear change nobody.
#[test]
fn the_same_context_is_read_again_out_of_the_same_files() {
    let stage = Stage::new("list");
    let [none, first, second] = ["none", "first", "second"].map(|name| stage.directory.join(name));
    let text = stage.text("token: of-second");
    let (clusters, rest) = text.split_once('\n').unwrap();
    let (users, contexts) = rest.split_once('\n').unwrap();
    let user = |token: &str| format!("users: [{{name: u, user: {{token: {token}}}}}]");
    fs::write(&first, user("old")).unwrap();
    fs::write(&second, format!("{clusters}\n{users}\n")).unwrap();
    fs::write(stage.path(), contexts).unwrap();
    let list = std::env::join_paths([&none, &first, &second, &stage.path()]).unwrap();
    let environment = Environment::default().variable("KUBECONFIG", list);
    let options = KubeconfigOptions::default().environment(environment);
    let config = Config::from_kubeconfig(&options).unwrap();
    let client = client_of(&config);
    assert_eq!(stage.gets(&client, 1, &[200]).0, ["Bearer old"]);
    let other = contexts.replace("current-context: x", "current-context: w");
    fs::write(stage.path(), other).unwrap();
    fs::write(&none, user("appeared")).unwrap();
    fs::write(&first, user("new")).unwrap();
    let (shown, error) = stage.gets(&client, 1, &[401, 200]);
    assert_eq!(
        (shown.as_slice(), error),
        (&["Bearer old", "Bearer new"].map(str::to_owned)[..], None)
    );

    // Without the first file the second would name the user.
    let client = client_of(&Config::from_kubeconfig(&options.context("x")).unwrap());
    assert_eq!(stage.gets(&client, 1, &[200]).0, ["Bearer appeared"]);
    fs::remove_file(&none).unwrap();
    assert_eq!(stage.gets(&client, 1, &[401]).0, ["Bearer appeared"]);
}

/// Seen: a file of other contexts that had gone kept the token from its rotation.
#[test]
fn a_file_of_the_list_that_names_nothing_needed_may_go() {
    let stage = Stage::new("list-other");
    let other = stage.directory.join("other");
    fs::write(&other, "users: [{name: other, user: {token: t}}]").unwrap();
    stage.write("token: old");
    let list = std::env::join_paths([&other, &stage.path()]).unwrap();
    let environment = Environment::default().variable("KUBECONFIG", list);
    let options = KubeconfigOptions::default().environment(environment);
    let client = client_of(&Config::from_kubeconfig(&options).unwrap());
    fs::remove_file(&other).unwrap();
    stage.write("token: new");
    let (shown, error) = stage.gets(&client, 1, &[401, 200]);
    assert_eq!(shown, ["Bearer old", "Bearer new"]);
    assert_eq!(error, None);
}

/// Seen: a gone authority kept the token from its rotation, though TLS keeps what it read. Seen: it
/// did so where the authority alone says that the server speaks https.
#[test]
fn what_is_not_followed_may_go_or_break() {
    let gone = "certificate-authority: ca.crt";
    let broken = "certificate-authority: ca.crt, insecure-skip-tls-verify: maybe";
    let unreadable = "certificate-authority-data: '-'";
    for (scheme, authorities) in [
        ("https://", gone),
        ("https://", "insecure-skip-tls-verify: maybe"),
        ("", gone),
        ("", broken),
        ("", unreadable),
    ] {
        let stage = Stage::new("unneeded");
        let write =
            |text: String| fs::write(stage.path(), text.replace("https://", scheme)).unwrap();
        write(stage.text("token: old"));
        let client = stage.client();
        let text = stage.text("token: new, as: \"a\\nb\"");
        let cluster = format!("{authorities}, proxy-url: 'no:proxy'");
        write(text.replace("certificate-authority: ca.crt", &cluster));
        fs::remove_file(stage.directory.join("ca.crt")).unwrap();
        let (shown, error) = stage.gets(&client, 1, &[401, 200]);
        assert_eq!(
            shown,
            ["Bearer old", "Bearer new"],
            "{scheme} {authorities}"
        );
        assert_eq!(error, None);
    }
}

/// A plugin and a token file give other tokens themselves: their kubeconfig is not read again.
#[test]
fn a_plugin_and_a_token_file_are_asked_again_without_their_kubeconfig() {
    let rows = [
        (exec("of-plugin"), "Bearer of-plugin"),
        ("tokenFile: token".to_owned(), "Bearer of-a-file"),
    ];
    for (user, shown) in rows {
        let stage = Stage::new("unaffected");
        stage.write(&user);
        let client = stage.client();
        assert_eq!(stage.gets(&client, 1, &[200]).0, [shown]);
        stage.write("token: new");
        let (sent, error) = stage.gets(&client, 1, &[401]);
        assert_eq!(sent, [shown]);
        assert!(
            error
                .unwrap()
                .contains("rejects the newest credentials of ")
        );
        assert!(!stage.server.has_visitors());
    }
}

/// Each token is tried once, and the next read follows ten seconds later at the earliest.
#[test]
fn a_kubeconfig_that_is_the_same_makes_the_401_the_error() {
    let [inline, files] = [inline("client-one"), files("client-one")];
    for user in ["token: old", "username: a, password: b", &inline, &files] {
        let stage = Stage::new("same");
        stage.write(user);
        let client = stage.client();
        let (shown, error) = stage.gets(&client, 1, &[401]);
        assert_eq!(shown.len(), 1);
        let (shown_again, _) = stage.gets(&client, 1, &[401]);
        assert_eq!(shown, shown_again);
        assert!(!stage.server.has_visitors());
        let error = error.unwrap();
        let hint = "the server rejects the newest credentials of ";
        assert!(
            error.contains("Unauthorized: ") && error.contains(hint),
            "{error}"
        );
        assert_eq!(client.credentials_status().unwrap().runs, 1);
    }
}

#[test]
fn a_rotated_client_certificate_is_shown_after_a_refused_handshake_and_after_a_401() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let stage = Stage::new("certificate");
        stage.write(&inline("client-one"));
        let client = stage.client();
        stage.write(&inline("client-two"));
        let first = refusing(&["client-one.pem"], version);
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop));
            refuse(&stage.server, &first);
            let mut next = accept(&stage.server, &first);
            next.request();
            next.json(200, &secret("db", "1"));
            getting.join().unwrap().unwrap();
        });

        // The same again is not shown again.
        let stage = Stage::new("certificate-same");
        stage.write(&inline("client-one"));
        let client = stage.client();
        thread::scope(|scope| {
            let getting = scope.spawn(|| get(&client, "db").map(drop).unwrap_err());
            refuse(&stage.server, &first);
            assert_eq!(getting.join().unwrap().kind(), ErrorKind::Tls);
        });
        assert!(!stage.server.has_visitors());
    }

    // As kube-apiserver does. The last user has no certificate any more.
    let one = inline("client-one");
    for (before, after, expected) in [
        (one.as_str(), inline("client-two"), Some("client-two.pem")),
        (&one, files("client-two"), Some("client-two.pem")),
        (
            &files("client-one"),
            files("client-two"),
            Some("client-two.pem"),
        ),
        (
            &files("client-one"),
            inline("client-two"),
            Some("client-two.pem"),
        ),
        ("token: old", inline("client-two"), Some("client-two.pem")),
        (&one, "token: new".to_owned(), None),
    ] {
        let stage = Stage::new("certificate-401");
        stage.write(before);
        let client = stage.client();
        thread::scope(|scope| {
            let getting = scope.spawn(|| [(); 2].map(|()| get(&client, "db").map(drop)));
            let mut peer = accept(&stage.server, &of_all_names());
            peer.request();
            stage.write(&after);
            peer.json(401, REJECTION);
            let mut next = accept(&stage.server, &of_all_names());
            next.request();
            let shown = next.stream().conn.peer_certificates();
            let shown = shown.map(|chain| chain[0].clone().into_owned());
            assert_eq!(shown, expected.map(der), "{before} -> {after}");
            next.json(200, &secret("db", "1"));
            next.request();
            next.json(200, &secret("db", "1"));
            for got in getting.join().unwrap() {
                got.unwrap();
            }
        });
    }
}

/// What a program gives takes the place of the kubeconfig's, before and after.
#[test]
fn a_kubeconfig_replaces_nothing_that_the_program_gave() {
    let stage = Stage::new("given");
    stage.write("token: old");
    let config = config_at(stage.path());
    let config = config.with_identity(pem("client-one.pem"), pem("client-one.key"));
    let client = client_of(&config);
    stage.write(&inline("client-two"));
    thread::scope(|scope| {
        let getting = scope.spawn(|| get(&client, "db").map(drop));
        let mut peer = accept(&stage.server, &of_all_names());
        peer.request();
        peer.json(401, REJECTION);
        assert_eq!(peer.request().header("Authorization"), None);
        let shown = peer.stream().conn.peer_certificates().unwrap();
        assert_eq!(shown[0], der("client-one.pem"));
        peer.json(200, &secret("db", "1"));
        getting.join().unwrap().unwrap();
    });

    stage.write("token: old");
    let options = KubeconfigOptions::default()
        .path(stage.path())
        .token("given");
    let given = [
        Config::from_kubeconfig(&options).unwrap(),
        config_at(stage.path()).with_token("given").unwrap(),
    ];
    stage.write("token: new");
    for config in given {
        let (shown, error) = stage.gets(&client_of(&config), 1, &[401]);
        assert_eq!(shown, ["Bearer given"]);
        assert!(error.unwrap().contains("the token or password is fixed"));
    }
}

/// What the crate logs as a warning.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The certificate of one, and the key of another.
fn mixed() -> String {
    let [one, two] = ["client-one", "client-two"].map(inline);
    let (certificate, key) = (
        one.split_once(", ").unwrap().0,
        two.split_once(", ").unwrap().1,
    );
    format!("{certificate}, {key}")
}

const NONE: &str = "context \"x\" in DIR/config has no token, password or";

type Worsen = fn(&Stage);

/// What happens to a kubeconfig, and what the warning says.
const WORSE: &[(Worsen, &str)] = &[
    (
        |stage| fs::remove_file(stage.path()).unwrap(),
        "DIR/config: no such file",
    ),
    (
        |stage| {
            fs::remove_file(stage.path()).unwrap();
            fs::create_dir(stage.path()).unwrap();
        },
        "DIR/config: it is a directory",
    ),
    (
        |stage| stage.change(|_| String::new()),
        "context \"x\" does not exist; there is none",
    ),
    (
        |stage| stage.change(|text| text[..text.len() / 2].to_owned()),
        "DIR/config: ",
    ),
    (
        |stage| stage.change(|text| text.replace("name: x,", "name: z,")),
        "context \"x\" does not exist",
    ),
    (
        |stage| stage.change(|text| text.replace("name: u,", "name: z,")),
        "user \"u\" does not exist",
    ),
    (
        |stage| stage.change(|text| text.replace("name: c,", "name: z,")),
        "cluster \"c\" does not exist",
    ),
    (
        |stage| stage.change(|text| text.replace("https://127.0.0.1", "https://127.0.0.2")),
        "names the server https://127.0.0.2:",
    ),
    (|stage| stage.write(""), NONE),
    (|stage| stage.write("tokenFile: token"), NONE),
    (|stage| stage.write(&exec("t")), NONE),
    (
        |stage| stage.write("token: 'can ary'"),
        "token: holds a space",
    ),
    (
        |stage| stage.write("token: canary, password: canary"),
        "token: stands beside username",
    ),
    (
        |stage| stage.write("client-certificate-data: aaaa"),
        "a client certificate needs its key",
    ),
    (
        |stage| stage.write("client-certificate-data: aaaa, client-key-data: aaaa"),
        "client-certificate-data: it holds no CERTIFICATE block",
    ),
    (|stage| stage.write(&mixed()), "do not belong together"),
];

#[test]
fn a_kubeconfig_that_got_worse_is_a_warning_and_the_old_one_stays() {
    alone(|| {
        log::set_logger(&WARNINGS).unwrap();
        log::set_max_level(LevelFilter::Warn);
        for (worsen, why) in WORSE {
            let stage = Stage::new("worse");
            stage.write("token: old");
            let client = stage.client();
            worsen(&stage);
            let (shown, error) = stage.gets(&client, 1, &[401]);
            assert_eq!(shown, ["Bearer old"], "{why}");
            assert!(error.unwrap().contains("Unauthorized: "), "{why}");
            let status = client.credentials_status().unwrap();
            assert_eq!((status.runs, status.failures), (1, 1), "{why}");
            let (shown, error) = stage.gets(&client, 1, &[200]);
            assert_eq!(
                (shown, error),
                (vec!["Bearer old".to_owned()], None),
                "{why}"
            );
            let warnings = std::mem::take(&mut *WARNINGS.0.lock());
            let directory = stage.directory.display().to_string();
            let warnings = warnings.join("\n").replace(&directory, "DIR");
            assert!(warnings.contains(why), "{why}: {warnings}");
            let stays = "; the last credentials stay in use";
            assert_eq!(warnings.matches(stays).count(), 1, "{warnings}");
            assert!(
                !warnings.contains("canary") && !warnings.contains("can ary"),
                "{warnings}"
            );
        }
    });
}

/// What can be read once is read once.
#[test]
fn a_kubeconfig_out_of_a_pipe_is_never_read_again() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    let stage = Stage::new("pipe");
    let text = stage.text("token: old");
    let text = text.replace(
        "ca.crt",
        &stage.directory.join("ca.crt").display().to_string(),
    );
    let (from, mut to) = std::io::pipe().unwrap();
    to.write_all(text.as_bytes()).unwrap();
    drop(to);
    let pipe = PathBuf::from(format!("/proc/self/fd/{}", from.as_raw_fd()));
    let fifo = stage.directory.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let configs = thread::scope(|scope| {
        scope.spawn(|| fs::write(&fifo, &text).unwrap());
        [pipe, fifo.clone()].map(config_at)
    });
    fs::remove_file(&fifo).unwrap();
    fs::write(&fifo, text.replace("old", "new")).unwrap();
    for config in configs {
        let (shown, error) = stage.gets(&client_of(&config), 1, &[401]);
        assert_eq!(shown, ["Bearer old"]);
        assert!(error.unwrap().contains("the token or password is fixed"));
    }
}

/// The error has the file and the field, as that of a certificate has.
#[test]
fn a_server_name_that_no_certificate_can_carry_is_told_with_its_field() {
    let directory = TempDirectory::new("tls-server-name");
    let path = directory.join("config");
    let text = "current-context: x\n\
        contexts: [{name: x, context: {cluster: k, user: u}}]\n\
        clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', tls-server-name: '..',\
        insecure-skip-tls-verify: true}}]\n\
        users: [{name: u, user: {}}]\n";
    fs::write(&path, text).unwrap();
    let config = config_at(path.clone());
    let refused = |config: &Config| {
        let error = Client::new(config, ClientOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        error.to_string()
    };
    let told = refused(&config);
    let file = format!("{}: ", path.display());
    let field = "clusters[name=k].cluster.tls-server-name: \"..\" is no name";
    assert!(told.starts_with(&file) && told.contains(field), "{told}");
    // The program's own name has no field.
    let told = refused(&config.with_tls_server_name("."));
    assert!(told.starts_with("\".\" is no name"), "{told}");
    let options = KubeconfigOptions::default()
        .path(path)
        .tls_server_name("...");
    let told = refused(&Config::from_kubeconfig(&options).unwrap());
    assert!(told.starts_with("--tls-server-name: "), "{told}");
}
