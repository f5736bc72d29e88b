//! The list of the crate's public API, the test that holds it current, and rules for its docs.
//!
//! `KUBECACHE_WRITE_PUBLIC_API=1 cargo test --test tidy` writes the list anew. Its difference to
//! the last release is what the changelog has to say. The list has what a program can name: items
//! with their bounds, their public fields, variants and functions. Of the implementations of traits
//! it has those of `From`, `TryFrom` and `Deref`.

#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and most items are of no interest"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Fields, GenericParam, Generics, ImplItem, Item, ItemImpl, Token, TraitItem, UseTree,
    Visibility, bracketed, parenthesized,
};

const LIST: &str = "tests/public_api.txt";

/// Of each public path: what it is.
type List = BTreeMap<String, Entry>;

/// A public item.
#[derive(Clone, Default)]
struct Entry {
    kind: String,
    docs: String,
    members: Vec<Member>,
}

/// A public field, variant or function, and its docs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    text: String,
    docs: String,
    /// The bounds of the block that has it, and the head of that block.
    block: (String, String),
}

impl Member {
    fn new(text: String, attributes: &[Attribute]) -> Self {
        let docs = docs(attributes);
        Self {
            text,
            docs,
            block: Default::default(),
        }
    }

    fn of_block(self, bounds: &str, of: &str) -> Self {
        let head = format!("impl{bounds} {of}");
        Self {
            block: (bounds.to_owned(), head),
            ..self
        }
    }

    /// The member of a type with these bounds: it names its block if that has others.
    fn of_type(mut self, bounds: &str) -> Self {
        let (own, head) = &self.block;
        if own != bounds {
            self.text = format!("{} in {head}", self.text);
        }
        self
    }

    fn is_implementation(&self) -> bool {
        self.text.starts_with("impl ")
    }
}

/// The parameters of an item, and what is asked of them.
fn bounds(generics: &Generics) -> String {
    let clause = generics.where_clause.as_ref();
    let clause = clause.map_or_else(String::new, |clause| format!(" {}", text(clause)));
    format!("{}{clause}", text(generics))
}

/// What a call of the crate's macro `setters!` makes.
struct Setters {
    of: String,
    functions: Vec<Member>,
}

impl Parse for Setters {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let parameters;
        bracketed!(parameters in input);
        let parameters =
            parameters.call(Punctuated::<GenericParam, Token![,]>::parse_terminated)?;
        let bounds = if parameters.is_empty() {
            String::new()
        } else {
            format!("<{}>", text(&parameters))
        };
        let of: syn::Path = input.parse()?;
        let head = text(&of);
        let of = of.segments.last().unwrap().ident.to_string();
        input.parse::<Token![;]>()?;
        let mut functions = Vec::new();
        while !input.is_empty() {
            let attributes = Attribute::parse_outer(input)?;
            let name: syn::Ident = input.parse()?;
            let argument;
            parenthesized!(argument in input);
            let value: syn::Ident = argument.parse()?;
            argument.parse::<Token![:]>()?;
            let kind = text(&argument.parse::<syn::Type>()?);
            if input.parse::<Option<Token![in]>>()?.is_some() {
                Punctuated::<syn::Ident, Token![.]>::parse_separated_nonempty(input)?;
            }
            if input.parse::<Option<Token![=]>>()?.is_some() {
                input.parse::<syn::Expr>()?;
            }
            input.parse::<Token![;]>()?;
            let text = format!("fn {name}(self, {value}: {kind}) -> Self");
            functions.push(Member::new(text, &attributes).of_block(&bounds, &head));
        }
        Ok(Self { of, functions })
    }
}

