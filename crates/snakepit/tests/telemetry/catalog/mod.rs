//! The list of events: in code, in `docs/telemetry.md`, and as engines report them.

mod events;
mod reference_page;
