//! Runs the loops from the start of their workers to the end of all. Answers signals in every phase.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use snakepit::config::{LoopConfig, ServiceConfig};
use snakepit::lifecycle::{ShutdownCoordinator, Stage};
use snakepit::loops::{GroupEnd, GroupError, HealthServer, LoopGroup, RunOptions, Runnable};
use snakepit::{Builder, Snakepit};

use super::LoopRunArgs;
use super::status::{LineFormat, LoopRow, lines, print_changes};
use crate::shared::engine::{self, STOP_GRACE};
use crate::shared::exit_status::{FAILED, SUCCESS};
use crate::shared::failure::CliFailure;
use crate::shared::output::display::ProgressDisplay;

/// How often to show the table on a terminal, and to print lines elsewhere.
const TABLE_INTERVAL: Duration = Duration::from_secs(1);
const LINE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct LoopRun<'a> {
    pub(super) args: &'a LoopRunArgs,
    pub(super) loops: Vec<LoopConfig>,
    pub(super) service: ServiceConfig,
    pub(super) coordinator: Arc<ShutdownCoordinator>,
    pub(super) display: ProgressDisplay,
}

impl LoopRun<'_> {
    pub(super) async fn run(self, builder: Builder) -> Result<u8, CliFailure> {
        // An early return drops the start. The end of the runtime waits for it.
        let pit = tokio::select! {
            biased;
            _ = self.coordinator.reached(Stage::Draining { signal: None }) => return Ok(SUCCESS),
            started = pin!(builder.start()) => started.map_err(|error| CliFailure::of(&error).status(FAILED))?,
        };
        let ended = self.serve(&pit).await;
        let cut = self.stop(&pit).await;
        ended.map(|end| cut.unwrap_or(end.status))
    }

    async fn serve(&self, pit: &Snakepit) -> Result<GroupEnd, CliFailure> {
        let mut group = self.service.group("service");
        let mut rows = Vec::new();
        for one in &self.loops {
            let opened = one.open(pit).map_err(|error| CliFailure::usage_of(&error))?;
            let opened = Arc::new(opened);
            rows.push(LoopRow::new(Arc::clone(&opened), format!("{}#{}", one.file.display(), one.queue)));
            group = group.with(opened);
        }
        let group = Arc::new(group);
        let _health = self.answer_probes(&group).await?;
        let end = tokio::select! {
            end = group.run(RunOptions::new()) => end,
            never = self.show(&mut rows, &group) => match never {},
        };
        // The last time shows how the loops ended.
        self.show_once(&mut rows).await;
        end.map_err(|error: GroupError| CliFailure::of(&error).status(FAILED))
    }

    async fn answer_probes(&self, group: &Arc<LoopGroup>) -> Result<Option<HealthServer>, CliFailure> {
        let Some(address) = self.service.health else { return Ok(None) };
        let server = HealthServer::start_at(Arc::clone(group), address).await.map_err(|error| {
            CliFailure::new(format!("cannot answer probes at {address}"), &error)
                .status(FAILED)
                .hint("choose another address with --health, or with health of [service]")
        })?;
        self.display.line(&format!("snakepit: answering probes at http://{}/livez", server.address()));
        Ok(Some(server))
    }

    async fn show(&self, rows: &mut [LoopRow], group: &LoopGroup) -> std::convert::Infallible {
        group.control().until_running().await;
        for member in group.loops() {
            member.control().until_running().await;
        }
        let usual = if self.is_for_terminal() { TABLE_INTERVAL } else { LINE_INTERVAL };
        let mut ticks = tokio::time::interval(self.args.every.unwrap_or(usual));
        loop {
            ticks.tick().await;
            self.show_once(rows).await;
        }
    }

    async fn show_once(&self, rows: &mut [LoopRow]) {
        if self.display.is_terminal() {
            self.display.table(&lines(rows).await);
        }
        if !self.is_for_terminal() {
            let form = if self.args.json { LineFormat::Json } else { LineFormat::Text };
            print_changes(rows, form).await;
        }
    }

    /// Reports whether a person sees the table and no program reads lines.
    fn is_for_terminal(&self) -> bool {
        self.display.is_terminal() && std::io::stdout().is_terminal() && !self.args.json
    }

    /// Stops the workers. If a second signal comes meanwhile, kills the workers at once and returns the exit status.
    async fn stop(&self, pit: &Snakepit) -> Option<u8> {
        let mut stop = pin!(pit.stop_within(STOP_GRACE));
        tokio::select! {
            biased;
            _ = &mut stop => None,
            stage = self.coordinator.reached(Stage::StopNow { signal: 0 }) => {
                engine::kill(pit).await;
                stop.await;
                match stage {
                    Stage::StopNow { signal } => u8::try_from(128 + signal).ok(),
                    Stage::Running | Stage::Draining { .. } => None,
                }
            }
        }
    }
}
