//! Runs the host's tools for workers, in the frames of spec/wire.md.

use std::sync::{Arc, MutexGuard};

use snakepit_protocol::message::HostCall;

use super::connection::{Connection, ConnectionState};
use super::frame::FrameKind;
use super::spans::read_trace;
use crate::adapter::ProtocolFault;
use crate::adapter::host_tools::{
    MOST_TOOL_CALLS, ToolAdmission, ToolLink, ToolReply, ToolRequest, ToolRunId, ToolRunState, encode,
};
use crate::call::Portion;
use crate::value::{Encoded, ValueError};

/// The maximum number of unwritten bytes. Above it, the answers of tools wait before they become frames.
const ROOM: usize = 1024 * 1024;

/// The maximum number of refusals that wait for a worker that does not read them.
const MOST_REFUSALS: usize = 16 * MOST_TOOL_CALLS;

/// Runs a tool beside the connection, and sends its answer. An error is the fault of the worker.
pub(super) fn host_call(
    connection: &Arc<Connection>,
    state: &mut ConnectionState,
    call: u64,
    asked: HostCall,
    bytes: usize,
) -> Result<(), ProtocolFault> {
    let HostCall { id, tool, args, options } = asked;
    let admission = state.tools.admit(id, bytes, connection.max_frame)?;
    let Some(held) = state.calls.get(call) else { return Ok(()) };
    if let ToolAdmission::Refused(reason) = admission {
        state.refusals += 1;
        if state.refusals > MOST_REFUSALS {
            return Err(ProtocolFault::UnreadRefusals);
        }
        if let Some(((kind, payload), ..)) = encode(&**connection, id, &ToolReply::Error(reason)) {
            state.outbox.value_frame(kind, call, &payload);
        }
        return Ok(());
    }
    let answer = held.call.ask_within(&tool, args, options.trace().and_then(read_trace));
    let stream = options.stream.map(|(items, bytes)| Portion { items, bytes });
    state.tools.start(connection, ToolRequest::new(call, id, bytes).stream(stream), answer);
    Ok(())
}

impl Connection {
    /// Returns the state once there is room for the answer of a tool. A worker that calls tools or grants credit, but
    /// does not read, costs the host no more than this room.
    async fn room(&self) -> MutexGuard<'_, ConnectionState> {
        loop {
            // Created before the check, so that no later notification is missed.
            let room = self.room.notified();
            {
                let mut state = self.state();
                if state.outbox.len() <= ROOM {
                    return state;
                }
                state.wants_room = true;
            }
            room.await;
        }
    }
}

impl ToolLink for Connection {
    type Frame = (FrameKind, Encoded);

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn encode(&self, id: u64, reply: &ToolReply) -> Result<(Self::Frame, usize), ValueError> {
        let (kind, payload) = reply.encode(id)?;
        let length = payload.payload_len();
        Ok(((kind, payload), length))
    }

    async fn wait_for_room(&self) {
        drop(self.room().await);
    }

    async fn deliver(
        &self,
        run: ToolRunId,
        (kind, payload): Self::Frame,
        _bytes: usize,
        next: ToolRunState,
    ) -> ToolRunState {
        let mut state = self.room().await;
        if !state.tools.may_send(run, next) {
            return ToolRunState::IsOver;
        }
        state.outbox.value_frame(kind, run.call, &payload);
        self.see_to_outbox(state, true);
        next
    }
}
