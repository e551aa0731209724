//! Sessions: calls that belong together, the worker they are best served by, and what they keep.
//!
//! The store lives here, in the host: it survives the worker, and ends with the session. A session ends when nobody has
//! visited it for its time to live, or when it is ended by hand; then every worker that has served it is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::value::Encoded;
use crate::worker::Berth;

/// The most bytes that one session may keep.
const STORE_LIMIT: usize = 16 << 20;

/// A session, as [`crate::PoolRef::sessions`] shows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// The worker that serves it at present.
    pub worker: Option<String>,
    /// How many keys it keeps.
    pub keys: usize,
    /// How long ago it was visited.
    pub idle: Duration,
}

#[derive(Debug)]
struct Session {
    berth: Weak<Berth>,
    /// The workers that have served it, to be told of its end.
    served_by: Vec<Weak<Berth>>,
    visited: Instant,
    /// Which entry in `by_age` is its own.
    stamp: u64,
    store: BTreeMap<String, Encoded>,
    stored: usize,
}

#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<Arc<str>, Session>,
    by_age: BTreeMap<u64, Arc<str>>,
    next_stamp: u64,
}

/// All sessions of a pool.
#[derive(Debug)]
pub(crate) struct Sessions {
    ttl: Duration,
    limit: usize,
    table: Mutex<Table>,
}

/// What a call of a session finds.
pub(crate) enum Visit {
    New,
    At(Arc<Berth>),
    Refused { limit: usize },
}

/// Why the store cannot keep something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("session {0} does not exist, or has ended")]
    NoSession(String),
    #[error("session {session} would keep {bytes} bytes, and {STORE_LIMIT} is the limit")]
    Full { session: String, bytes: usize },
}

/// A session that has ended, and who must be told.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: Arc<str>,
    pub(crate) served_by: Vec<Weak<Berth>>,
}

impl Sessions {
    pub(crate) fn new(ttl: Duration, limit: usize) -> Self {
        Self { ttl, limit, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn visit(&self, id: &str) -> Visit {
        let mut table = self.table();
        let stamp = table.next_stamp;
        table.next_stamp += 1;
        let now = Instant::now();
        if let Some((key, _)) = table.sessions.get_key_value(id) {
            let key = Arc::clone(key);
            let Some(session) = table.sessions.get_mut(id) else { return Visit::New };
            let berth = session.berth.upgrade();
            let old = std::mem::replace(&mut session.stamp, stamp);
            session.visited = now;
            table.by_age.remove(&old);
            table.by_age.insert(stamp, key);
            return berth.map_or(Visit::New, Visit::At);
        }
        if table.sessions.len() >= self.limit {
            return Visit::Refused { limit: self.limit };
        }
        let key: Arc<str> = id.into();
        table.by_age.insert(stamp, Arc::clone(&key));
        let session = Session {
            berth: Weak::new(),
            served_by: Vec::new(),
            visited: now,
            stamp,
            store: BTreeMap::new(),
            stored: 0,
        };
        table.sessions.insert(key, session);
        Visit::New
    }

    pub(crate) fn served_by(&self, id: &str, berth: &Arc<Berth>) {
        let mut table = self.table();
        let Some(session) = table.sessions.get_mut(id) else { return };
        let this = Arc::downgrade(berth);
        if !session.served_by.iter().any(|known| known.ptr_eq(&this)) {
            session.served_by.retain(|known| known.strong_count() > 0);
            session.served_by.push(this.clone());
        }
        session.berth = this;
    }

    pub(crate) fn berth(&self, id: &str) -> Option<Arc<Berth>> {
        self.table().sessions.get(id)?.berth.upgrade()
    }

    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let now = Instant::now();
        let shown = |(id, session): (&Arc<str>, &Session)| SessionInfo {
            id: id.to_string(),
            worker: session.berth.upgrade().map(|berth| berth.id.to_string()),
            keys: session.store.len(),
            idle: now.saturating_duration_since(session.visited),
        };
        self.table().sessions.iter().map(shown).collect()
    }

    pub(crate) fn end(&self, id: &str) -> Option<Ended> {
        let mut table = self.table();
        let (id, session) = table.sessions.remove_entry(id)?;
        table.by_age.remove(&session.stamp);
        Some(Ended { id, served_by: session.served_by })
    }

    /// Ends the sessions whose time is over, and says when to look again.
    pub(crate) fn expire(&self) -> (Vec<Ended>, Duration) {
        let mut table = self.table();
        let now = Instant::now();
        let mut ended = Vec::new();
        loop {
            let Some((&stamp, id)) = table.by_age.first_key_value() else { return (ended, self.ttl) };
            let id = Arc::clone(id);
            let idle = table
                .sessions
                .get(&id)
                .map_or(self.ttl, |session| now.saturating_duration_since(session.visited));
            if idle < self.ttl {
                return (ended, self.ttl - idle);
            }
            table.by_age.remove(&stamp);
            if let Some(session) = table.sessions.remove(&id) {
                ended.push(Ended { id, served_by: session.served_by });
            }
        }
    }

    pub(crate) fn get(&self, id: &str, key: &str) -> Result<Option<Encoded>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.get(key).cloned())
    }

    pub(crate) fn set(&self, id: &str, key: String, value: Encoded) -> Result<(), StoreError> {
        let mut table = self.table();
        let session = table.sessions.get_mut(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        let freed = session.store.get(&key).map_or(0, |old| old.payload_len() + key.len());
        let bytes = session.stored - freed + value.payload_len() + key.len();
        if bytes > STORE_LIMIT {
            return Err(StoreError::Full { session: id.to_owned(), bytes });
        }
        session.stored = bytes;
        session.store.insert(key, value);
        Ok(())
    }

    pub(crate) fn delete(&self, id: &str, key: &str) -> Result<bool, StoreError> {
        let mut table = self.table();
        let session = table.sessions.get_mut(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        let old = session.store.remove(key);
        if let Some(old) = &old {
            session.stored -= old.payload_len() + key.len();
        }
        Ok(old.is_some())
    }

    pub(crate) fn keys(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.keys().cloned().collect())
    }
}
