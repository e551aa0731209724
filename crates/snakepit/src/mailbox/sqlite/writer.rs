//! The one thread of this process that uses the file: it takes all orders that wait, does them in one transaction, and
//! answers when the log is on the disk. So many callers share one sync of the disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::bell::Bell;
use super::clock::{Micros, micros, wall_micros};
use super::desk::{Desk, News, Place};
use super::failpoint::{Step, Then, reach};
use super::failure::{Failure, concerns_one_order, explain};
use super::group::{Group, answer, newest_reply, publish, queue_number, receivable, serve_waiting};
use super::inbox::{Inbox, Order, Woken};
use super::open::Gates;
use super::order::Answer;
use super::parked::Parked;
use super::patience::within;
use super::site::{Inode, Site};
use super::upkeep::shrink;
use super::wal::{self, Wal};
use crate::custody::without_file_size_signal;
use crate::mailbox::MailboxError;
use crate::mailbox::memory::letter::Ids;

/// How often a receiver that waits looks whether somebody has committed and died before the bell.
const LOOK: Duration =
    if cfg!(target_os = "linux") { Duration::from_secs(3) } else { Duration::from_millis(250) };

/// Which part of the time that a group took is spent to let the next one get as large.
const GATHERING: u32 = 8;
/// And never more than this.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// A file that nobody has changed for so long is tidied up.
const IDLE: Duration = Duration::from_secs(1);
/// And others are not waited for longer than this then, nor when it is closed.
const TIDYING: Duration = Duration::from_millis(100);

pub(super) struct Writer {
    site: Arc<Site>,
    inbox: Arc<Inbox>,
    bell: Bell,
    /// None after an error that says something of the file: it is opened anew.
    connection: Option<Connection>,
    /// The connection's log.
    log: Option<Wal>,
    /// The generation of which the main file is known to say that it needs its log.
    generation: Option<i64>,
    /// When to look whether the file is quiet, and what SQLite said of its state at the last look.
    tidy_at: Option<Micros>,
    tidy_version: Option<i64>,
    inode: Option<Inode>,
    /// The last sync has failed, so what the log says may not be on the disk.
    is_log_doubtful: bool,
    queues: HashMap<Arc<str>, i64>,
    parked: Parked,
    /// What SQLite says of the file's state; another number after another's commit.
    version: Option<i64>,
    looked: Micros,
    /// How many orders the last group had, and how long they took.
    last: (usize, Duration),
    ids: Ids,
    gates: Arc<Gates>,
}

/// So that callers learn of a writer that has ended, however it did.
struct Deserter(Arc<Inbox>);