/// The crate as its files say it.
#[derive(Default)]
struct Crate {
    /// The items of each module, by its path below the root.
    modules: BTreeMap<Vec<String>, Vec<Item>>,
    /// The docs that stand at the head of a module's file.
    heads: BTreeMap<Vec<String>, String>,
    /// The public functions of each type, by its name: these are unique.
    functions: BTreeMap<String, BTreeSet<Member>>,
    /// The exported macros, which stand at the root wherever they are written.
    macros: List,
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_shipped(attributes: &[Attribute]) -> bool {
    let texts = attributes.iter().map(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        text.replace(' ', "")
    });
    let hidden = ["cfg(test", "cfg(all(test", "cfg(all(doctest", "doc(hidden"];
    !texts
        .into_iter()
        .any(|text| hidden.iter().any(|head| text.starts_with(head)))
}

fn is_exported(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("macro_export"))
}

fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(value) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(literal) = &value.value else {
            return None;
        };
        match &literal.lit {
            syn::Lit::Str(text) if value.path.is_ident("doc") => Some(text.value()),
            _ => None,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Tokens as rustfmt would set them, near enough to be read.
fn text(tokens: &impl quote::ToTokens) -> String {
    const JOINED: [&str; 15] = [
        " ::", ":: ", " <", "< ", " >", "& ", " (", "( ", " )", " ,", " :", " ;", "[ ", " ]", "' ",
    ];
    let mut text = tokens.to_token_stream().to_string();
    for wide in JOINED {
        text = text.replace(wide, wide.trim());
    }
    for (rough, plain) in [
        ("->", " -> "),
        (",)", ")"),
        ("(mut ", "("),
        (", mut ", ", "),
    ] {
        text = text.replace(rough, plain);
    }
    text.replace("  ", " ").trim_end_matches(',').to_owned()
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut found = Self::default();
        found.read_file(&root.join("src/lib.rs"), &root.join("src"), Vec::new());
        found
    }

    fn read_file(&mut self, file: &Path, folder: &Path, path: Vec<String>) {
        let source = fs::read_to_string(file).unwrap();
        let file = syn::parse_file(&source).unwrap();
        self.heads.insert(path.clone(), docs(&file.attrs));
        self.read_items(file.items, folder, path);
    }

    fn read_items(&mut self, items: Vec<Item>, folder: &Path, path: Vec<String>) {
        for item in &items {
            match item {
                Item::Mod(module) if is_shipped(&module.attrs) => {
                    let name = module.ident.to_string();
                    let inner: Vec<_> = path.iter().cloned().chain([name.clone()]).collect();
                    if let Some((_, items)) = &module.content {
                        self.read_items(items.clone(), &folder.join(&name), inner);
                        continue;
                    }
                    let files = [
                        folder.join(format!("{name}.rs")),
                        folder.join(&name).join("mod.rs"),
                    ];
                    let file: &PathBuf = files.iter().find(|file| file.exists()).unwrap();
                    self.read_file(file, &folder.join(&name), inner);
                }
                Item::Impl(block) if is_shipped(&block.attrs) => self.read_block(block),
                Item::Macro(called) if called.mac.path.is_ident("setters") => {
                    let setters: Setters = called.mac.parse_body().unwrap();
                    self.functions
                        .entry(setters.of)
                        .or_default()
                        .extend(setters.functions);
                }
                Item::Macro(made) if is_exported(&made.attrs) => {
                    let entry = Entry {
                        kind: "macro".to_owned(),
                        docs: docs(&made.attrs),
                        members: Vec::new(),
                    };
                    let name = made.ident.as_ref().unwrap().to_string();
                    self.macros.insert(name, entry);
                }
                _ => {}
            }
        }
        self.modules.insert(path, items);
    }

    fn read_block(&mut self, block: &ItemImpl) {
        let syn::Type::Path(name) = &*block.self_ty else {
            return;
        };
        let name = name.path.segments.last().unwrap().ident.to_string();
        let known = self.functions.entry(name).or_default();
        let (bounds, of) = (bounds(&block.generics), text(&block.self_ty));
        if let Some((path, _)) = &block.trait_ {
            let last = path.segments.last().unwrap();
            let target = block.items.iter().find_map(|item| match item {
                ImplItem::Type(kind) => Some(format!("<Target = {}>", text(&kind.ty))),
                _ => None,
            });
            let arguments = match last.ident.to_string().as_str() {
                "From" | "TryFrom" => text(&last.arguments),
                "Deref" | "DerefMut" => target.unwrap_or_default(),
                _ => return,
            };
            let implemented = Member::new(format!("impl {}{arguments}", last.ident), &block.attrs);
            known.insert(implemented.of_block(&bounds, &of));
            return;
        }
        for item in &block.items {
            let member = match item {
                ImplItem::Fn(function)
                    if is_public(&function.vis) && is_shipped(&function.attrs) =>
                {
                    Member::new(text(&function.sig), &function.attrs)
                }
                ImplItem::Const(value) if is_public(&value.vis) => {
                    let text = format!("const {}: {}", value.ident, text(&value.ty));
                    Member::new(text, &value.attrs)
                }
                _ => continue,
            };
            known.insert(member.of_block(&bounds, &of));
        }
    }

    /// The names of the crate's own types.
    fn names(&self) -> BTreeSet<String> {
        let items = self.modules.values().flatten();
        items.filter_map(ident).collect()
    }

    /// Adds what of a module is public, under the path by which a program finds it.
    fn list(&self, module: &[String], list: &mut List) {
        for item in self.modules.get(module).into_iter().flatten() {
            match item {
                Item::Mod(inner) if is_public(&inner.vis) && is_shipped(&inner.attrs) => {
                    let inner = joined(module, &inner.ident.to_string());
                    let entry = Entry {
                        kind: "mod".to_owned(),
                        docs: self.heads.get(&inner).cloned().unwrap_or_default(),
                        members: Vec::new(),
                    };
                    list.insert(inner.join("::"), entry);
                    self.list(&inner, list);
                }
                Item::Use(used) if is_public(&used.vis) && is_shipped(&used.attrs) => {
                    for (path, name) in named(&used.tree) {
                        let place = joined(module, &name).join("::");
                        let entry = match self.find(module, &path) {
                            Some(item) => self.entry(item),
                            None => Some(Entry {
                                kind: format!("use {} as", path.join("::")),
                                ..Entry::default()
                            }),
                        };
                        list.extend(entry.map(|entry| (place, entry)));
                    }
                }
                item => {
                    let entry = ident(item).zip(self.entry(item));
                    list.extend(
                        entry.map(|(name, entry)| (joined(module, &name).join("::"), entry)),
                    );
                }
            }
        }
    }

    /// The item that a path of a `use` means, through further re-exports, if it is of this crate.
    fn find(&self, module: &[String], path: &[String]) -> Option<&Item> {
        let (name, heads) = path.split_last()?;
        let mut at = module.to_vec();
        for head in heads {
            match head.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                inner => at.push(inner.to_owned()),
            }
        }
        let items = self.modules.get(&at)?;
        let here = items
            .iter()
            .find(|item| ident(item).is_some_and(|found| found == *name));
        here.or_else(|| {
            let uses = items.iter().filter_map(|item| match item {
                Item::Use(used) => Some(named(&used.tree)),
                _ => None,
            });
            let (further, _) = uses.flatten().find(|(_, found)| found == name)?;
            // A crate of its own is named by no path.
            (further != *path).then(|| self.find(&at, &further))?
        })
    }

    /// What the list says of an item, if it is public.
    fn entry(&self, item: &Item) -> Option<Entry> {
        let (visibility, attributes, kind, mut members) = match item {
            Item::Struct(item) => {
                let members = public_fields(&item.fields);
                let kind = format!("struct{}", bounds(&item.generics));
                (&item.vis, &item.attrs, kind, members)
            }
            Item::Enum(item) => {
                let members = item.variants.iter().map(|variant| {
                    let text = format!("{}{}", variant.ident, fields(&variant.fields));
                    Member::new(text, &variant.attrs)
                });
                let kind = format!("enum{}", bounds(&item.generics));
                (&item.vis, &item.attrs, kind, members.collect())
            }
            Item::Trait(item) => {
                let members = item.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(function) => {
                        Some(Member::new(text(&function.sig), &function.attrs))
                    }
                    TraitItem::Const(value) => {
                        let text = format!("const {}: {}", value.ident, text(&value.ty));
                        Some(Member::new(text, &value.attrs))
                    }
                    TraitItem::Type(kind) => {
                        let bounds = asked(&kind.bounds);
                        let text = format!("type {}{bounds}", kind.ident);
                        Some(Member::new(text, &kind.attrs))
                    }
                    _ => None,
                });
                let kind = format!(
                    "trait{}{}",
                    bounds(&item.generics),
                    asked(&item.supertraits)
                );
                (&item.vis, &item.attrs, kind, members.collect())
            }
            Item::Fn(item) => (&item.vis, &item.attrs, text(&item.sig), Vec::new()),
            Item::Const(item) => {
                let kind = format!("const of type {}", text(&item.ty));
                (&item.vis, &item.attrs, kind, Vec::new())
            }
            Item::Type(item) => {
                let kind = format!("type{} {}", bounds(&item.generics), text(&item.ty));
                (&item.vis, &item.attrs, kind, Vec::new())
            }
            _ => return None,
        };
        let own = ident(item)?;
        let of_blocks = self.functions.get(&own).into_iter().flatten().cloned();
        members.extend(of_blocks.map(|member| match item {
            Item::Struct(item) => member.of_type(&bounds(&item.generics)),
            Item::Enum(item) => member.of_type(&bounds(&item.generics)),
            _ => member,
        }));
        is_public(visibility).then(|| Entry {
            kind,
            docs: docs(attributes),
            members,
        })
    }
}

