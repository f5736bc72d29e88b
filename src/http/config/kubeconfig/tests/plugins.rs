//! Kubeconfigs with credential plugins, shaped as clouds write them: a script on `PATH` stands in
//! for the cloud's command.

use std::os::unix::fs::PermissionsExt as _;

use super::{Stage, fixture, header};
use crate::http::environment::Environment;
use crate::http::{Config, KubeconfigOptions, PluginPolicy};

/// Answers with its name and arguments as the token, and keeps its `KUBERNETES_EXEC_INFO`.
const STAND_IN: &str = "#!/bin/sh\n\
    printf '%s' \"$KUBERNETES_EXEC_INFO\" >\"$(dirname \"$0\")/info\"\n\
    token=$(basename \"$0\"); for word in \"$@\"; do token=${token}_$word; done\n\
    printf '{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\
    \"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s%s\"}}' \"$token\" \"$AWS_PROFILE\"\n";

/// Puts a stand-in for `command` into the stage. Returns an environment whose `PATH` has it first.
fn with_command(stage: &Stage, command: &str) -> Environment {
    let text = stage.write("text", STAND_IN);
    let path = stage.0.join(command);
    // Another process writes the file, so that no fork of this one has it open for writing.
    let copied = std::process::Command::new("cp")
        .arg(text)
        .arg(&path)
        .status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let search_path = format!("{}:/usr/bin:/bin", stage.0.display());
    Environment::from_pairs([("HOME", "/nonexistent"), ("PATH", &search_path)])
}

fn infer(name: &str, environment: &Environment) -> Config {
    // A plugin must not ask the person who runs the tests.
    let options = KubeconfigOptions::default()
        .path(fixture(name))
        .plugin_stdin(false);
    Config::infer_from(&options, environment).unwrap()
}

#[test]
fn a_kubeconfig_of_eks_runs_aws() {
    let stage = Stage::new("eks");
    let config = infer("eks.yaml", &with_command(&stage, "aws"));
    assert_eq!(
        header(&config).unwrap(),
        "Bearer aws_--region_eu-central-1_eks_get-token_--cluster-name_shop_--output_jsonshop"
    );
    let info = std::fs::read_to_string(stage.0.join("info")).unwrap();
    assert!(
        info.contains("\"interactive\":false") && !info.contains("cluster"),
        "{info}"
    );
    let shown = format!("{config:?}");
    assert!(shown.contains("the credential plugin \"aws\""), "{shown}");
}

