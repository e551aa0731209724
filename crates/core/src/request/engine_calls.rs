//! Calls of the engine itself to a worker that serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pending::{CallPlan, PendingCall};
use crate::call::{CallError, Input};
use crate::queue::{Placement, PoolInner};
use crate::value::{Encoded, Value};
use crate::worker::Worker;

impl PoolInner {
    /// Tells a worker that a session it has served has ended.
    pub(crate) fn send_session_end(self: &Arc<Self>, worker: &Arc<Worker>, session: &str) {
        let args = BTreeMap::from([("session", session)]);
        if let Ok(mut call) = self.own_call(worker, "snakepit.session_end", &args) {
            self.runtime.spawn(async move { call.value().await });
        }
    }

    /// Calls the `health` hook of a worker.
    pub(crate) async fn ask_health(self: &Arc<Self>, worker: &Arc<Worker>) -> Result<Value, CallError> {
        let mut waiting = self.own_call(worker, "snakepit.health", &BTreeMap::<&str, &str>::new())?;
        let value = waiting.value().await?;
        value.to_value().map_err(|source| CallError::Result { command: "snakepit.health".into(), source })
    }

    /// Submits a call of the engine itself to one worker, before the calls of others.
    fn own_call(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        name: &str,
        args: &BTreeMap<&str, &str>,
    ) -> Result<PendingCall, CallError> {
        let arguments =
            Encoded::encode(args).map_err(|source| CallError::Arguments { command: name.into(), source })?;
        // A worker that is busy for a long time is told late, not never.
        let timeout = self.call_limits.call_timeout();
        let plan = CallPlan {
            priority: i8::MAX,
            ..CallPlan::new(self.command(name), Input::One(arguments), timeout)
        };
        PendingCall::begin_at(Arc::clone(self).into(), plan, Placement::Only(worker.index))
    }
}
