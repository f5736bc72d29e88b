//! Inputs from the grammar, and mutations of inputs.

use crate::dice::Dice;

/// A piece of an alternative.
enum Piece {
    Text(String),
    Rule(usize),
}

/// Rules with their alternatives, in the notation of `grammar.txt`.
pub struct Grammar {
    names: Vec<String>,
    rules: Vec<Vec<Vec<Piece>>>,
}

impl Grammar {
    pub fn new() -> Self {
        let text = include_str!("../grammar.txt");
        let lines = || {
            text.lines()
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let names: Vec<String> = lines()
            .filter(|line| !line.starts_with(' '))
            .map(str::to_owned)
            .collect();
        let mut rules = Vec::new();
        for line in lines() {
            match line.strip_prefix("  ") {
                None => rules.push(Vec::new()),
                Some(alternative) => {
                    rules
                        .last_mut()
                        .expect("a rule")
                        .push(pieces(alternative, &names));
                }
            }
        }
        Self { names, rules }
    }

    /// An input of the target.
    pub fn grow(&self, target: &str, dice: &mut Dice) -> Vec<u8> {
        let start = if target == "object" {
            "object-target"
        } else {
            target
        };
        let start = self
            .names
            .iter()
            .position(|name| name == start)
            .expect("a rule per target");
        let mut text = String::with_capacity(256);
        let mut fuel = 12 + dice.below(40);
        self.expand(start, dice, &mut fuel, &mut text);
        text.into_bytes()
    }

    fn expand(&self, rule: usize, dice: &mut Dice, fuel: &mut usize, text: &mut String) {
        let alternatives = &self.rules[rule];
        let at = if *fuel == 0 {
            0
        } else {
            dice.below(alternatives.len())
        };
        *fuel = fuel.saturating_sub(1);
        for piece in &alternatives[at] {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Rule(rule) => self.expand(*rule, dice, fuel, text),
            }
        }
    }
}

fn pieces(mut rest: &str, names: &[String]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '%' => {
                let escaped = rest.chars().next().expect("a letter after %");
                rest = &rest[1..];
                match escaped {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    's' => text.push(' '),
                    'e' => {}
                    other => text.push(other),
                }
            }
            '<' => {
                let (name, after) = rest.split_once('>').expect("the end of a rule's name");
                let rule = names.iter().position(|known| known == name);
                let rule = rule.unwrap_or_else(|| panic!("no rule {name}"));
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Rule(rule));
                rest = after;
            }
            other => text.push(other),
        }
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// Pieces that are hard on readers of text.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b" ",
    b"\0",
    b"\xff",
    b"\\u",
    b"null",
    b"-",
    b"1e999",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b"'",
    b"\"items\":[",
    b"&x ",
    b"*x",
    b"-----",
    b"=",
    b"\"kind\":\"Status\",",
    b"\"metadata\":{",
    b"\"object\":",
    b"\t",
    b"\xc2\xa0",
];

/// Changes up to five places of an input.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    for _ in 0..=dice.below(5) {
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
