//! Random histories of a snapshot: processes follow each other, some are killed, the server is
//! away, the disk fails, and the file is damaged. No reader gets a state that is older than one
//! before it, and what a process had in memory is there in the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tests::dice::Dice;

const NAMES: [&str; 2] = ["a", "b"];

/// What is known of one object in memory, or in the file.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The newest state that a reader was shown; nothing older may come.
    newest: usize,
    /// It was shown, and has not been deleted since.
    is_there: bool,
}

type Knowledge = BTreeMap<&'static str, Known>;

/// One process: a snapshot and its manager.
struct Process {
    snapshot: Snapshot,
    secrets: Secrets,
}

struct Model {
    directory: TempDirectory,
    server: FakeSource<Secret>,
    mode: ChangeDetection,
    is_away: bool,
    disk_fails: bool,
    /// Another program has harmed the file since the last write.
    is_damaged: bool,
    /// The number of each object's present state.
    objects: BTreeMap<&'static str, usize>,
    references: BTreeSet<&'static str>,
    /// The references of the owner in the file.
    owned: BTreeSet<&'static str>,
    memory: Knowledge,
    file: Knowledge,
    process: Option<Process>,
}

impl Model {
    fn new(dice: &mut Dice) -> Self {
        let mut model = Self {
            directory: TempDirectory::new("snapshot-random"),
            server: FakeSource::new(),
            mode: if dice.roll(2) == 0 {
                ChangeDetection::Watch
            } else {
                ChangeDetection::Cache
            },
            is_away: false,
            disk_fails: false,
            is_damaged: false,
            objects: BTreeMap::new(),
            references: BTreeSet::new(),
            owned: BTreeSet::new(),
            memory: Knowledge::new(),
            file: Knowledge::new(),
            process: None,
        };
        model.start(options(&model.path()), false);
        model
    }

    fn path(&self) -> PathBuf {
        self.directory.join("snapshot")
    }

    fn secrets(&self) -> &Secrets {
        &self.process.as_ref().unwrap().secrets
    }

    /// A process begins, and references what the model says.
    fn start(&mut self, options: SnapshotOptions, restores: bool) {
        self.mend_disk();
        let snapshot = Snapshot::open(options).unwrap();
        let error = snapshot.load_error();
        assert_eq!(error.is_some(), self.is_damaged, "{error:?}");
        if self.is_damaged {
            self.file.clear();
            self.owned.clear();
        }
        let secrets = manager(&self.server, self.mode);
        snapshot.attach(&secrets).unwrap();
        if restores {
            snapshot.restore(&secrets);
        }
        self.process = Some(Process { snapshot, secrets });
        if restores {
            // What the restore has claimed and nobody references goes.
            let left = self.file.iter_mut();
            let left = left.filter(|(name, _)| self.owned.contains(*name));
            let left = left.filter(|(name, _)| !self.references.contains(*name));
            left.for_each(|(_, known)| known.is_there = false);
        }
        self.memory = self.file.clone();
        self.refer();
        for name in self.references.clone() {
            self.look(name);
        }
    }

    fn refer(&self) {
        let keys = self.references.iter().map(|name| key(name));
        self.secrets().set_references(&owner(), keys);
    }

    fn mend_disk(&mut self) {
        if std::mem::take(&mut self.disk_fails) {
            fs::rename(self.directory.with_extension("moved"), &*self.directory).unwrap();
        }
    }

    /// What the file has after a write now. What no process has referenced since stays in it.
    fn note_write(&mut self) {
        self.is_damaged = false;
        self.owned.clone_from(&self.references);
        for name in &self.references {
            let known = self.memory.get(name).copied().unwrap_or_default();
            self.file.insert(name, known);
        }
    }

    fn write(&mut self) {
        let snapshot = &self.process.as_ref().unwrap().snapshot;
        let written = snapshot.write_by(soon());
        assert_eq!(written.is_err(), self.disk_fails, "{written:?}");
        if written.is_ok() {
            self.note_write();
            self.check_secrecy();
        }
    }

    fn check_secrecy(&self) {
        let bytes = fs::read(self.path()).unwrap();
        let word = b"made-up";
        assert!(bytes.windows(word.len()).all(|window| window != word));
    }

    /// The process ends. If it is killed, it does not write once more.
    fn end(&mut self, is_killed: bool) {
        let before = fs::read(self.path()).ok();
        drop(self.process.take());
        if self.disk_fails {
            return;
        }
        if !is_killed {
            self.note_write();
        } else if let Some(before) = before {
            fs::write(self.path(), before).unwrap();
        } else {
            fs::remove_file(self.path()).unwrap();
        }
    }

