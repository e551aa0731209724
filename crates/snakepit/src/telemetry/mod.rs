//! stub
#![allow(missing_docs)]
use std::time::Duration;
#[derive(Debug, Clone)]
pub enum Event {
 ScriptExitModeSelected{source:&'static str,input:std::sync::Arc<str>,effective:&'static str},
 ScriptShutdownStart{run_id:Option<std::sync::Arc<str>>,path:&'static str,exit_mode:&'static str,stop_mode:&'static str,owned:bool,status:i32},
 ScriptShutdownStop{run_id:Option<std::sync::Arc<str>>,path:&'static str,exit_mode:&'static str,stop_mode:&'static str,owned:bool,status:i32,drained:bool,took:Duration},
 ScriptShutdownCleanup{run_id:Option<std::sync::Arc<str>>,path:&'static str,exit_mode:&'static str,stop_mode:&'static str,owned:bool,status:i32,outcome:&'static str,killed:usize,took:Duration},
 ScriptShutdownExit{run_id:Option<std::sync::Arc<str>>,path:&'static str,exit_mode:&'static str,stop_mode:&'static str,owned:bool,status:i32},
}
pub fn emit(event: Event) { tracing::debug!(?event, "e"); }
