//! The loops from the start of their workers to the end of all, with signals answered in every phase.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use snakepit::lifecycle::{ShutdownCoordinator, Stage};
use snakepit::loops::{GroupEnd, GroupError, HealthServer, LoopGroup, RunOptions, Runnable};
use snakepit::{Builder, LoopConfig, ServiceConfig, Snakepit};

use super::RunArgs;
use super::table::{Form, Row, lines, print_news};
use crate::call::screen::Screen;
use crate::say::{self, Failure, USAGE};

/// What is under way has ended already: this only bounds a mistake.
const STOP_GRACE: Duration = Duration::from_mins(1);
/// How often a terminal gets the table, and others their lines.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

pub(super) struct Conductor<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) loops: Vec<LoopConfig>,
    pub(super) service: ServiceConfig,
    pub(super) coordinator: Arc<ShutdownCoordinator>,
    pub(super) screen: Screen,
}

impl Conductor<'_> {
    pub(super) async fn conduct(self, builder: Builder) -> Result<u8, Failure> {
        // Whoever gives up here drops what was begun, and the end of the runtime waits for it.
        let pit = tokio::select! {
            biased;
            _ = self.coordinator.reached(Stage::Draining { signal: None }) => return Ok(0),
            started = pin!(builder.start()) => started.map_err(|error| Failure::of(&error).status(1))?,
        };
        let ended = self.serve(&pit).await;
        let cut = self.stop(&pit).await;
        ended.map(|end| cut.unwrap_or(end.status))
    }

    async fn serve(&self, pit: &Snakepit) -> Result<GroupEnd, Failure> {
        let mut group = self.service.group("service");
        let mut rows = Vec::new();
        for one in &self.loops {
            let opened = one.open(pit).map_err(|error| Failure::of(&error).status(USAGE))?;
            let opened = Arc::new(opened);
            rows.push(Row::new(Arc::clone(&opened), format!("{}#{}", one.file.display(), one.queue)));
            group = group.with(opened);
        }
        let group = Arc::new(group);
        let _health = self.answer_probes(&group).await?;
        let end = tokio::select! {
            end = group.run(RunOptions::new()) => end,
            never = self.show(&mut rows, &group) => match never {},
        };
        // Once more, so that the last that is shown is how it ended.
        self.show_once(&mut rows).await;
        end.map_err(|error| failure_of(&error))
    }

    async fn answer_probes(&self, group: &Arc<LoopGroup>) -> Result<Option<HealthServer>, Failure> {
        let Some(address) = self.service.health else { return Ok(None) };
        let server = HealthServer::start_at(Arc::clone(group), address).await.map_err(|error| {
            let what = format!("cannot answer probes at {address}");
            Failure::new(what, &error)
                .status(1)
                .hint("--health, or health of [service], names another address")
        })?;
        self.screen.line(&format!("snakepit: probes are answered at http://{}/livez", server.address()));
        Ok(Some(server))
    }

    async fn show(&self, rows: &mut [Row], group: &LoopGroup) -> std::convert::Infallible {
        group.control().until_running(true).await;
        for member in group.loops() {
            member.control().until_running(true).await;
        }
        let usual = if self.is_for_terminal() { EVERY.0 } else { EVERY.1 };
        let mut ticks = tokio::time::interval(self.args.every.unwrap_or(usual));
        loop {
            ticks.tick().await;
            self.show_once(rows).await;
        }
    }

    async fn show_once(&self, rows: &mut [Row]) {
        if self.screen.is_terminal() {
            self.screen.table(&lines(rows).await);
        }
        if !self.is_for_terminal() {
            let form = if self.args.json { Form::Json } else { Form::Text };
            print_news(rows, form).await;
        }
    }

    /// Whether a person sees the table, and nobody reads lines.
    fn is_for_terminal(&self) -> bool {
        self.screen.is_terminal() && std::io::stdout().is_terminal() && !self.args.json
    }

    /// Ends the workers. A second signal meanwhile kills them at once, and then this is the status.
    async fn stop(&self, pit: &Snakepit) -> Option<u8> {
        let mut stop = pin!(pit.stop_within(STOP_GRACE));
        tokio::select! {
            biased;
            () = &mut stop => None,
            stage = self.coordinator.reached(Stage::StopNow { signal: 0 }) => {
                if let Some(run) = pit.run() {
                    let run = run.clone();
                    let _ = tokio::task::spawn_blocking(move || run.stop_within(Duration::ZERO)).await;
                }
                stop.await;
                match stage {
                    Stage::StopNow { signal } => u8::try_from(128 + signal).ok(),
                    Stage::Running | Stage::Draining { .. } => None,
                }
            }
        }
    }
}

fn failure_of(error: &GroupError) -> Failure {
    Failure::plain(say::chain(error)).status(1)
}
