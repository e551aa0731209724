//! Detects that a worker is ready: by its ready line, or by asking at the address that it was given.
//!
//! A program that knows nothing of Snakepit does not report when it begins to listen, so the host polls it until it
//! answers or its time is over.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::MissedTickBehavior;

use super::answer;
use super::answer::payload::Payload;
use super::client::{Client, SendError};
use super::listen_address::{ListeningServer, ToldAddress};
use super::request::Requests;
use crate::adapter::{ProtocolFault, Spawner, StartError};
use crate::custody;
use crate::listener::is_refusal;

/// The pause between two polls.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The time limit of a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of bytes to read from the answer to a probe.
const LONGEST_ANSWER: usize = 64 * 1024;

/// How the host learns that a worker is ready.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// By the ready line (see [`adapter::ready_line`](crate::ready_line)).
    #[default]
    Line,
    /// By a connection to the address that the worker was given.
    Port,
    /// By a 2xx status on `GET` of this path, at the address that the worker was given.
    Probe(String),
}

impl Readiness {
    /// Returns a probe: the worker is ready once `GET` of this path answers with a 2xx status.
    pub fn probe(path: impl Into<String>) -> Self {
        Self::Probe(path.into())
    }

    /// Checks the path of a probe. An error describes what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Line | Self::Port => Ok(()),
            Self::Probe(path) => {
                let is_path =
                    path.starts_with('/') && path.parse::<hyper::Uri>().is_ok() && !path.contains('#');
                if is_path {
                    Ok(())
                } else {
                    Err(format!("its probe {path:?} is not a path: write it like \"/healthz\""))
                }
            }
        }
    }
}

/// Why a worker does not count as ready.
enum NotReady {
    /// It does not listen yet.
    Unreachable(io::Error),
    /// It listens, and may be ready later.
    Yet(String),
    /// Another process listens there, or the owner of the socket cannot be determined.
    Refused(io::Error),
}

impl From<io::Error> for NotReady {
    fn from(error: io::Error) -> Self {
        if is_refusal(&error) { Self::Refused(error) } else { Self::Unreachable(error) }
    }
}

/// Waits until a worker is ready, by a connection or a probe.
pub(super) async fn wait(
    (spawner, process): (&Spawner, &custody::WorkerProcess),
    (told, listening): (&ToldAddress, &ListeningServer),
    requests: &Requests,
    readiness: &Readiness,
) -> Result<(), StartError> {
    let way_out = format!(
        "The program must listen on {}: use the variable {}, or {{socket}} or {{port}} in its arguments",
        told.shown(),
        told.variable().0
    );
    let nobody = format!("no process listens on {}", told.shown());
    spawner.awaits(&nobody, &way_out);
    let mut again = tokio::time::interval(LOOK_AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_refused = false;
    loop {
        let looked = async {
            again.tick().await;
            look(&Client::new(listening.place(process)), requests, readiness).await
        };
        let looked = tokio::select! {
            looked = looked => looked,
            _ = process.exited() => return Err(spawner.ended_early(process, ProtocolFault::Ended).await),
        };
        match looked {
            Ok(()) => {
                spawner.awaits_no_more();
                return Ok(());
            }
            Err(NotReady::Unreachable(error)) => {
                was_refused = false;
                let is_plain =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
                let why = if is_plain { nobody.clone() } else { format!("{nobody}: {error}") };
                spawner.awaits(why, &way_out);
            }
            Err(NotReady::Yet(why)) => {
                was_refused = false;
                spawner.awaits(why, &way_out);
            }
            // The socket may change its owner during the check, so only a second refusal in a row counts.
            Err(NotReady::Refused(_)) if !was_refused => was_refused = true,
            Err(NotReady::Refused(error)) => {
                let fault = ProtocolFault::UnprovenListener(error.to_string());
                return Err(spawner.ended_early(process, fault).await);
            }
        }
    }
}

async fn look(client: &Client, requests: &Requests, readiness: &Readiness) -> Result<(), NotReady> {
    let path = match readiness {
        Readiness::Line | Readiness::Port => return Ok(client.open().await.map(drop)?),
        Readiness::Probe(path) => path,
    };
    let request = requests.probe(path).map_err(|error| NotReady::Yet(error.to_string()))?;
    let asked = async {
        let (response, connected) = client.send(request, |_| {}).await?;
        let status = response.status();
        if let Ok(mut body) = Payload::of(response, connected) {
            // Read so that the server does not see its answer cut off.
            let _ = answer::beginning(&mut body, LONGEST_ANSWER).await;
        }
        Ok(status)
    };
    let status = match tokio::time::timeout(PROBE_PATIENCE, asked).await {
        Ok(Ok(status)) => status,
        Ok(Err(SendError::Unreachable(error) | SendError::NoConnection(error))) => return Err(error.into()),
        Ok(Err(SendError::Unsent(error) | SendError::Broken(error))) => {
            return Err(NotReady::Yet(format!("GET {path} was not answered: {error}")));
        }
        Err(_) => {
            return Err(NotReady::Yet(format!("GET {path} was not answered within {PROBE_PATIENCE:?}")));
        }
    };
    if status.is_success() {
        Ok(())
    } else {
        Err(NotReady::Yet(format!("GET {path} was answered with {status}, not with 2xx")))
    }
}
