//! The pools of an engine by their names.

use std::sync::Arc;

use super::PoolInner;
use crate::call::CallError;

/// The pools of an engine.
pub(crate) struct PoolDirectory(Vec<Arc<PoolInner>>);

impl PoolDirectory {
    pub(crate) fn new(pools: Vec<Arc<PoolInner>>) -> Arc<Self> {
        Arc::new(Self(pools))
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<PoolInner>, CallError> {
        self.0.iter().find(|pool| &*pool.name == name).map(Arc::clone).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|pool| &*pool.name).collect();
            CallError::NoSuchPool { name: name.into(), known: known.join(", ") }
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<PoolInner>> {
        self.0.iter()
    }
}
