//! Evaluations from plan to report.

mod evaluation;
