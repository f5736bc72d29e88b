//! What a table of flags is made into: the help, completions for shells, the manual page.

use crate::flags::{self, Flag, Parser, Program};

pub(crate) const COLUMNS: usize = 80;

/// The text that a flag asks for instead of a run.
pub(crate) fn page(name: &str, parser: &mut Parser) -> Result<Option<String>, String> {
    let program = parser.program;
    Ok(Some(match name {
        "help" => help(program),
        "version" => format!("{} {}\n", program.name, env!("CARGO_PKG_VERSION")),
        "man" => man(program),
        "completion" => match flags::text(name, parser)?.as_str() {
            "bash" => bash(program),
            "zsh" => zsh(program),
            "fish" => fish(program),
            other => return Err(format!("--{name} {other:?}: write one of bash, zsh, fish")),
        },
        _ => return Ok(None),
    }))
}

impl Flag {
    /// As it is written on the command line: `-o, --output`.
    fn names(&self) -> String {
        let short = self.short.map(|letter| format!("-{letter}, "));
        format!("{}--{}", short.unwrap_or_default(), self.name)
    }

    /// Behind its names.
    fn value(&self) -> String {
        let gap = if self.takes_value() { " " } else { "" };
        format!("{gap}{}", self.value)
    }

    fn text(&self) -> String {
        if self.default.is_empty() {
            return self.help.to_owned();
        }
        format!("{} (default {})", self.help, self.default)
    }

    /// The begin of its text, for a line beside others.
    fn summary(&self) -> &'static str {
        let ends = [". ", "; ", ": ", " ("].into_iter();
        let end = ends.filter_map(|end| self.help.find(end)).min();
        end.and_then(|end| self.help.get(..end))
            .unwrap_or(self.help)
    }

    /// The words of which its value is one.
    fn words(&self) -> Option<String> {
        let words = self.value.split('|');
        let words = words.filter_map(|word| word.split('[').next());
        let words: Vec<_> = words.collect();
        (words.len() > 1).then(|| words.join(" "))
    }

    fn is_path(&self) -> bool {
        matches!(self.value, "FILE" | "DIR")
    }
}

fn help(program: &Program) -> String {
    let mut text = wrapped(program.about, "");
    text.extend([format!("\nUsage: {} [flags]\n", program.name)]);
    for group in program.groups() {
        text.extend([format!("\n{}:\n", group.title)]);
        for flag in group.flags {
            let indent = if flag.short.is_some() { "  " } else { "      " };
            let line = format!("{indent}{}{}\n", flag.names(), flag.value());
            text.extend([line, wrapped(&flag.text(), "          ")]);
        }
    }
    for (title, note) in program.notes {
        text.extend([format!("\n{title}:\n"), wrapped(note, "  ")]);
    }
    text
}

/// Lines of at most 80 columns, each behind the indent.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.lines() {
        let mut left = 0;
        for word in paragraph.split(' ') {
            let width = word.chars().count();
            if let Some(rest) = usize::checked_sub(left, width.saturating_add(1)) {
                lines.push(' ');
                left = rest;
            } else {
                let end = if lines.is_empty() { "" } else { "\n" };
                lines.extend([end, indent]);
                left = COLUMNS.saturating_sub(indent.len()).saturating_sub(width);
            }
            lines.push_str(word);
        }
    }
    lines.push('\n');
    lines
}

fn bash(program: &Program) -> String {
    let name = program.name;
    let mut text = format!(
        "_{name}() {{\n  \
           local how word=${{COMP_WORDS[COMP_CWORD]}} flag=${{COMP_WORDS[COMP_CWORD-1]}}\n  \
           if [[ $word == = ]]; then word=\n  \
           elif [[ $flag == = ]]; then flag=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n  \
           COMPREPLY=()\n  \
           case $flag in\n"
    );
    for flag in program.flags().filter(|flag| flag.takes_value()) {
        let how = match flag.words() {
            Some(words) => format!("how=(-W '{words}')"),
            None if flag.is_path() => "how=(-f)".to_owned(),
            None => "return".to_owned(),
        };
        text.extend([format!(
            "    {}) {how} ;;\n",
            flag.names().replace(", ", "|")
        )]);
    }
    let flags: Vec<_> = program
        .flags()
        .map(|flag| format!("--{}", flag.name))
        .collect();
    text.extend([format!(
        "    *) how=(-W '{}') ;;\n  \
           esac\n  \
           mapfile -t COMPREPLY < <(compgen \"${{how[@]}}\" -- \"$word\")\n\
         }}\n\
         complete -o filenames -F _{name} {name}\n",
        flags.join(" ")
    )]);
    text
}

