//! How the host learns that a worker is ready: by the line that it prints, or by asking where it was told to listen.
//!
//! Nobody tells when a stranger's program begins to listen, so that is looked for again and again until it does, or until its
//! time is over.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::MissedTickBehavior;

use super::answer;
use super::answer::payload::Payload;
use super::client::{Client, SendError};
use super::place::{ListeningServer, ToldAddress};
use super::request::Requests;
use crate::adapter::{Spawner, StartError};
use crate::custody;
use crate::listener::is_refusal;

/// How long is waited before it is looked again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long one probe may take.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// So much is read of what a probe answers.
const LONGEST_ANSWER: usize = 64 * 1024;

/// How the host learns that a worker is ready.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Readiness {
    /// By its ready line (see [`adapter::announce`](crate::announce)).
    #[default]
    Line,
    /// By the connection that it takes where it was told to listen.
    Port,
    /// By a status of 2xx on `GET` of this path, where it was told to listen.
    Probe(String),
}

impl Readiness {
    /// By a status of 2xx on `GET` of this path.
    pub fn probe(path: impl Into<String>) -> Self {
        Self::Probe(path.into())
    }

    /// Whether it can be asked for, with what is wrong if not.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Line | Self::Port => Ok(()),
            Self::Probe(path) => {
                let is_path =
                    path.starts_with('/') && path.parse::<hyper::Uri>().is_ok() && !path.contains('#');
                if is_path {
                    Ok(())
                } else {
                    Err(format!("its probe {path:?} is no path: write it as \"/healthz\""))
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
    /// Somebody else listens there, or it cannot be told who does.
    Refused(io::Error),
}

impl From<io::Error> for NotReady {
    fn from(error: io::Error) -> Self {
        if is_refusal(&error) { Self::Refused(error) } else { Self::Unreachable(error) }
    }
}

/// Until a worker is ready, by a connection or by a probe.
pub(super) async fn wait(
    (spawner, process): (&Spawner, &custody::WorkerProcess),
    (told, listening): (&ToldAddress, &ListeningServer),
    requests: &Requests,
    readiness: &Readiness,
) -> Result<(), StartError> {
    let way_out = format!(
        "The program must listen on {}: it finds that in the variable {}, and in place of {{socket}} or {{port}} in its arguments",
        told.shown(),
        told.variable().0
    );
    let nobody = format!("nobody listens on {}", told.shown());
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
            _ = process.exited() => return Err(spawner.ended_early(process, "it ended").await),
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
            // A process that changes hands while it is looked at is found at the second look.
            Err(NotReady::Refused(_)) if !was_refused => was_refused = true,
            Err(NotReady::Refused(error)) => {
                return Err(spawner.ended_early(process, &error.to_string()).await);
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
        if let Ok(body) = Payload::of(response) {
            // So that the server does not see it break off.
            let _ = answer::beginning(body, LONGEST_ANSWER).await;
        }
        drop(connected);
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
        Err(NotReady::Yet(format!("GET {path} was answered with {status}, and not with 2xx")))
    }
}
