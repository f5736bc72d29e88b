//! Random histories of a publisher: references and objects come and go, the server and the disk
//! fail, other programs do harm, processes follow each other. In the end the disk has what is
//! referenced, and nothing else.

use super::*;
use crate::tests::dice::Dice;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// What the test knows of the server, the references and the disk.
struct Model {
    directory: TempDirectory,
    clock: FakeClock,
    server: FakeSource<ConfigMap>,
    /// `None` between two processes.
    followed: Option<Followed>,
    objects: BTreeMap<&'static str, String>,
    references: BTreeSet<&'static str>,
    is_complete: bool,
    fails: bool,
    /// The objects whose files another program has changed since they were last checked.
    harmed: BTreeSet<&'static str>,
    /// What this process's hook was told of, and the files when it was last certain.
    told: BTreeSet<String>,
    seen: BTreeMap<&'static str, BTreeMap<String, String>>,
}

impl Model {
    fn new() -> Self {
        let clock = FakeClock::new();
        let mut model = Self {
            directory: TempDirectory::new("publisher-random"),
            clock,
            server: FakeSource::new(),
            followed: None,
            objects: BTreeMap::new(),
            references: BTreeSet::new(),
            is_complete: false,
            fails: false,
            harmed: BTreeSet::new(),
            told: BTreeSet::new(),
            seen: BTreeMap::new(),
        };
        model.start();
        model
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.directory.join("shop/configmaps").join(name)
    }

    /// What a reader finds now. The publisher's thread may be at work, or may have been stopped
    /// before its last file: a link then leads nowhere.
    fn files(&self, name: &str) -> BTreeMap<String, String> {
        let folder = self.folder(name);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let keys = names.filter(|name| !name.starts_with(".."));
        keys.filter_map(|key| Some((key.clone(), fs::read_to_string(folder.join(&key)).ok()?)))
            .collect()
    }

    /// The process ends, and the next one begins. It knows no references yet.
    fn start(&mut self) {
        // One outlet at a time has the directory.
        self.followed = None;
        self.seen = self.all_files();
        let options = ManagerOptions::default().change_detection(ChangeDetection::Get);
        let outlet = outlet_at(&self.clock, &self.directory);
        self.followed = Some(Followed::of(self.server.clone(), outlet, options));
        self.is_complete = false;
        // The end of a process may cut off a write, of which the next one finds the rest right.
        self.told.extend(NAMES.map(str::to_owned));
        self.refer();
    }

    fn all_files(&self) -> BTreeMap<&'static str, BTreeMap<String, String>> {
        NAMES.map(|name| (name, self.files(name))).into()
    }

    fn refer(&self) {
        let keys = self.references.iter();
        let keys = keys.map(|name| ObjectKey::new("shop", *name));
        let followed = self.followed.as_ref().unwrap();
        followed.manager.set_references(&owner(), keys);
    }

    /// Does something by chance, and says what.
    fn step(&mut self, dice: &mut Dice, number: usize) -> String {
        let name = NAMES[usize::try_from(dice.roll(3)).unwrap()];
        let followed = self.followed.as_ref().unwrap();
        match dice.roll(21) {
            0..=2 => {
                let value = number.to_string();
                let map = objects::config_map("shop", name, "", &[("one", &value), ("two", "2")]);
                followed.server.set(map);
                self.objects.insert(name, value);
                format!("{name} is set")
            }
            3 => {
                followed.server.delete("shop", name);
                self.objects.remove(name);
                format!("{name} is deleted")
            }
            4..=5 => {
                self.references.insert(name);
                self.refer();
                format!("{name} is referenced")
            }
            6..=7 => {
                self.references.remove(name);
                self.refer();
                format!("{name} is referenced no more")
            }
            8..=9 => {
                self.start();
                "another process".to_owned()
            }
            10..=11 => {
                followed.publisher.references_are_complete();
                self.is_complete = true;
                "all references are known".to_owned()
            }
            12 => {
                let error = Error::new(ErrorKind::Forbidden, "the server refuses");
                followed.server.fail_all(RequestKind::Get, error);
                self.fails = true;
                "the server fails".to_owned()
            }
            13 if dice.roll(2) == 0 => {
                let parent = self.directory.join("shop/configmaps");
                if parent.exists() {
                    chmod(&parent, 0o777);
                }
                "the disk fails".to_owned()
            }
            13 => self.harm(dice, name),
            14 => {
                self.clock.advance(Duration::from_secs(dice.roll(40)));
                "time passes".to_owned()
            }
            15 => {
                self.heal();
                "all is healed".to_owned()
            }
            _ => {
                let published = self.publish();
                format!("published: {published:?}")
            }
        }
    }

    /// Another program changes or removes files.
    fn harm(&mut self, dice: &mut Dice, name: &'static str) -> String {
        let folder = self.folder(name);
        if self.files(name).is_empty() {
            return "nothing".to_owned();
        }
        // The publisher's thread may be about to remove them, too.
        drop(match dice.roll(3) {
            0 => fs::remove_file(folder.join("one")),
            1 => fs::write(folder.join("..data/one"), "somebody's"),
            _ => fs::remove_dir_all(&folder),
        });
        self.harmed.insert(name);
        format!("harm to {name}")
    }

    fn heal(&mut self) {
        self.server.heal();
        self.fails = false;
        let parent = self.directory.join("shop/configmaps");
        if parent.exists() {
            chmod(&parent, 0o700);
        }
    }

    /// Publishes, and looks at the disk if that was a success.
    fn publish(&mut self) -> Result<(), Error> {
        let followed = self.followed.as_ref().unwrap();
        let published = followed.publish();
        let told = followed.changed.try_iter().flatten();
        self.told.extend(told.map(|key| key.name().to_owned()));
        published.clone()?;
        let now = self.all_files();
        for name in NAMES {
            if self.harmed.contains(name) {
                continue;
            }
            let files = &now[name];
            let wanted = self.objects.get(name);
            let wanted = wanted.map(|value| texts(&[("one", value), ("two", "2")]));
            match (self.references.contains(name), wanted) {
                (true, Some(wanted)) if !self.fails => assert_eq!(*files, wanted, "{name}"),
                (true, _) => {}
                (false, _) => assert!(files.is_empty() || !self.is_complete, "{name}: {files:?}"),
            }
            let is_told = self.seen[name] == *files || self.told.contains(name);
            assert!(is_told, "the change of {name} was not told");
        }
        self.told.clear();
        self.seen = now;
        Ok(())
    }

    /// Heals everything, and looks whether the disk has all that it should and nothing else.
    fn end(mut self) {
        self.heal();
        let followed = self.followed.as_ref().unwrap();
        followed.publisher.references_are_complete();
        self.is_complete = true;
        for _ in 0..4 {
            // What an earlier check found is right with the next round.
            self.clock.advance(Duration::from_secs(30));
            drop(self.followed.as_ref().unwrap().publish());
            self.heal();
        }
        self.harmed.clear();
        self.told.extend(NAMES.map(str::to_owned));
        self.publish().unwrap();
        for name in NAMES {
            let folder = self.folder(name);
            if !self.references.contains(name) {
                assert!(!folder.exists(), "{name} is left");
            } else if self.objects.contains_key(name) {
                assert_eq!(generations(&folder), 1, "{name}");
            }
        }
    }
}

#[test]
fn a_publisher_ends_with_what_is_referenced_and_nothing_else() {
    for (mut dice, _seed) in Dice::histories(60) {
        let mut model = Model::new();
        for number in 0..40 {
            let what = model.step(&mut dice, number);
            println!("{number}: {what}");
        }
        model.end();
    }
}
