//! Sessions: calls that belong together, the worker that serves them best, and the values that they store.
//!
//! The store lives in the host, so it survives the worker and ends with the session. A session ends when no call has
//! visited it for its time to live, or when it is ended explicitly. Then every worker that has served it is notified.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::options::LostSessions;
use crate::tool::{STORE_LIMIT, SessionStore, StoreError};
use crate::value::Encoded;
use crate::worker::Worker;

/// What an entry counts for in addition to its key and its value: even the smallest entries take memory.
const ENTRY: usize = 128;

/// The longest time to live. In practice, such a session never expires.
const NEVER: Duration = Duration::from_hours(24 * 365 * 10);

/// A session, as [`crate::Pool::sessions`] returns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The id of the session.
    pub id: String,
    /// The worker that serves the session at present.
    pub worker: Option<String>,
    /// The number of keys in the session's store.
    pub keys: usize,
    /// The time since the last visit by a call.
    pub idle: Duration,
}

#[derive(Debug)]
struct SessionEntry {
    worker: Weak<Worker>,
    /// The name of that worker, which outlives the worker.
    worker_name: Option<Arc<str>>,
    /// The workers that have served the session and must be notified of its end.
    served_by: Vec<Weak<Worker>>,
    visited: Instant,
    /// Shared with the waiting and running calls of the session. The session does not expire while there are any.
    in_use: Arc<()>,
    store: BTreeMap<String, Encoded>,
    stored: usize,
}

#[derive(Debug)]
struct Table {
    ttl: Duration,
    limit: usize,
    sessions: HashMap<Arc<str>, SessionEntry>,
    /// The sessions by the earliest time at which they may expire. They are checked again then, so a visit costs
    /// nothing.
    by_age: BTreeMap<(Instant, u64), Arc<str>>,
    /// Distinguishes entries of the same instant.
    next_entry: u64,
}

impl Table {
    fn look_again(&mut self, when: Instant, id: Arc<str>) {
        self.next_entry += 1;
        self.by_age.insert((when, self.next_entry), id);
    }
}

/// All sessions of a pool.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
}

/// The state in which a call finds its session.
pub(crate) enum SessionVisit {
    New,
    /// The session exists, and no worker has served it yet.
    Unserved,
    /// The worker that served the session last, which has this name, is gone.
    Lost(Arc<str>),
    At(Arc<Worker>),
}

/// The result when a worker that is about to serve a session with strict affinity claims it.
pub(crate) enum SessionClaim {
    /// The session belongs to this worker, or has belonged to no worker so far.
    Own,
    /// The session belongs to another worker, which is alive.
    Others(Arc<Worker>),
    /// The session belonged to the worker of this name, which is gone. It now belongs to the claiming worker, if that
    /// is allowed.
    Inherited(Arc<str>),
}

/// Keeps a session from expiring while the value lives.
pub(crate) type SessionInUse = Arc<()>;

/// A session that has ended, and the workers to notify.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub(crate) id: Arc<str>,
    pub(crate) served_by: Vec<Weak<Worker>>,
}

/// Returns the size that an entry of a store counts for.
fn size(key: &str, value: &Encoded) -> usize {
    ENTRY + key.len() + value.payload_len()
}

impl SessionEntry {
    fn note(&mut self, worker: &Arc<Worker>) {
        let this = Arc::downgrade(worker);
        if !self.served_by.iter().any(|known| known.ptr_eq(&this)) {
            self.served_by.retain(|known| known.strong_count() > 0);
            self.served_by.push(this.clone());
        }
        if !self.worker.ptr_eq(&this) {
            self.worker_name = Some(worker.id.as_str().into());
        }
        self.worker = this;
    }
}

impl Sessions {
    pub(crate) fn limit(&self) -> usize {
        self.table().limit
    }

