//! Shows on stderr what workers print, and damage to the library's files. Workers' output comes as tracing events.
//! Other events are not shown.

use std::fmt::{Debug, Write as _};

use snakepit::telemetry::{self, observe};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::shared::output;
use crate::shared::output::display::ProgressDisplay;

/// The target of lines.
const OUTPUT: &str = "snakepit::output";
/// The target of progress bars before their last state, which is a line.
const PROGRESS: &str = "snakepit::progress";

/// Creates the display of a command that starts workers. It shows their output if `logs` is set.
pub(crate) fn display(logs: bool) -> ProgressDisplay {
    let display = ProgressDisplay::new();
    if logs {
        // Nothing else in this program sets a subscriber.
        let _ = tracing::subscriber::set_global_default(OutputSubscriber(display.clone()));
    }
    let lines = display.clone();
    observe(move |event| {
        if let telemetry::Event::FileDamaged { path, trouble, .. } = event {
            lines.line(&output::damaged_file(path, trouble.as_deref()));
        }
    });
    display
}

struct OutputSubscriber(ProgressDisplay);

impl Subscriber for OutputSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && [OUTPUT, PROGRESS].contains(&metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = OutputFields::default();
        event.record(&mut line);
        if event.metadata().target() == PROGRESS {
            self.0.worker_bar(&line.worker, &line.text);
        } else {
            self.0.worker_line(&line.worker, &line.text);
        }
    }

    // No span is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct OutputFields {
    worker: String,
    text: String,
}

impl Visit for OutputFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "text" {
            value.clone_into(&mut self.text);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "worker" {
            let _ = write!(self.worker, "{value:?}");
        }
    }
}