    /// Another program harms the file, if there is one.
    fn damage(&mut self, dice: &mut Dice) {
        let Ok(mut bytes) = fs::read(self.path()) else {
            return;
        };
        let at = dice.roll(u64::try_from(bytes.len()).unwrap());
        let at = usize::try_from(at).unwrap();
        if dice.roll(2) == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1;
        }
        fs::write(self.path(), bytes).unwrap();
        self.is_damaged = true;
    }

    /// Holds a state that a reader is shown against the earlier ones.
    fn show(&mut self, name: &'static str, shown: &Secret) {
        let value = String::from_utf8(shown.data.as_ref().unwrap()["password"].0.clone()).unwrap();
        let (of, number) = value.split_once(": made-up ").unwrap();
        assert_eq!(of, name, "the state of another object");
        let number: usize = number.parse().unwrap();
        let known = self.memory.entry(name).or_default();
        assert!(number >= known.newest, "{name}: {number} after {known:?}");
        let is_there = self.objects.get(name).is_some_and(|now| *now >= number);
        *known = Known {
            newest: number,
            is_there,
        };
    }

    /// A read that waits for nothing. What was there is still there.
    fn look(&mut self, name: &'static str) {
        let found = self.secrets().get_cached("shop", name);
        let is_referenced = self.references.contains(name);
        let known = self.memory.get(name).copied().unwrap_or_default();
        match found {
            Ok(Some(found)) => {
                assert!(is_referenced);
                self.show(name, &found);
            }
            Ok(None) => assert!(is_referenced && !known.is_there, "{name}: {known:?}"),
            Err(error) if error.is_not_found() => {
                assert!(is_referenced && !known.is_there, "{name}: {known:?}");
            }
            Err(error) if error.kind() == ErrorKind::NotRegistered => assert!(!is_referenced),
            Err(error) => assert!(is_referenced && self.is_away, "{error}"),
        }
    }

    /// A read that the server answers.
    fn read_fresh(&mut self, name: &'static str) {
        let found = self.secrets().get_fresh("shop", name, soon());
        match found {
            Ok(found) => {
                self.show(name, &found);
                assert_eq!(self.memory[name].newest, self.objects[name], "{name}");
            }
            Err(error) if error.is_not_found() => {
                assert!(!self.objects.contains_key(name), "{name}");
                self.memory.entry(name).or_default().is_there = false;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Notes that the object need not be there any more.
    fn lose(&mut self, name: &str) {
        for all in [&mut self.memory, &mut self.file] {
            if let Some(known) = all.get_mut(name) {
                known.is_there = false;
            }
        }
    }

    /// Does something by chance, and says what.
    #[expect(clippy::too_many_lines, reason = "it has a line or two for each event")]
    fn step(&mut self, dice: &mut Dice, number: usize) -> String {
        let name = NAMES[usize::try_from(dice.roll(2)).unwrap()];
        match dice.roll(26) {
            0..=3 => {
                self.server
                    .set(secret(name, &format!("{name}: made-up {number}")));
                self.objects.insert(name, number);
                format!("{name} is set")
            }
            4 => {
                self.server.delete("shop", name);
                self.objects.remove(name);
                self.lose(name);
                format!("{name} is deleted")
            }
            5..=8 => {
                self.references.insert(name);
                self.refer();
                self.look(name);
                format!("{name} is referenced: {:?}", self.memory.get(name))
            }
            9 => {
                self.references.remove(name);
                self.refer();
                // It is claimed, and goes from memory and with the next write.
                self.lose(name);
                format!("{name} is referenced no more")
            }
            10..=11 if self.is_away => {
                self.server.heal();
                self.is_away = false;
                "the server is back".to_owned()
            }
            10 => {
                go_away(&self.server);
                self.is_away = true;
                "the server is away".to_owned()
            }
            12 if !self.disk_fails => {
                let moved = self.directory.with_extension("moved");
                fs::rename(&*self.directory, moved).unwrap();
                self.disk_fails = true;
                "the disk fails".to_owned()
            }
            12 => {
                self.mend_disk();
                "the disk is right again".to_owned()
            }
            11 | 13 => {
                self.write();
                "a write".to_owned()
            }
            14..=17 => {
                let is_killed = dice.roll(2) == 0;
                self.end(is_killed);
                self.mend_disk();
                if !self.is_damaged && dice.roll(4) == 0 {
                    self.damage(dice);
                }
                let restores = dice.roll(2) == 0;
                if !restores {
                    // Its owner comes later.
                    self.references.remove(name);
                }
                let is_damaged = self.is_damaged;
                self.start(options(&self.path()), restores);
                format!(
                    "another process; killed: {is_killed}, damaged: {is_damaged}, restores: \
                     {restores}, without {name}"
                )
            }
            18..=23 => {
                // One that fails takes a while.
                if self.references.contains(name) && !self.is_away {
                    self.read_fresh(name);
                }
                format!("{name} is read fresh: {:?}", self.memory.get(name))
            }
            _ => {
                self.look(name);
                format!("{name} is read: {:?}", self.memory.get(name))
            }
        }
    }

    /// Heals all, and looks whether readers and the file have what the server has.
    fn finish(mut self) {
        self.mend_disk();
        self.server.heal();
        // Else its watch comes back after a pause.
        let follows = !std::mem::take(&mut self.is_away) && self.mode == ChangeDetection::Watch;
        for name in self.references.clone() {
            let is_right = || match self.secrets().get_by("shop", name, soon()) {
                Ok(found) => !found.is_stale() && self.objects.contains_key(name),
                Err(error) => error.is_not_found() && !self.objects.contains_key(name),
            };
            // With `Cache` a copy may serve until its time to live is over.
            if follows {
                until(is_right);
            }
            self.read_fresh(name);
        }
        self.end(false);
        // What nobody has claimed by now goes.
        let options = options(&self.path());
        self.start(options.clone().claim_within(Duration::ZERO), true);
        self.write();
        self.end(false);
        let parts = options.load(&KeyBytes::of(&options.key).unwrap(), SystemTime::now());
        let parts = parts.unwrap();
        let objects = parts.get("v1/secrets").map(|part| &part.objects);
        let names = objects.into_iter().flat_map(BTreeMap::keys);
        let names: BTreeSet<_> = names.map(|key| key.name().to_owned()).collect();
        let wanted = self.references.iter();
        let wanted = wanted.filter(|name| self.objects.contains_key(*name));
        assert_eq!(names, wanted.map(|name| (*name).to_owned()).collect());
    }
}

#[test]
fn what_a_process_had_in_memory_is_there_in_the_next_and_no_read_goes_back() {
    for (mut dice, _seed) in Dice::histories(10) {
        let mut model = Model::new(&mut dice);
        for number in 1..50 {
            let what = model.step(&mut dice, number);
            println!("{number}: {what}");
        }
        model.finish();
    }
}