#[test]
fn a_kubeconfig_of_gke_runs_its_plugin_and_tells_it_of_the_cluster() {
    let stage = Stage::new("gke");
    let config = infer("gke.yaml", &with_command(&stage, "gke-gcloud-auth-plugin"));
    assert_eq!(header(&config).unwrap(), "Bearer gke-gcloud-auth-plugin");
    let info = std::fs::read_to_string(stage.0.join("info")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let expected = serde_json::json!({
        "server": "https://192.0.2.7",
        "certificate-authority-data": "bm90IHJlYWxseSBhIGNlcnRpZmljYXRl",
    });
    assert_eq!(info["spec"]["cluster"], expected);
}

#[test]
fn a_kubeconfig_of_aks_runs_kubelogin() {
    let stage = Stage::new("aks");
    let config = infer("aks.yaml", &with_command(&stage, "kubelogin"));
    let header = header(&config).unwrap();
    assert!(
        header.starts_with("Bearer kubelogin_get-token_--environment_Azure"),
        "{header}"
    );
    assert!(header.ends_with("_--login_devicecode"), "{header}");
}

#[test]
fn a_plugin_that_is_not_installed_is_told_with_the_clouds_hint() {
    let environment = Environment::from_pairs([("PATH", "/nonexistent")]);
    let config = infer("gke.yaml", &environment);
    let error = config
        .credentials
        .authorization_at_start()
        .map(drop)
        .unwrap_err();
    let expected = format!(
        "{}: users[name=gke_shop-project_europe-west3_shop].user.exec: the credential plugin \
         \"gke-gcloud-auth-plugin\" cannot be run: there is no such command in PATH: install it: \
         Install gke-gcloud-auth-plugin for use with kubectl by following \
         https://cloud.example/how-to/cluster-access#install_plugin",
        fixture("gke.yaml").display()
    );
    assert_eq!(error.to_string(), expected);
}

fn user(exec: &str) -> String {
    format!(
        "current-context: a\n\
         contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: https://a.test, insecure-skip-tls-verify: true, \
         tls-server-name: b.test, extensions: [{{name: other, extension: 1}}, \
         {{name: client.authentication.k8s.io/exec, extension: {{audience: a, n: [1, 'yes', yes]}}\
         }}]}}}}]\n\
         users: [{{name: u, user: {{{exec}}}}}]\n"
    )
}

const V1BETA1: &str = "apiVersion: client.authentication.k8s.io/v1beta1";

#[test]
fn a_relative_command_is_the_kubeconfigs_neighbour_and_gets_the_clusters_extension() {
    let stage = Stage::new("neighbour");
    drop(with_command(&stage, "neighbour"));
    let exec = format!("exec: {{{V1BETA1}, command: ./neighbour, provideClusterInfo: true}}");
    let path = stage.write("config", user(&exec));
    let options = KubeconfigOptions::default().path(path).plugin_stdin(false);
    let config = Config::infer_from(&options, &super::nowhere()).unwrap();
    assert_eq!(header(&config).unwrap(), "Bearer neighbour");
    let info = std::fs::read_to_string(stage.0.join("info")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let expected = serde_json::json!({
        "server": "https://a.test",
        "tls-server-name": "b.test",
        "insecure-skip-tls-verify": true,
        "config": { "audience": "a", "false": [1, "yes", true] },
    });
    assert_eq!(info["spec"]["cluster"], expected);

    let denied = options.plugin_policy(PluginPolicy::DenyAll);
    let error = stage
        .told(Config::infer_from(&denied, &super::nowhere()))
        .unwrap_err();
    assert_eq!(
        error,
        "DIR/config: users[name=u].user.exec: the credential plugin \"DIR/neighbour\" may not \
         run: the program forbids plugins: allow it by KubeconfigOptions::plugin_policy, or give a \
         token"
    );
}

#[test]
fn a_token_takes_the_place_of_the_plugin_as_in_client_go() {
    let stage = Stage::new("beside");
    let text = user(&format!(
        "token: mine, exec: {{{V1BETA1}, command: /nonexistent}}"
    ));
    assert_eq!(
        header(&stage.load(&text).unwrap()).as_deref(),
        Some("Bearer mine")
    );
}

/// Measured with Go's `os/exec`, which client-go gives `name=value`.
#[test]
fn a_variables_name_with_an_equals_sign_reaches_the_plugin_as_in_go() {
    let stage = Stage::new("names");
    for (name, expected) in [
        ("A", &["A=v"][..]),
        ("A=B", &["A=B=v"]),
        ("A=", &["A==v"]),
        ("=A", &["=A=v", "A=1"]),
        ("=", &["==v", "A=1"]),
        ("\u{fc}=x", &["A=1", "\u{fc}=x=v"]),
    ] {
        let path = stage.0.join("environ");
        // `cp` keeps the environment that it was given. A shell would change it.
        let exec = format!(
            "exec: {{{V1BETA1}, command: cp, args: [/proc/self/environ, '{}'], env: [{{name: \
             '{name}', value: v}}]}}",
            path.display()
        );
        let options = KubeconfigOptions::default()
            .path(stage.write("config", user(&exec)))
            .plugin_stdin(false);
        let environment = Environment::from_pairs([("PATH", "/usr/bin:/bin"), ("A", "1")]);
        let config = Config::infer_from(&options, &environment).unwrap();
        let asked = config.credentials.authorization_at_start().map(drop);
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("answered nothing"), "{error}");
        let text = std::fs::read_to_string(path).unwrap();
        let told = |variable: &&str| !variable.starts_with("PATH=") && !variable.contains("EXEC");
        let mut variables: Vec<_> = text.split_terminator('\0').filter(told).collect();
        variables.sort_unstable();
        assert_eq!(variables, expected, "{name}");
    }
}

#[test]
fn each_mistake_in_an_exec_field_names_it() {
    let stage = Stage::new("exec-fields");
    let both = "must be client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1";
    let v1 = "apiVersion: client.authentication.k8s.io/v1, command: c";
    let rows = [
        (
            "",
            "exec.command: missing: name the plugin's command".to_owned(),
        ),
        ("command: c", format!("exec.apiVersion: missing: it {both}")),
        (
            "command: c, apiVersion: client.authentication.k8s.io/v1alpha1",
            format!(
                "exec.apiVersion: {both}: update the plugin and let its tool write the kubeconfig \
                 again"
            ),
        ),
        (
            v1,
            "exec.interactiveMode: missing: v1 needs Never, IfAvailable or Always".to_owned(),
        ),
        (
            &format!("{v1}, interactiveMode: never"),
            "exec.interactiveMode: must be Never, IfAvailable or Always".to_owned(),
        ),
        (
            &format!("{v1}, env: [{{value: canary}}]"),
            "exec.env[0].name: missing: each variable needs a name".to_owned(),
        ),
        (
            &format!("{v1}, env: [{{name: \"a=b\\0\", value: canary}}]"),
            "exec.env[0].name: holds a character that no variable's name has".to_owned(),
        ),
        (
            &format!("{v1}, args: canary"),
            "exec.args: must be a list of texts".to_owned(),
        ),
        (
            &format!("{v1}, args: [\"a\\0canary\"]"),
            "exec: holds a NUL, which no command can be given".to_owned(),
        ),
    ];
    for (exec, expected) in rows {
        let error = stage.load(&user(&format!("exec: {{{exec}}}"))).unwrap_err();
        assert_eq!(error, format!("DIR/config: users[name=u].user.{expected}"));
    }
}
