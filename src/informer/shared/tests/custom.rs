//! A program's own source and type, whose behaviour a test sets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::list_watch::{ListPage, ListRequest, Listed, ListerWatcher, WatchRequest, WatchStream};
use crate::worker::StopToken;

/// A call of a source, and its answer if the test may change it.
pub(super) enum Call<'a> {
    List,
    Listed(&'a ListRequest, &'a mut ListPage),
    Watch(&'a mut WatchRequest),
    Describe,
}

type OnCall = Box<dyn Fn(Call<'_>) + Send + Sync>;

/// The fake source, and the test's function for its calls.
pub(super) struct Custom(FakeSource<ConfigMap>, OnCall);

impl Custom {
    pub(super) fn new(stage: &Stage, act: impl Fn(Call<'_>) + Send + Sync + 'static) -> Self {
        Self(stage.source.clone(), Box::new(act))
    }
}

impl ListerWatcher<ConfigMap> for Custom {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<ConfigMap>),
    ) -> Result<ListPage, Error> {
        self.1(Call::List);
        let mut page = self.0.list(request, stop, each)?;
        self.1(Call::Listed(request, &mut page));
        Ok(page)
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<ConfigMap>>, Error> {
        let mut request = request.clone();
        self.1(Call::Watch(&mut request));
        self.0.watch(&request, stop)
    }

    fn describe(&self) -> String {
        self.1(Call::Describe);
        self.0.describe()
    }
}

/// The function that a program's own type calls on drop.
pub(super) type OnDrop = Arc<dyn Fn(&ObjectMeta) + Send + Sync>;

/// A program's own type, whose objects may call a function on drop.
#[derive(Clone, Default)]
pub(super) struct Touchy(pub(super) ObjectMeta, pub(super) Option<OnDrop>);

impl k8s_openapi::Resource for Touchy {
    const API_VERSION: &'static str = "example.com/v1";
    const GROUP: &'static str = "example.com";
    const KIND: &'static str = "Touchy";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "touchies";
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::Metadata for Touchy {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

impl<'de> serde::Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        ObjectMeta::deserialize(from).map(|metadata| Self(metadata, None))
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if let Some(on_drop) = &self.1 {
            on_drop(&self.0);
        }
    }
}
