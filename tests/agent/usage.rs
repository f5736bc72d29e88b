//! What the table of flags is made into: the help, completions for shells, the manual page.

use std::process::{Command, Output};

use super::AGENT;
use crate::support::TempDirectory;

fn printed(flags: &[&str]) -> String {
    let ended = AGENT.run(flags);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{flags:?}");
    ended.stdout
}

#[test]
fn the_help_has_groups_and_80_columns() {
    let help = printed(&["--help"]);
    let wide = help.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
    for title in [
        "Which objects:",
        "Files:",
        "The connection, as with kubectl:",
        "Exit codes:",
    ] {
        assert!(help.lines().any(|line| line == title), "{title}");
    }
    assert!(
        help.contains("  -o, --output table|wide|name|json|yaml\n"),
        "{help}"
    );
}

/// What bash offers where the cursor stands behind the last of these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let ask = format!(
        "{script}\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))\n_node_agent\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash")
        .args(["-c", &ask, "bash", "node_agent"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    words.sort();
    words
}

#[test]
fn bash_completes_flags_words_and_files() {
    let script = printed(&["--completion", "bash"]);
    let checked = Command::new("bash").args(["-n", "-c", &script]).output();
    assert!(checked.unwrap().status.success());
    let directory = TempDirectory::new("agent-completion");
    std::fs::write(directory.join("a key"), "").unwrap();
    let begun = directory.join("a");
    let begun = begun.to_str().unwrap();
    let file = format!("{begun} key");
    let file: Vec<_> = file.split_whitespace().collect();
    for (words, expected) in [
        (
            &["--out"][..],
            &[
                "--output",
                "--output-adopt",
                "--output-dir",
                "--output-owner",
            ][..],
        ),
        (&["--demo", "--vers"], &["--version"]),
        (&["-o", "js"], &["json"]),
        (&["--output", "=", "ya"], &["yaml"]),
        (&["--watch-scope", "="], &["name", "namespace"]),
        (&["--node-name", ""], &[]),
        (&["--snapshot-key", begun], &file),
    ] {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(offered(&script, words), expected, "{words:?}");
    }
}

#[test]
fn each_shell_has_a_completion_and_another_is_refused() {
    let flags = printed(&["--help"]);
    let flags = flags
        .split_whitespace()
        .filter(|word| word.starts_with("--"));
    let flags: Vec<_> = flags.filter_map(|flag| flag.split('[').next()).collect();
    let zsh = printed(&["--completion", "zsh"]);
    let fish = printed(&["--completion=fish"]);
    assert!(zsh.starts_with("#compdef node_agent\n"));
    for flag in ["--output", "--kubeconfig", "--v", "--help"] {
        assert!(flags.contains(&flag));
        assert!(zsh.contains(flag), "{flag}");
        assert!(
            fish.contains(&format!("-l {} ", flag.trim_start_matches('-'))),
            "{flag}"
        );
    }
    let refused = AGENT.run(&["--completion", "csh"]);
    assert_eq!(refused.code, 2);
    let words = "error: --completion \"csh\": write one of bash, zsh, fish\n";
    assert!(refused.stderr.starts_with(words), "{}", refused.stderr);
}

#[test]
fn the_manual_page_has_its_sections_and_each_flag() {
    let page = printed(&["--man"]);
    let starts = |line: &str| page.lines().any(|other| other.starts_with(line));
    for line in [
        ".TH NODE_AGENT 1 ",
        ".SH NAME",
        "node_agent \\- keeps the Secrets",
        ".SH SYNOPSIS",
        ".SH DESCRIPTION",
        ".SH OPTIONS",
        ".SS Output",
        "\\fB\\-o\\fR, \\fB\\-\\-output\\fI table|wide",
        ".SH SIGNALS",
        ".SH EXIT CODES",
    ] {
        assert!(starts(line), "{line}");
    }
    let requests = page.lines().filter(|line| line.starts_with(['.', '\'']));
    let mut known = requests.filter_map(|line| line.get(..3));
    assert!(known.all(|name| [".TH", ".SH", ".SS", ".TP", ".B ", ".br"].contains(&name)));
    // The programs that read it, where there are some.
    let directory = TempDirectory::new("agent-man");
    let path = directory.join("node_agent.1");
    std::fs::write(&path, &page).unwrap();
    let readers = [
        ("mandoc", &["-Tlint", "-Werror"][..]),
        ("groff", &["-ww", "-man", "-z"]),
    ];
    for (reader, flags) in readers {
        let read = Command::new(reader).args(flags).arg(&path).output();
        if let Ok(Output { stdout, stderr, .. }) = read {
            let told = [stdout, stderr].concat();
            assert!(
                told.is_empty(),
                "{reader}: {}",
                String::from_utf8_lossy(&told)
            );
        }
    }
}