fn zsh(program: &Program) -> String {
    let name = program.name;
    let mut text = format!("#compdef {name}\n_{name}() {{\n  _arguments -s");
    for flag in program.flags() {
        let sign = if flag.takes_value() {
            ["+", "="]
        } else {
            [""; 2]
        };
        let short = flag.short.map(|letter| format!("-{letter}{},", sign[0]));
        let names = format!("{}--{}{}", short.unwrap_or_default(), flag.name, sign[1]);
        let names = if flag.short.is_some() {
            format!("'*'{{{names}}}")
        } else {
            format!("'*'{names}")
        };
        let action = match flag.words() {
            Some(words) => format!("({words})"),
            None if flag.is_path() => "_files".to_owned(),
            None => " ".to_owned(),
        };
        let value = format!(":{}:{action}", flag.value.replace(':', "\\:"));
        let value = if flag.takes_value() { &*value } else { "" };
        let about = quoted(&format!("[{}]{value}", flag.summary()));
        text.extend([format!(" \\\n    {names}{about}")]);
    }
    text.extend([format!(
        "\n}}\n\
         if [ \"$funcstack[1]\" = _{name} ]; then _{name} \"$@\"; else compdef _{name} {name}; fi\n"
    )]);
    text
}

fn fish(program: &Program) -> String {
    let name = program.name;
    let mut text = format!("complete -c {name} -f\n");
    for flag in program.flags() {
        let short = flag.short.map(|letter| format!(" -s {letter}"));
        let value = match flag.words() {
            Some(words) => format!(" -x -a '{words}'"),
            None if flag.is_path() => " -r -F".to_owned(),
            None if flag.takes_value() => " -x".to_owned(),
            None => String::new(),
        };
        text.extend([format!(
            "complete -c {name}{} -l {}{value} -d {}\n",
            short.unwrap_or_default(),
            flag.name,
            quoted(flag.summary())
        )]);
    }
    text
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn man(program: &Program) -> String {
    let (name, version) = (program.name, env!("CARGO_PKG_VERSION"));
    let summary = program.about.split_once(". ");
    let summary = summary.map_or(program.about, |(summary, _)| summary);
    let summary = summary.strip_prefix(name).unwrap_or(summary);
    let mut text = format!(
        ".TH {} 1 \"\" \"{name} {version}\"\n.SH NAME\n{}.SH SYNOPSIS\n.B {name}\n[flags]\n\
         .SH DESCRIPTION\n{}.SH OPTIONS\n",
        name.to_uppercase(),
        roff(&format!("{name} - {}", summary.trim_start())),
        roff(program.about)
    );
    for group in program.groups() {
        text.extend([format!(".SS {}\n", group.title)]);
        for flag in group.flags {
            let names = flag.names().replace('-', "\\-").replace(", ", "\\fR, \\fB");
            let value = flag.value().replace('-', "\\-");
            text.extend([format!(
                ".TP\n\\fB{names}\\fI{value}\\fR\n{}",
                roff(&flag.text())
            )]);
        }
    }
    for (title, note) in program.notes {
        let paragraphs: Vec<_> = note.lines().map(roff).collect();
        let note = paragraphs.join(".br\n");
        text.extend([format!(".SH {}\n{note}", title.to_uppercase())]);
    }
    text
}

/// Text for a manual page. No line of it is a request.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = wrapped(&text, "");
    let lines = lines.lines().map(|line| match line.as_bytes() {
        [b'.' | b'\'', ..] => format!("\\&{line}\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}
