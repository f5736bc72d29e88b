//! A source text with all its mutants, each behind a question for its number.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::mutations::{Change, Place};

/// What the woven file asks. The number comes from the environment, once.
pub const QUESTION: &str = r#"
#[doc(hidden)]
pub fn mutant(number: usize) -> bool {
    static ON: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("KUBECACHE_MUTANT").ok()?.parse().ok()) == Some(number)
}
"#;

/// The bytes of the woven text that stand there because of these mutants.
pub struct Region {
    pub bytes: Range<usize>,
    pub mutants: Vec<usize>,
}

pub struct Woven {
    pub text: String,
    pub regions: Vec<Region>,
}

/// Weaves the mutants of `places` into `source`, except `dropped` ones.
pub fn weave(source: &str, places: &[Place], alive: &BTreeSet<usize>) -> Woven {
    let mut weaver = Weaver {
        source,
        alive,
        out: Woven {
            text: String::new(),
            regions: Vec::new(),
        },
    };
    weaver.range(0..source.len(), places);
    weaver.out
}

struct Weaver<'a> {
    source: &'a str,
    alive: &'a BTreeSet<usize>,
    out: Woven,
}

impl Weaver<'_> {
    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn branch(&mut self, id: usize, text: &str) {
        let start = self.out.text.len();
        self.push(text);
        let bytes = start..self.out.text.len();
        self.out.regions.push(Region {
            bytes,
            mutants: vec![id],
        });
    }

    /// The text of the range, with the places in it.
    fn range(&mut self, range: Range<usize>, places: &[Place]) {
        let mut at = range.start;
        let mut rest = places;
        while let [place, later @ ..] = rest {
            let inside = later
                .iter()
                .take_while(|inner| inner.range.start < place.range.end);
            let count = inside.count();
            let source = self.source;
            self.push(&source[at..place.range.start]);
            let start = self.out.text.len();
            let mut mutants = self.place(place, &later[..count]);
            mutants.retain(|id| self.alive.contains(id));
            if !mutants.is_empty() {
                let bytes = start..self.out.text.len();
                self.out.regions.push(Region { bytes, mutants });
            }
            at = place.range.end;
            rest = &later[count..];
        }
        let source = self.source;
        self.push(&source[at..range.end]);
    }

    /// Returns the mutants of the place.
    fn place(&mut self, place: &Place, inner: &[Place]) -> Vec<usize> {
        let lives = |id: &usize| self.alive.contains(id);
        match &place.change {
            Change::Function => {
                self.range(place.range.clone(), inner);
                inner.iter().flat_map(|place| ids(&place.change)).collect()
            }
            Change::Body(values) => {
                for (id, value) in values {
                    if self.alive.contains(id) {
                        self.push(&format!(" if crate::mutant({id}) {{ "));
                        self.branch(*id, &format!("return {value};"));
                        self.push(" }");
                    }
                }
                ids(&place.change)
            }
            Change::Other(others) => {
                let others: Vec<_> = others.iter().filter(|(id, _)| lives(id)).collect();
                if others.is_empty() {
                    self.range(place.range.clone(), inner);
                    return Vec::new();
                }
                self.push("(");
                for (id, other) in others {
                    self.push(&format!("if crate::mutant({id}) {{ "));
                    self.branch(*id, other);
                    self.push(" } else ");
                }
                self.push("{ ");
                self.range(place.range.clone(), inner);
                self.push(" })");
                ids(&place.change)
            }
            Change::Without(id) => {
                let wanted = lives(id);
                if wanted {
                    self.push(&format!("if !crate::mutant({id}) {{ "));
                }
                self.range(place.range.clone(), inner);
                if wanted {
                    self.push(" }");
                }
                vec![*id]
            }
            Change::Guard([without, always, never]) => {
                let off = [without, never]
                    .into_iter()
                    .flatten()
                    .filter(|id| lives(id));
                let off: Vec<_> = off.map(|id| format!("!crate::mutant({id})")).collect();
                let always = always.filter(|id| self.alive.contains(id));
                let has_guard = !place.range.is_empty();
                if !has_guard && !off.is_empty() {
                    self.push(" if ");
                }
                self.push(&off.join(" && "));
                if has_guard {
                    if !off.is_empty() {
                        self.push(" && ");
                    }
                    self.push("(");
                    if let Some(id) = always {
                        self.push(&format!("crate::mutant({id}) || "));
                    }
                    self.push("(");
                    self.range(place.range.clone(), inner);
                    self.push("))");
                }
                ids(&place.change)
            }
        }
    }
}

fn ids(change: &Change) -> Vec<usize> {
    match change {
        Change::Body(all) | Change::Other(all) => all.iter().map(|(id, _)| *id).collect(),
        Change::Without(id) => vec![*id],
        Change::Guard(all) => all.iter().flatten().copied().collect(),
        Change::Function => Vec::new(),
    }
}
