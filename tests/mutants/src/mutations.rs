//! The places of a source file that can be wrong in a small way, and the wrong ways.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, BinOp, Block, Expr, Pat, ReturnType, Signature, Stmt, Type, UnOp};

/// A mutant: one small error, which the woven source makes if the environment names its number.
pub struct Mutant {
    pub file: String,
    pub line: usize,
    /// The function, and the error.
    pub what: String,
}

/// How the woven source makes room for mutants.
pub enum Change {
    /// The function returns one of these values at once. The range is empty.
    Body(Vec<(usize, String)>),
    /// Another expression stands here.
    Other(Vec<(usize, String)>),
    /// The statement is not run.
    Without(usize),
    /// The arm does not match; its guard is always true; its guard is always false.
    Guard([Option<usize>; 3]),
    /// A function, so that an error of the compiler elsewhere in it finds its mutants.
    Function,
}

pub struct Place {
    pub range: Range<usize>,
    pub change: Change,
}

/// Finds the places of one file. The numbers go on from those of `mutants`.
pub fn find(file: &str, source: &str, mutants: &mut Vec<Mutant>) -> syn::Result<Vec<Place>> {
    let tree = syn::parse_file(source)?;
    let mut finder = Finder {
        file,
        source,
        mutants,
        places: Vec::new(),
        function: String::new(),
    };
    finder.visit_file(&tree);
    let mut places = finder.places;
    // The outer place first: a stable sort keeps that order for equal ranges.
    places.sort_by_key(|place| (place.range.start, usize::MAX - place.range.end));
    Ok(places)
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    mutants: &'a mut Vec<Mutant>,
    places: Vec<Place>,
    function: String,
}

impl Finder<'_> {
    fn text(&self, of: &impl Spanned) -> String {
        self.source[of.span().byte_range()].to_string()
    }

    fn mutant(&mut self, of: &impl Spanned, what: &str) -> usize {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        self.mutants.push(Mutant {
            file: self.file.to_string(),
            line: of.span().start().line,
            what: format!("{}: {what}", self.function),
        });
        self.mutants.len() - 1
    }

    fn place(&mut self, range: Range<usize>, change: Change) {
        self.places.push(Place { range, change });
    }

    fn others(&mut self, of: &impl Spanned, others: Vec<String>) {
        let before = self.text(of);
        let mut numbered = Vec::new();
        for other in others {
            numbered.push((self.mutant(of, &format!("{before} -> {other}")), other));
        }
        self.place(of.span().byte_range(), Change::Other(numbered));
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        // A constant could not ask for the mutant's number.
        if signature.constness.is_some() || block.stmts.is_empty() {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        self.place(block.span().byte_range(), Change::Function);
        let values = match &signature.output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, kind) => values(kind),
        };
        let numbered: Vec<_> = values
            .into_iter()
            .map(|value| (self.mutant(signature, &format!("return {value}")), value))
            .collect();
        let inside = block.brace_token.span.open().byte_range().end;
        self.place(inside..inside, Change::Body(numbered));
        visit::visit_block(self, block);
        self.function = outer;
    }

    /// The operands of a condition that also has `let`s, or the whole condition.
    fn condition(&mut self, condition: &Expr) {
        match condition {
            Expr::Let(_) => {}
            Expr::Binary(both) if has_let(condition) => {
                for side in [&both.left, &both.right] {
                    match &**side {
                        Expr::Binary(_) if has_let(side) => self.condition(side),
                        Expr::Let(_) => {}
                        side => self.others(side, vec!["true".into()]),
                    }
                }
            }
            Expr::Binary(_) | Expr::Unary(_) | Expr::Lit(_) => {}
            plain => {
                let negated = format!("!({})", self.text(plain));
                self.others(plain, vec![negated]);
            }
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let skipped = match item {
            syn::Item::Mod(item) => is_of_tests(&item.attrs),
            syn::Item::Fn(item) => is_of_tests(&item.attrs),
            syn::Item::Impl(item) => {
                let of = item.trait_.as_ref().map(|(path, _)| self.text(path));
                is_of_tests(&item.attrs)
                    || of.is_some_and(|name| name.ends_with("Debug") || name == "Default")
            }
            syn::Item::Trait(item) => is_of_tests(&item.attrs),
            _ => true,
        };
        if !skipped {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_type(&mut self, _: &'a Type) {}

    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}

    fn visit_pat(&mut self, _: &'a Pat) {}

    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_droppable(expr)
        {
            let what = format!("without {}", self.text(expr));
            let id = self.mutant(expr, &what);
            self.place(stmt.span().byte_range(), Change::Without(id));
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_if(&mut self, expr: &'a syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'a syn::ExprWhile) {
        self.condition(&expr.cond);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'a syn::ExprBinary) {
        if !has_let(&expr.left) && !has_let(&expr.right) {
            let (left, right) = (self.text(&expr.left), self.text(&expr.right));
            let others = operators(&expr.op).iter();
            let others = others.map(|op| format!("{left} {op} {right}")).collect();
            self.others(expr, others);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'a syn::ExprUnary) {
        if matches!(expr.op, UnOp::Not(_) | UnOp::Neg(_)) {
            self.others(expr, vec![self.text(&expr.expr)]);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'a syn::ExprMatch) {
        let has_wild = expr.arms.iter().any(|arm| is_wild(&arm.pat));
        for arm in &expr.arms {
            self.arm(arm, has_wild && !is_wild(&arm.pat));
        }
        visit::visit_expr_match(self, expr);
    }
}

impl Finder<'_> {
    fn arm(&mut self, arm: &Arm, droppable: bool) {
        let pattern = self.text(&arm.pat);
        let without = droppable.then(|| self.mutant(arm, &format!("no arm {pattern}")));
        match &arm.pat {
            Pat::Guard(guarded) if !has_let(&guarded.guard) => {
                let always = self.mutant(arm, &format!("{pattern} -> true"));
                let off = format!("{pattern} -> false");
                let never = without.is_none().then(|| self.mutant(arm, &off));
                let change = Change::Guard([without, Some(always), never]);
                self.place(guarded.guard.span().byte_range(), change);
                self.visit_expr(&guarded.guard);
            }
            Pat::Guard(_) => {}
            pattern if without.is_some() => {
                let end = pattern.span().byte_range().end;
                self.place(end..end, Change::Guard([without, None, None]));
            }
            _ => {}
        }
    }
}

/// Code for tests, models and programs without a feature is not of the build that is tried.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            ["test", "shuttle", "not"]
                .iter()
                .any(|word| words.contains(word))
        }
        meta => meta.path().is_ident("test"),
    })
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => {
            has_let(&both.left) || has_let(&both.right)
        }
        _ => false,
    }
}

