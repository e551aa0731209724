//! What workers print, shown on stderr: the library tells it as events, and nobody else's are shown.

use std::fmt::{Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::screen::Screen;

/// Where the library tells of lines.
const OUTPUT: &str = "snakepit::output";
/// Where it tells of progress bars before their last state, which is a line.
const PROGRESS: &str = "snakepit::progress";

/// Shows them from now on.
pub(crate) fn show(screen: &Screen) {
    // Nobody else in this program sets one, so it cannot be set already.
    let _ = tracing::subscriber::set_global_default(Lines(screen.clone()));
}

struct Lines(Screen);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && [OUTPUT, PROGRESS].contains(&metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if event.metadata().target() == PROGRESS {
            self.0.bar(&line.worker, &line.text);
        } else {
            self.0.line_of(&line.worker, &line.text);
        }
    }

    // There are no spans among what is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    worker: String,
    text: String,
}

impl Visit for Line {
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
