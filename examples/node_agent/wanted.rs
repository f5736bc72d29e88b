//! What is kept whatever pods name: objects that flags and files name, and the configuration.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::declaration::Declaration;
use crate::managers::ObjectId;
use crate::references;

/// Where it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The objects that flags name.
    pub(crate) named: BTreeSet<ObjectId>,
    /// The files of `--references`.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) config: Option<PathBuf>,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Those that the configuration names are among them.
    pub(crate) references: BTreeSet<ObjectId>,
    /// Those of them that only credentials name. They have no files.
    pub(crate) for_credentials: BTreeSet<ObjectId>,
    pub(crate) declaration: Option<Arc<Declaration>>,
}

impl Sources {
    /// Whether there is a file that another read can find changed.
    pub(crate) fn has_files(&self) -> bool {
        !self.files.is_empty() || self.config.is_some()
    }

    /// Reads all files. The error names the file that is wrong.
    pub(crate) fn read(&self) -> Result<Wanted, String> {
        let mut references = self.named.clone();
        for file in &self.files {
            references.extend(references::of_file(file)?);
        }
        let declaration = self.config.as_deref().map(Declaration::read).transpose()?;
        let mut for_credentials = BTreeSet::new();
        if let Some(declaration) = &declaration {
            references.extend(declaration.objects().cloned());
            for_credentials.extend(declaration.credentials.objects().cloned());
            for_credentials.retain(|object| !references.contains(object));
            references.extend(for_credentials.iter().cloned());
        }
        Ok(Wanted {
            references,
            for_credentials,
            declaration: declaration.map(Arc::new),
        })
    }
}

impl Wanted {
    /// Whether nothing is kept unless pods name it.
    pub(crate) fn is_empty(&self) -> bool {
        self.references.is_empty() && self.declaration.is_none()
    }
}