/// What is asked of a type or of the implementors of a trait.
fn asked(traits: &Punctuated<syn::TypeParamBound, Token![+]>) -> String {
    if traits.is_empty() {
        return String::new();
    }
    format!(": {}", text(traits))
}

fn joined(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

fn named(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    flatten(tree, &mut Vec::new(), &mut found);
    found
}

fn ident(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Const(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The fields of a variant, without their docs.
fn fields(fields: &Fields) -> String {
    let each = fields.iter().map(|field| match &field.ident {
        Some(name) => format!("{name}: {}", text(&field.ty)),
        None => text(&field.ty),
    });
    let all = each.collect::<Vec<_>>().join(", ");
    match fields {
        Fields::Named(_) => format!(" {{ {all} }}"),
        Fields::Unnamed(_) => format!("({all})"),
        Fields::Unit => String::new(),
    }
}

fn public_fields(fields: &Fields) -> Vec<Member> {
    let public = fields.iter().filter(|field| is_public(&field.vis));
    let named = public.map(|field| {
        let name = field.ident.as_ref().map(ToString::to_string);
        let text = format!("field {}: {}", name.unwrap_or_default(), text(&field.ty));
        Member::new(text, &field.attrs)
    });
    named.collect()
}

/// The paths that a `use` names, each with the name it gets.
fn flatten(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => {
            let path = before
                .iter()
                .cloned()
                .chain([name.ident.to_string()])
                .collect();
            found.push((path, name.ident.to_string()));
        }
        UseTree::Rename(name) => {
            let path = before
                .iter()
                .cloned()
                .chain([name.ident.to_string()])
                .collect();
            found.push((path, name.rename.to_string()));
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, found);
            }
        }
        UseTree::Glob(_) => panic!("a glob re-export hides what is public: {before:?}"),
    }
}

