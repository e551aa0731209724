//! Sessions: calls that belong together, the worker they are best served by, and what they keep.
//!
//! The store lives here, in the host: it survives the worker, and ends with the session. A session ends when nobody has
//! visited it for its time to live, or when it is ended by hand; then every worker that has served it is told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::pool::LostSessions;
use crate::value::{Encoded, ValueError};
use crate::worker::Worker;

/// The most bytes that one session may keep.
const STORE_LIMIT: usize = 16 << 20;
/// What an entry counts for beside its key and its value: the smallest ones take memory, too.
const ENTRY: usize = 128;

/// Longer than this is for ever.
const NEVER: Duration = Duration::from_hours(24 * 365 * 10);

/// A session, as [`crate::Pool::sessions`] shows it.
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
struct SessionEntry {
    worker: Weak<Worker>,
    /// The name of that worker, which outlives it.
    worker_name: Option<Arc<str>>,
    /// The workers that have served it, to be told of its end.
    served_by: Vec<Weak<Worker>>,
    visited: Instant,
    /// Shared with the calls of the session that wait or run: it does not expire while there are any.
    in_use: Arc<()>,
    store: BTreeMap<String, Encoded>,
    stored: usize,
}

#[derive(Debug)]
struct Table {
    ttl: Duration,
    limit: usize,
    sessions: HashMap<Arc<str>, SessionEntry>,
    /// When each session may expire at the earliest, and which; looked at again then, so that a visit costs nothing.
    by_age: BTreeMap<(Instant, u64), Arc<str>>,
    /// Tells entries of the same instant apart.
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

/// What a call of a session finds.
pub(crate) enum SessionVisit {
    New,
    /// It is known, and no worker has served it.
    Unserved,
    /// The worker that served it last is gone: this one.
    Lost(Arc<str>),
    At(Arc<Worker>),
}

/// What a worker finds that is about to serve a session with a strict affinity.
pub(crate) enum SessionClaim {
    /// It is its own, or nobody's so far.
    Own,
    /// It is another one's, who lives.
    Others(Arc<Worker>),
    /// It was another one's, who is gone: that one. It is its own now, if it may be.
    Inherited(Arc<str>),
}

/// While it lives, its session does not expire.
pub(crate) type SessionInUse = Arc<()>;

/// Why the store cannot keep something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("session {0} does not exist, or has ended")]
    NoSession(String),
    #[error("the call belongs to no session, so there is no store: call it with .session(id)")]
    NotInSession,
    #[error("a call may use the store of its own session alone, and it has named another session")]
    OtherSession,
    #[error("session {session} would keep {bytes} bytes, and {STORE_LIMIT} is the limit")]
    Full { session: String, bytes: usize },
    #[error(transparent)]
    Unreadable(#[from] ValueError),
}

/// A session that has ended, and who must be told.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub(crate) id: Arc<str>,
    pub(crate) served_by: Vec<Weak<Worker>>,
}

/// What an entry of a store counts for.
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

    /// Other limits. The time of each session counts from its last visit, as ever; those that there are stay, also if they are
    /// more than may be from now on.
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

    /// None: there are too many.
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

    /// A worker is about to serve a session with a strict affinity: the first one keeps it for as long as it lives. Whether
    /// another one may have it then is for `lost` to say.
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

    /// A worker is about to serve a session, whoever has served it before.
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

    /// Ends the sessions whose time is over, and says when to look again.
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
                None => {} // It was ended by hand.
                Some(later) if later > now => table.look_again(later, id),
                Some(_) => {
                    let over = table.sessions.remove(&id).map(|session| session.served_by);
                    ended.extend(over.map(|served_by| EndedSession { id, served_by }));
                }
            }
        }
    }

    pub(crate) fn get(&self, id: &str, key: &str) -> Result<Option<Encoded>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.get(key).cloned())
    }

    pub(crate) fn set(&self, id: &str, key: String, value: &Encoded) -> Result<(), StoreError> {
        // What is counted is what is kept: neither the rest of the frame that the value came in, nor less than all.
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

    pub(crate) fn delete(&self, id: &str, key: &str) -> Result<bool, StoreError> {
        let mut table = self.table();
        let session = table.sessions.get_mut(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        let old = session.store.remove(key);
        if let Some(old) = &old {
            session.stored -= size(key, old);
        }
        Ok(old.is_some())
    }

    pub(crate) fn keys(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let table = self.table();
        let session = table.sessions.get(id).ok_or_else(|| StoreError::NoSession(id.to_owned()))?;
        Ok(session.store.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::value::Blob;

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

    /// The length of a byte string that fills a store to the last byte, under a key of so many letters.
    fn filling(key: &str) -> usize {
        STORE_LIMIT - size(key, &bytes(20_000)) + 20_000
    }

    #[test]
    fn a_store_takes_as_much_as_its_limit_and_not_a_byte_more() {
        let sessions = sessions();
        let refused = sessions.set("a", "k".into(), &bytes(filling("k") + 1)).expect_err("too much");
        assert_eq!(
            refused.to_string(),
            format!("session a would keep {} bytes, and 16777216 is the limit", STORE_LIMIT + 1)
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
        let came = Encoded::from_payload(payload.clone(), true).expect("a payload");
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
        let value = Encoded::from_payload(payload.into(), true).expect("a payload");
        let sessions = sessions();
        let refused = sessions.set("a", "k".into(), &value).expect_err("15 MiB in one");
        assert!(matches!(refused, StoreError::Unreadable(_)), "{refused}");
    }
}