/// So that whoever waits for the end of the file's use learns of it, however it came.
struct Closer(Arc<Inbox>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Deserter {
    fn drop(&mut self) {
        self.0.desert();
    }
}

impl Writer {
    pub(super) fn new(site: Arc<Site>, inbox: Arc<Inbox>, gates: Arc<Gates>, connection: Connection) -> Self {
        Self {
            bell: Bell::of(&site.path),
            inode: site.inode(),
            log: Wal::open(&site.path).ok(),
            connection: Some(connection),
            generation: None,
            tidy_at: Some(micros(site.clock.since_boot().saturating_add(IDLE))),
            tidy_version: None,
            is_log_doubtful: false,
            queues: HashMap::new(),
            parked: Parked::default(),
            version: None,
            looked: 0,
            last: (0, Duration::ZERO),
            ids: Ids::new(),
            gates,
            inbox,
            site,
        }
    }

    fn now(&self) -> Micros {
        micros(self.site.clock.since_boot())
    }

    /// Until nobody has the mailbox any more.
    pub(super) fn run(self) {
        // Dropped in reverse: when it says that the file is closed, the writer has no file open any more.
        let _closer = Closer(Arc::clone(&self.inbox));
        let mut writer = self;
        let patience = writer.site.patience;
        // For as long as this thread lives: SQLite writes wherever it likes, and says what went wrong.
        without_file_size_signal(|| {
            within(patience, || writer.serve());
            within(TIDYING, || writer.close());
        });
    }

    fn serve(&mut self) {
        let _deserter = Deserter(Arc::clone(&self.inbox));
        loop {
            let (orders, took) = self.last;
            if orders > 1 {
                self.inbox.gather(orders, took / GATHERING);
            }
            let patience = self.patience();
            // Whoever has nobody that waits need not hear of others: with many processes each ring would wake all of them.
            let bell = self.bell.heard().filter(|_| !self.parked.is_empty());
            let Woken { orders, is_rung, is_over } = self.inbox.wait(bell, patience);
            if is_over {
                return;
            }
            if is_rung {
                self.bell.quiet();
            }
            let is_stirred = !self.parked.is_empty() && self.look();
            // Whoever only looks does not keep the file from being idle.
            let may_change = is_stirred || orders.iter().any(|order| !order.ask.is_read());
            if is_stirred || !orders.is_empty() {
                let (some, began) = (orders.len(), self.site.clock.since_boot());
                self.transact(orders, is_stirred);
                self.last = (
                    some,
                    self.site.clock.since_boot().saturating_sub(began).min(LONGEST_GATHERING * GATHERING),
                );
            }
            if may_change {
                self.tidy_at = Some(self.now().saturating_add(micros(IDLE)));
            } else if self.tidy_at.is_some_and(|at| at <= self.now()) {
                within(TIDYING, || self.tidy());
            }
            self.parked.dismiss(self.now());
        }
    }

    /// How long nothing has to be done by itself.
    fn patience(&self) -> Option<Duration> {
        let parked = self.parked.next().map(|next| next.min(self.looked.saturating_add(micros(LOOK))));
        let next = parked.into_iter().chain(self.tidy_at).min()?;
        Some(Duration::from_micros(next.saturating_sub(self.now()).max(0) as u64))
    }

    /// Whether there may be something for those who wait: by a commit of another process, or because time has passed.
    fn look(&mut self) -> bool {
        let now = self.now();
        if now >= self.looked.saturating_add(micros(LOOK)) {
            self.looked = now;
            self.bell.renew();
        }
        let is_due = self.parked.lines().any(|(_, line)| line.next.is_some_and(|next| next <= now));
        let Some(connection) = &self.connection else { return true };
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut it| it.query_row([], |row| row.get(0)));
        let Ok(version) = version else { return true };
        let is_other = self.version.replace(version) != Some(version);
        if !is_other {
            return is_due;
        }
        // Only to read: whoever has nothing to write leaves the lock to others.
        let queues = &self.queues;
        let mut is_there = is_due;
        for (name, line) in self.parked.lines() {
            let Some(queue) = queues.get(name) else { return true };
            if line.has_receivers() {
                let Ok((some, next)) = receivable(connection, *queue, now) else { return true };
                line.next = next;
                is_there |= some;
            }
            if line.waits_for_replies() {
                let Ok(newest) = newest_reply(connection) else { return true };
                is_there |= newest > std::mem::replace(&mut line.newest_reply, newest);
            }
        }
        is_there
    }

    /// Does the orders, and gives those who wait what there is for them. `is_stirred`: there may be something without an
    /// order.
    fn transact(&mut self, orders: Vec<Order>, is_stirred: bool) {
        let mut group = Group { orders: orders.into(), done: Vec::new(), is_stirred };
        if let Err(error) = self.connect().and_then(|()| self.run_group(&mut group)) {
            // None of it was done, or nobody knows: also not for those who have waited and were given something. Nobody else
            // waits for a file that failed.
            let is_for_all = is_stirred || self.connection.is_none();
            let waited = if is_for_all { self.parked.take_all() } else { Vec::new() };
            let failed = group.orders.into_iter().chain(group.done.into_iter().map(|(order, _)| order));
            for order in failed.chain(waited) {
                answer(order, Err(error.clone()));
            }
            return;
        }
        for (order, mut result) in group.done {
            if let Ok(Answer::Received(received)) = &mut result {
                received.is_committed(&self.inbox, &order);
            }
            answer(order, result);
        }
        reach(Step::Answered);
    }

    /// Makes sure of a connection to the file that has the name now.
    fn connect(&mut self) -> Result<(), MailboxError> {
        let file = self.site.path.display();
        if self.connection.is_some() {
            if self.inode == self.site.inode() {
                return Ok(());
            }
            let reason = format!(
                "{file} was moved or removed while it was open: it is opened anew with the next operation, or made if it \
                 is gone"
            );
            self.disconnect();
            return Err(MailboxError::Backend { reason, source: None });
        }
        let connection = self.site.connect()?;
        if self.is_log_doubtful {
            // A sync that has failed may be forgotten by the next that has not. So nothing is added to this log: what it says
            // goes into the file, and the log starts anew.
            if !wal::start_anew(&connection).map_err(|error| explain(&self.site.path, error))? {
                return Err(MailboxError::Busy(format!(
                    "others use the log of {file} after an error of the disk"
                )));
            }
            self.is_log_doubtful = false;
        }
        let log = Wal::open(&self.site.path).map_err(|error| unsynced(&self.site.path, error))?;
        self.log = Some(log);
        self.inode = self.site.inode();
        self.bell.renew();
        self.connection = Some(connection);
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.log = None;
        self.generation = None;
        self.tidy_at = None;
        self.queues.clear();
        self.version = None;
    }

    /// One transaction. After an error that says something of the file nobody goes on with this connection.
    fn run_group(&mut self, group: &mut Group) -> Result<(), MailboxError> {
        let error = match self.try_group(group) {
            Ok((news, has_to_be_kept)) => {
                if has_to_be_kept {
                    self.sync()?;
                }
                publish(&self.queues, &news);
                return Ok(());
            }
            Err(error) => error,
        };
        match error.sqlite_error_code() {
            // Nothing has begun.
            Some(ErrorCode::DatabaseBusy)
                if self.connection.as_ref().is_some_and(Connection::is_autocommit) => {}
            code => {
                self.is_log_doubtful |= code == Some(ErrorCode::SystemIoFailure);
                self.disconnect();
            }
        }
        Err(explain(&self.site.path, error))
    }

    /// Brings the log onto the disk. Before that nobody is told that anything is done.
    fn sync(&mut self) -> Result<(), MailboxError> {
        let synced = match &self.log {
            Some(log) => log.sync(self.site.log_sync.as_ref()),
            None => Err(std::io::Error::other("it is not open")),
        };
        synced.map_err(|error| {
            self.is_log_doubtful = true;
            self.disconnect();
            unsynced(&self.site.path, error)
        })
    }

    /// Moves the log into the file if nobody has changed it for a while: then a copy of the file is whole.
    fn tidy(&mut self) {
        self.tidy_at = None;
        let Some(connection) = self.connection.as_ref().filter(|_| self.inode == self.site.inode()) else {
            return;
        };
        let later = Some(self.now().saturating_add(micros(IDLE)));
        let version = wal::data_version(connection);
        let is_quiet =
            version.as_ref().is_ok_and(|version| self.tidy_version.replace(*version) == Some(*version));
        let tidied = || -> rusqlite::Result<Tidied> {
            version?;
            Ok(match is_quiet {
                true if shrink(connection)? => Tidied::InPart,
                true if wal::complete(connection)? => Tidied::Wholly,
                _ => Tidied::NotYet,
            })
        };
        match tidied() {
            Ok(Tidied::Wholly) => self.generation = None,
            // Whoever has an order comes first.
            Ok(Tidied::InPart) => self.tidy_at = Some(self.now()),
            Ok(Tidied::NotYet) => self.tidy_at = later,
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && connection.is_autocommit() =>
            {
                self.tidy_at = later;
            }
            Err(error) => {
                tracing::warn!(path = %self.site.path.display(), %error, "a mailbox's log cannot be moved into its file");
                self.is_log_doubtful |= error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
                self.disconnect();
            }
        }
    }

    /// Leaves one whole file, if nobody else uses it.
    fn close(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // Closing tidies up by name, and the name may be another file's.
        if self.inode == self.site.inode() && !self.is_log_doubtful && wal::complete(&connection) == Ok(true)
        {
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        }
    }

    /// Gives what others should hear of, and whether anything was changed or promised.
    fn try_group(&mut self, group: &mut Group) -> rusqlite::Result<(Vec<(i64, News)>, bool)> {
        let Self { connection: Some(connection), generation, queues, parked, ids, site, bell, gates, .. } =
            self
        else {
            return Ok((Vec::new(), false));
        };
        reach(Step::Begin);
        // Whoever only looks leaves the lock to others.
        let only_looks = !group.is_stirred && group.orders.iter().all(|order| order.ask.is_read());
        if only_looks {
            connection.prepare_cached("BEGIN")?.execute([])?;
        } else {
            let now = micros(site.clock.since_boot());
            wal::begin(connection, generation, || group.may_write(connection, queues, now))?;
        }
        reach(Step::Begun);
        let changes = connection.total_changes();
        let promises = group.orders.iter().any(|order| !order.ask.is_read() && !order.is_receive());
        // Read under the lock, so that it never goes back from one transaction to the next, whoever makes it.
        let (now, wall) = (micros(site.clock.since_boot()), site.clock.wall());
        let mut next_id = || ids.next(wall);
        let mut desk = Desk::new(connection, now, wall_micros(site.clock.as_ref()), &mut next_id, gates);
        while let Some(order) = group.orders.pop_front() {
            let queue = queue_number(connection, queues, &order)?;
            let result = if order.is_given_up() {
                Err(MailboxError::Closed(order.queue.to_string()))
            } else if let Some(queue) = queue {
                match desk.serve(Place { queue }, &order.ask) {
                    Ok(answer) => Ok(answer),
                    Err(Failure::Refused(error)) => Err(error),
                    Err(Failure::Sql(error)) if concerns_one_order(&error) => Err(explain(&site.path, error)),
                    Err(Failure::Sql(error)) => {
                        group.orders.push_front(order);
                        return Err(error);
                    }
                }
            } else {
                Err(site.missing(&order.queue))
            };
            match result {
                // Before the next order, which may bring what it waits for.
                Ok(Answer::Received(received)) if received.messages.is_empty() && Parked::wants(&order) => {
                    parked.park(order, received.next, now);
                }
                Ok(Answer::Reply(None)) if Parked::wants(&order) => parked.park_for_reply(order, now),
                result => group.done.push((order, result)),
            }
            reach(Step::Order);
        }
        serve_waiting(&mut desk, queues, parked, group)?;
        let (is_stirred, news) = (!desk.stirred.is_empty(), std::mem::take(&mut desk.news));
        reach(Step::Commit);
        connection.prepare_cached("COMMIT")?.execute([])?;
        reach(Step::Committed);
        if is_stirred && reach(Step::Bell) == Then::Go {
            bell.ring();
            reach(Step::Rung);
        }
        let has_to_be_kept = promises || connection.total_changes() != changes;
        Ok((news, has_to_be_kept))
    }
}

/// For a person, with the way out.
fn unsynced(path: &Path, error: std::io::Error) -> MailboxError {
    let file = path.display();
    let reason = format!(
        "the log of {file} cannot be brought onto the disk, so whether it is done is not known: look for errors of its disk; it \
         is opened anew with the next operation"
    );
    MailboxError::Backend { reason, source: Some(Arc::new(error)) }
}

/// What there is left to do in an idle file.
enum Tidied {
    Wholly,
    InPart,
    NotYet,
}
