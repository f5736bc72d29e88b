//! The `exec` field of a kubeconfig's user: a credential plugin, with its checks.

use serde_json::Value;
use zeroize::Zeroizing;

use super::super::super::credentials::resolve_command;
use super::super::super::credentials::{ClusterInfo, ExecConfig, ExecVersion, InteractiveMode};
use crate::error::Error;
use crate::yaml::{Section, json};

/// The extension of a cluster that is passed on to plugins.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Reads the plugin of a user. The plugin gets `cluster` if it asks for that.
pub(super) fn exec_config(user: &Section, cluster: ClusterInfo) -> Result<ExecConfig, Error> {
    let exec = user.child("exec")?;
    let Some(command) = exec.text("command")? else {
        return Err(exec.error("command", "missing: name the plugin's command"));
    };
    let version = version(&exec)?;
    let mut env = Vec::new();
    for variable in exec.children("env")? {
        let Some(name) = variable.text("name")? else {
            return Err(variable.error("name", "missing: each variable needs a name"));
        };
        if name.contains('\0') {
            return Err(variable.error("name", "holds a character that no variable's name has"));
        }
        let value = variable.text("value")?.unwrap_or_default();
        // As in Go, a name may hold `=`: the plugin sees a name that ends at the first one after
        // the first character. It replaces another variable of that name.
        let whole = Zeroizing::new([name, "=", value].concat());
        let mut ends = whole.char_indices().skip(1);
        let end = ends.find(|(_, char)| *char == '=').map_or(0, |(at, _)| at);
        let (name, value) = whole.split_at(end);
        let value = value.strip_prefix('=').unwrap_or(value);
        env.push((name.to_owned(), Zeroizing::new(value.to_owned())));
    }
    let args = exec.texts("args")?;
    let has_nul = |text: &str| text.contains('\0');
    if has_nul(command)
        || args.iter().copied().any(has_nul)
        || env.iter().any(|(_, value)| has_nul(value))
    {
        return Err(user.error("exec", "holds a NUL, which no command can be given"));
    }
    Ok(ExecConfig {
        location: user.location("exec"),
        version,
        command: resolve_command(command, user.directory()),
        args: args.into_iter().map(str::to_owned).collect(),
        env,
        install_hint: exec.text("installHint")?.map(str::to_owned),
        interactive_mode: interactive_mode(&exec, version)?,
        cluster: exec.flag("provideClusterInfo")?.then_some(cluster),
    })
}

fn version(exec: &Section) -> Result<ExecVersion, Error> {
    let known = ExecVersion::ALL.map(ExecVersion::as_str).join(" or ");
    match exec.text("apiVersion")? {
        None => Err(exec.error("apiVersion", &format!("missing: it must be {known}"))),
        Some(found) => ExecVersion::ALL
            .into_iter()
            .find(|version| version.as_str() == found)
            .ok_or_else(|| {
                let why = format!(
                    "must be {known}: update the plugin and let its tool write the kubeconfig again"
                );
                exec.error("apiVersion", &why)
            }),
    }
}

fn interactive_mode(exec: &Section, version: ExecVersion) -> Result<InteractiveMode, Error> {
    match (exec.text("interactiveMode")?, version) {
        (Some("Never"), _) => Ok(InteractiveMode::Never),
        (Some("IfAvailable"), _) | (None, ExecVersion::V1Beta1) => Ok(InteractiveMode::IfAvailable),
        (Some("Always"), _) => Ok(InteractiveMode::Always),
        (Some(_), _) => Err(exec.error("interactiveMode", "must be Never, IfAvailable or Always")),
        (None, ExecVersion::V1) => Err(exec.error(
            "interactiveMode",
            "missing: v1 needs Never, IfAvailable or Always",
        )),
    }
}

/// Returns the content of the cluster's extension for plugins; `None` if there is none.
pub(super) fn extension(cluster: &Section) -> Result<Option<Value>, Error> {
    let mut found = None;
    for extension in cluster.children("extensions")? {
        if extension.text("name")? == Some(EXTENSION) {
            found = extension.node("extension").map(json);
        }
    }
    Ok(found)
}