fn is_wild(pat: &Pat) -> bool {
    match pat {
        Pat::Wild(_) => true,
        Pat::Ident(name) => {
            let first = name.ident.to_string();
            name.subpat.is_none() && first.starts_with(char::is_lowercase)
        }
        _ => false,
    }
}

fn is_droppable(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Binary(both) => operators(&both.op)
            .first()
            .is_some_and(|op| op.ends_with('=')),
        Expr::Try(tried) => is_droppable(&tried.expr),
        _ => false,
    }
}

fn operators(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["*", "%"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        _ => &[],
    }
}

/// Wrong values of a type, as far as its name tells.
fn values(kind: &Type) -> Vec<String> {
    let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_string()).collect();
    let inner = |arguments: &syn::PathArguments| match arguments {
        syn::PathArguments::AngleBracketed(list) => match list.args.first() {
            Some(syn::GenericArgument::Type(kind)) => values(kind),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    match kind {
        Type::Never(_) | Type::ImplTrait(_) => Vec::new(),
        Type::Tuple(tuple) => {
            let firsts: Option<Vec<_>> = tuple
                .elems
                .iter()
                .map(|kind| values(kind).into_iter().next())
                .collect();
            firsts
                .map(|all| format!("({})", all.join(", ")))
                .into_iter()
                .collect()
        }
        Type::Reference(to) if to.mutability.is_some() => Vec::new(),
        Type::Reference(to) => match &*to.elem {
            Type::Path(path) if path.path.is_ident("str") => strings(&["\"\"", "\"xyzzy\""]),
            Type::Slice(_) => strings(&["&[]"]),
            _ => strings(&["Box::leak(Box::default())"]),
        },
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return Vec::new();
            };
            let wrapped = |name: &str| {
                let values = inner(&last.arguments).into_iter();
                values
                    .map(|value| format!("{name}({value})"))
                    .collect::<Vec<_>>()
            };
            match &*last.ident.to_string() {
                "bool" => strings(&["true", "false"]),
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64"
                | "isize" => strings(&["0", "1"]),
                "f32" | "f64" => strings(&["0.0", "1.0"]),
                "String" => strings(&["String::new()", "\"xyzzy\".into()"]),
                "Option" => [strings(&["None"]), wrapped("Some")].concat(),
                "Result" => wrapped("Ok"),
                "Vec" => strings(&["Vec::new()"]),
                "Duration" => strings(&["Default::default()", "std::time::Duration::from_secs(1)"]),
                _ => strings(&["Default::default()"]),
            }
        }
        _ => strings(&["Default::default()"]),
    }
}