fn public_items() -> List {
    let files = Crate::read(&super::root());
    let mut list = files.macros.clone();
    files.list(&[], &mut list);
    // No program can call a conversion from a type that it cannot name.
    let mut hidden = files.names();
    for place in list.keys() {
        hidden.remove(place.rsplit("::").next().unwrap());
    }
    for entry in list.values_mut() {
        entry.members.retain(|member| {
            let is_word = |part: char| !(part.is_alphanumeric() || part == '_');
            let mut words = member.text.split(is_word).filter(|word| *word != "Target");
            !(member.is_implementation() && words.any(|word| hidden.contains(word)))
        });
    }
    list
}

#[test]
fn the_list_of_the_public_api_is_current() {
    let list = public_items();
    let mut current = String::new();
    for (place, entry) in &list {
        writeln!(current, "{place}: {}", entry.kind).unwrap();
        for member in &entry.members {
            writeln!(current, "    {}", member.text).unwrap();
        }
    }
    let file = super::root().join(LIST);
    if std::env::var_os("KUBECACHE_WRITE_PUBLIC_API").is_some() {
        fs::write(&file, &current).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let (kept, current): (BTreeSet<_>, BTreeSet<_>) =
        (kept.lines().collect(), current.lines().collect());
    let added: Vec<_> = current.difference(&kept).collect();
    let removed: Vec<_> = kept.difference(&current).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "{LIST} is not current; KUBECACHE_WRITE_PUBLIC_API=1 writes it anew.\n\
         added: {added:#?}\nremoved: {removed:#?}"
    );
}