    pub(crate) fn new(ttl: Duration, limit: usize) -> Self {
        let ttl = ttl.min(NEVER);
        let (sessions, by_age) = (HashMap::new(), BTreeMap::new());
        Self { table: Mutex::new(Table { ttl, limit, sessions, by_age, next_entry: 0 }) }
    }

    /// Changes the limits. The time to live still counts from each session's last visit. Existing sessions stay, even
    /// if there are more than the new limit.
    pub(crate) fn adopt(&self, ttl: Duration, limit: usize) {
        let mut table = self.table();
        let ttl = ttl.min(NEVER);
        table.limit = limit;
        if std::mem::replace(&mut table.ttl, ttl) != ttl {
            table.by_age.clear();
            let ends = |(id, session): (&Arc<str>, &SessionEntry)| (session.visited + ttl, Arc::clone(id));
            let ends: Vec<_> = table.sessions.iter().map(ends).collect();
            for (when, id) in ends {
                table.look_again(when, id);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds or opens a session for a call. Returns `None` if there are too many sessions.
    pub(crate) fn visit(&self, id: &str) -> Option<(SessionVisit, SessionInUse)> {
        let mut table = self.table();
        let now = Instant::now();
        if let Some(session) = table.sessions.get_mut(id) {
            session.visited = now;
            let visit = match (session.worker.upgrade(), &session.worker_name) {
                (Some(worker), _) => SessionVisit::At(worker),
                (None, Some(worker)) => SessionVisit::Lost(Arc::clone(worker)),
                (None, None) => SessionVisit::Unserved,
            };
            return Some((visit, Arc::clone(&session.in_use)));
        }
        if table.sessions.len() >= table.limit {
            return None;
        }
        let in_use = Arc::new(());
        let key: Arc<str> = id.into();
        let ends = now + table.ttl;
        table.look_again(ends, Arc::clone(&key));
        let session = SessionEntry {
            worker: Weak::new(),
            worker_name: None,
            served_by: Vec::new(),
            visited: now,
            in_use: Arc::clone(&in_use),
            store: BTreeMap::new(),
            stored: 0,
        };
        table.sessions.insert(key, session);
        Some((SessionVisit::New, in_use))
    }

    /// Claims a session with strict affinity for a worker that is about to serve it. The first worker keeps the session
    /// for as long as it lives. `lost` decides whether another worker may have the session after that.
    pub(crate) fn claim(
        &self,
        id: &str,
        worker: &Arc<Worker>,
        lost: LostSessions,
        lives: impl Fn(&Arc<Worker>) -> bool,
    ) -> SessionClaim {
        let mut table = self.table();
        let Some(session) = table.sessions.get_mut(id) else { return SessionClaim::Own };
        let owner = session.worker.upgrade();
        if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, worker)) {
            return SessionClaim::Own;
        }
        if let Some(owner) = owner.filter(|owner| lives(owner)) {
            return SessionClaim::Others(owner);
        }
        let before = session.worker_name.clone();
        if before.is_none() || lost == LostSessions::Move {
            session.note(worker);
        }
        before.map_or(SessionClaim::Own, SessionClaim::Inherited)
    }

    /// Records that a worker is about to serve a session, whichever worker has served it before.
    pub(crate) fn served_by(&self, id: &str, worker: &Arc<Worker>) {
        if let Some(session) = self.table().sessions.get_mut(id) {
            session.note(worker);
        }
    }

    pub(crate) fn worker(&self, id: &str) -> Option<Arc<Worker>> {
        self.table().sessions.get(id)?.worker.upgrade()
    }

    pub(crate) fn count(&self) -> usize {
        self.table().sessions.len()
    }

    pub(crate) fn list(&self) -> Vec<SessionInfo> {
        let now = Instant::now();
        let shown = |(id, session): (&Arc<str>, &SessionEntry)| SessionInfo {
            id: id.to_string(),
            worker: session.worker.upgrade().map(|worker| worker.id.to_string()),
            keys: session.store.len(),
            idle: now.saturating_duration_since(session.visited),
        };
        self.table().sessions.iter().map(shown).collect()
    }

    pub(crate) fn end(&self, id: &str) -> Option<EndedSession> {
        let (id, session) = self.table().sessions.remove_entry(id)?;
        Some(EndedSession { id, served_by: session.served_by })
    }

    /// Ends the sessions that have expired. Returns them, and the time until the next check.
    pub(crate) fn expire(&self) -> (Vec<EndedSession>, Duration) {
        let mut table = self.table();
        let (now, ttl) = (Instant::now(), table.ttl);
        let mut ended = Vec::new();
        loop {
            let Some(entry) = table.by_age.first_entry() else { return (ended, ttl) };
            let (when, _) = *entry.key();
            if when > now {
                return (ended, when - now);
            }
            let id = entry.remove();
            let life = table.sessions.get(&id).map(|session| {
                let used_until = if Arc::strong_count(&session.in_use) > 1 { now } else { session.visited };
                used_until + ttl
            });
            match life {
                None => {} // The session was ended explicitly.
                Some(later) if later > now => table.look_again(later, id),
                Some(_) => {
                    let over = table.sessions.remove(&id).map(|session| session.served_by);
                    ended.extend(over.map(|served_by| EndedSession { id, served_by }));
                }
            }
        }
    }
}

impl SessionStore for Sessions {
    fn get(&self, id: &str, key: &str) -> Result<Option<Encoded>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.get(key).cloned())
    }

    fn set(&self, id: &str, key: String, value: &Encoded) -> Result<(), StoreError> {
        // Exactly the value is counted and stored: not the rest of the frame that it came in, and not less than all of
        // it.
        let mut value = value.trimmed()?;
        let added = size(&key, &value);
        if added <= STORE_LIMIT {
            value = value.detached();
        }
        let mut table = self.table();
        let session = table.sessions.get_mut(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        let freed = session.store.get(&key).map_or(0, |old| size(&key, old));
        let bytes = session.stored - freed + added;
        if bytes > STORE_LIMIT {
            return Err(StoreError::Full { session: id.to_owned(), bytes });
        }
        session.stored = bytes;
        session.store.insert(key, value);
        Ok(())
    }

    fn delete(&self, id: &str, key: &str) -> Result<bool, StoreError> {
        let mut table = self.table();
        let session = table.sessions.get_mut(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        let old = session.store.remove(key);
        if let Some(old) = &old {
            session.stored -= size(key, old);
        }
        Ok(old.is_some())
    }

    fn keys(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::value::{Blob, PayloadLayout};

    fn sessions() -> Sessions {
        let sessions = Sessions::new(Duration::from_mins(10), 10);
        for id in ["a", "b"] {
            assert!(sessions.visit(id).is_some());
        }
        sessions
    }

    fn bytes(length: usize) -> Encoded {
        Encoded::encode(&Blob::from(vec![7; length])).expect("bytes")
    }

    /// Returns the length of a byte string that fills a store to the last byte under a key of this length.
    fn filling(key: &str) -> usize {
        STORE_LIMIT - size(key, &bytes(20_000)) + 20_000
    }

    #[test]
    fn a_store_takes_as_much_as_its_limit_and_not_a_byte_more() {
        let sessions = sessions();
        let refused = sessions.set("a", "k".into(), &bytes(filling("k") + 1)).expect_err("too much");
        assert_eq!(
            refused.to_string(),
            format!(
                "session a would keep {} bytes, and 16777216 is the limit: delete some of its entries",
                STORE_LIMIT + 1
            )
        );
        assert!(sessions.get("a", "k").expect("a session").is_none(), "nothing of it is kept");
        sessions.set("a", "k".into(), &bytes(filling("k"))).expect("room");
        let refused = sessions.set("a", "l".into(), &Encoded::nil()).expect_err("full");
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        sessions.set("b", "k".into(), &bytes(filling("k"))).expect("another session has its own limit");
    }

    #[test]
    fn what_is_replaced_or_deleted_makes_room() {
        let sessions = sessions();
        for _ in 0..3 {
            sessions.set("a", "k".into(), &bytes(filling("k"))).expect("it replaces itself");
        }
        let refused = sessions.set("a", "k".into(), &bytes(filling("k") + 1)).expect_err("too much");
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
        let kept = sessions.get("a", "k").expect("a session").expect("the old value");
        assert_eq!(kept.payload_len(), bytes(filling("k")).payload_len());
        assert!(sessions.delete("a", "k").expect("a session"));
        sessions.set("a", "other".into(), &bytes(filling("other"))).expect("room again");
    }

    #[tokio::test(start_paused = true)]
    async fn other_limits_hold_for_the_sessions_that_there_are() {
        let sessions = sessions();
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(sessions.visit("b").is_some());
        sessions.adopt(Duration::from_mins(1), 1);
        assert_eq!(
            (sessions.count(), sessions.visit("c").is_none()),
            (2, true),
            "more than may be, and no more"
        );
        let (ended, next) = sessions.expire();
        assert!(ended.is_empty() && next == Duration::from_secs(30), "{ended:?} {next:?}");
        tokio::time::advance(Duration::from_secs(30)).await;
        let (ended, next) = sessions.expire();
        assert_eq!((ended.len(), &*ended[0].id, next), (1, "a", Duration::from_secs(30)));
        sessions.adopt(Duration::from_hours(1), 5);
        tokio::time::advance(Duration::from_mins(59)).await;
        assert!(sessions.expire().0.is_empty() && sessions.visit("c").is_some());
    }

    #[test]
    fn small_entries_count_for_the_memory_that_they_take() {
        let sessions = sessions();
        let fits = STORE_LIMIT / (ENTRY + 1 + 7);
        let taken = (0..2 * fits)
            .take_while(|n| sessions.set("a", format!("{n:07}"), &Encoded::nil()).is_ok())
            .count();
        assert_eq!(taken, fits);
    }

    #[test]
    fn a_value_is_kept_without_the_frame_that_it_came_in() {
        let frame = Encoded::encode(&(Blob::from(vec![1; 30_000]), "small", Blob::from(vec![2; 20_000])))
            .expect("a frame");
        let mut payload = Vec::new();
        frame.write_to(&mut payload);
        let payload = Bytes::from(payload);
        let came = Encoded::from_payload(payload.clone(), PayloadLayout::WithBodies).expect("a payload");
        let (_, small, body) = came.decode::<(Encoded, Encoded, Encoded)>().expect("three values");
        drop((frame, came));
        let sessions = sessions();
        sessions.set("a", "small".into(), &small).expect("room");
        sessions.set("a", "body".into(), &body).expect("room");
        drop((small, body));
        assert!(payload.is_unique(), "the frame is not kept");
        let get = |key| sessions.get("a", key).expect("a session").expect("a value");
        assert_eq!(
            (get("small").payload_len(), get("small").decode::<String>()),
            (6, Ok("small".to_owned()))
        );
        assert_eq!(get("body").decode::<Blob>().expect("bytes"), Blob::from(vec![2; 20_000]));
        assert_eq!(get("body").payload_len(), bytes(20_000).payload_len());
    }

    #[test]
    fn a_body_that_a_value_names_often_is_refused() {
        let one = bytes(1 << 20);
        let mut head = vec![0x90 + 15];
        (0..15).for_each(|_| head.extend_from_slice(one.head()));
        let mut payload = u32::try_from(head.len()).expect("short").to_le_bytes().to_vec();
        payload.extend(head);
        payload.extend(vec![7; 1 << 20]);
        let value = Encoded::from_payload(payload.into(), PayloadLayout::WithBodies).expect("a payload");
        let sessions = sessions();
        let refused = sessions.set("a", "k".into(), &value).expect_err("15 MiB in one");
        assert!(matches!(refused, StoreError::Unreadable(_)), "{refused}");
    }
}
