//! Orders to the coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;

use snakepit::lifecycle::{CallbackId, ShutdownCoordinator, Stage};

use crate::{hang, signal, tell, this_thread};

#[derive(Default)]
pub(crate) struct ShutdownStages {
    /// The coordinator that was installed last, even after its reset.
    coordinator: Option<Arc<ShutdownCoordinator>>,
    callbacks: BTreeMap<String, CallbackId>,
}

impl ShutdownStages {
    pub(crate) fn obey(&mut self, words: &[&str]) -> bool {
        match words {
            ["install", signals @ ..] => self.install(signals),
            ["installed"] => tell(if ShutdownCoordinator::get().is_some() { "yes" } else { "no" }),
            ["register", name] => self.register(name, |coordinator, name| {
                let call = called(name);
                coordinator.register(name, call)
            }),
            ["register-now", name] => self.register(name, |coordinator, name| {
                let call = called(name);
                coordinator.register_now(name, call)
            }),
            ["register-panicking", name] => self.register(name, |coordinator, name| {
                let call = called(name);
                coordinator.register(name, move || {
                    call();
                    panic!("as ordered");
                })
            }),
            ["register-hanging", name] => self.register(name, |coordinator, name| {
                let call = called(name);
                coordinator.register(name, move || {
                    call();
                    hang();
                })
            }),
            ["unregister", name] => {
                let was_there = self.coordinator().unregister(self.callbacks[*name]);
                tell(if was_there { "ok" } else { "gone" });
            }
            ["trigger"] => {
                self.coordinator().trigger();
                tell(if self.coordinator().triggered() { "triggered" } else { "ignored" });
            }
            ["stage"] => tell(&show(self.coordinator().stage())),
            ["reset"] => {
                self.coordinator().reset();
                tell("ok");
            }
            ["await", stage] => self.announce(stage),
            ["block-the-runtime"] => block_the_runtime(),
            _ => return false,
        }
        true
    }

    fn install(&mut self, signals: &[&str]) {
        let signals: Vec<_> = signals.iter().map(|word| signal(word)).collect();
        let installed = if signals.is_empty() {
            ShutdownCoordinator::install()
        } else {
            ShutdownCoordinator::install_for(&signals)
        };
        let coordinator = installed.expect("install");
        let ignored: Vec<i32> = coordinator.ignored().iter().map(|signal| signal.as_raw()).collect();
        let again = self.coordinator.as_ref().is_some_and(|before| Arc::ptr_eq(before, &coordinator));
        self.coordinator = Some(coordinator);
        tell(&format!("{} ignored={ignored:?}", if again { "same" } else { "new" }));
    }

    fn coordinator(&self) -> &ShutdownCoordinator {
        self.coordinator.as_deref().expect("installed first")
    }

    fn register(&mut self, name: &str, way: impl Fn(&ShutdownCoordinator, &str) -> CallbackId) {
        let id = way(self.coordinator(), name);
        self.callbacks.insert(name.to_owned(), id);
        tell("ok");
    }

    /// Prints when the stage is reached, from a separate runtime.
    fn announce(&self, stage: &str) {
        let stage = match stage {
            "draining" => Stage::Draining { signal: None },
            "stop-now" => Stage::StopNow { signal: 0 },
            other => panic!("no such stage: {other:?}"),
        };
        let reached = self.coordinator().reached(stage);
        tell("ok");
        std::thread::spawn(move || {
            let stage = runtime().block_on(reached);
            tell(&format!("reached {}", show(stage)));
        });
    }
}

fn called(name: &str) -> impl FnOnce() + Send + 'static {
    let name = name.to_owned();
    move || tell(&format!("called {name} on {}", this_thread()))
}

fn show(stage: Stage) -> String {
    match stage {
        Stage::Running => "running".to_owned(),
        Stage::Draining { signal: None } => "draining".to_owned(),
        Stage::Draining { signal: Some(signal) } => format!("draining {signal}"),
        Stage::StopNow { signal } => format!("stop-now {signal}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Keeps the only thread of a runtime busy forever. It is the main thread.
fn block_the_runtime() -> ! {
    runtime().block_on(async {
        tell("blocked");
        loop {
            std::hint::spin_loop();
        }
    })
}