/// Words that a sentence may have.
const WORDS_MAX: usize = 25;

/// The sentences of a text in Markdown, without code, tables and the targets of links.
fn sentences(docs: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in docs.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !line.starts_with(['|', '#']) && !line.starts_with("```");
        let is_item = line.starts_with(['-', '*'])
            || line
                .split_once(". ")
                .is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        if line.is_empty() || is_item || !is_prose {
            paragraphs.push(String::new());
        }
        if is_prose {
            let paragraph = paragraphs.last_mut().unwrap();
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let mut sentence = String::new();
        for word in paragraph.split_whitespace() {
            sentence.push_str(word);
            sentence.push(' ');
            if word
                .trim_end_matches([')', '*', '`'])
                .ends_with(['.', ':', '?'])
            {
                found.push(std::mem::take(&mut sentence));
            }
        }
        found.push(sentence);
    }
    found.retain(|sentence| !sentence.trim().is_empty());
    found
}

#[test]
fn public_docs_are_plain() {
    let mut wrong = Vec::new();
    for (place, entry) in public_items() {
        let room = place.split("::").next().unwrap();
        if room == "manual" {
            continue;
        }
        let own = (String::new(), entry.docs.clone());
        let members = entry
            .members
            .into_iter()
            .filter(|member| !member.is_implementation())
            .map(|member| (member.text, member.docs));
        for (member, docs) in [own].into_iter().chain(members) {
            let place = format!("{place} {member}");
            let sentences = sentences(&docs);
            if sentences.is_empty() && !entry.kind.starts_with("use") {
                wrong.push(format!("{place}: no docs"));
            }
            for sentence in sentences {
                let words = sentence.split_whitespace().count();
                if words > WORDS_MAX {
                    wrong.push(format!("{place}: {words} words: {sentence}"));
                }
                if super::behaviour_ids::is_named_in(&sentence) {
                    wrong.push(format!("{place}: names a behaviour by its ID: {sentence}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_name_means_one_type() {
    let root = super::root();
    let files = Crate::read(&root);
    let mut places = BTreeMap::<String, Vec<String>>::new();
    let rooms = files
        .modules
        .iter()
        .filter(|(path, _)| path.first().is_none_or(|room| room != "testing"));
    for (path, items) in rooms {
        let types = items.iter().filter(|item| {
            matches!(
                item,
                Item::Struct(_) | Item::Enum(_) | Item::Trait(_) | Item::Type(_)
            )
        });
        for name in types.filter_map(ident) {
            places.entry(name).or_default().push(path.join("::"));
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "names of several types: {places:#?}");
}
