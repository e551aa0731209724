//! A tonic client for the Python servers. Its two messages are written out: one field each needs no compiler.

use std::time::Instant;

use prost::Message;
use snakepit_proving::bench::Outcome;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{Counter, Servers};
use crate::turns::{Caller, Laps, Pace};

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(bytes = "vec", tag = "1")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// A channel to each server.
pub(super) struct Tonic {
    runtime: Runtime,
    lanes: Vec<Grpc<Channel>>,
    _servers: Servers,
}

impl Tonic {
    pub(super) fn connect(servers: Servers) -> Outcome<Self> {
        // On one thread tonic is faster here than on two: the servers need the other core.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let lanes = servers
            .ports
            .iter()
            .map(|port| {
                let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
                let channel = runtime.block_on(endpoint.connect())?;
                Ok(Grpc::new(channel).max_decoding_message_size(1 << 24))
            })
            .collect::<Outcome<Vec<_>>>()?;
        Ok(Self { runtime, lanes, _servers: servers })
    }
}

impl Caller for Tonic {
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps> {
        let began = Instant::now();
        let times = self.runtime.block_on(echo_all(self.lanes[0].clone(), bytes, calls))?;
        Ok(Laps::new(began.elapsed(), times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps> {
        let tasks = in_flight * self.lanes.len();
        let share = calls.div_ceil(tasks);
        let began = Instant::now();
        let times = self.runtime.block_on(async {
            let mut set = JoinSet::new();
            for lane in self.lanes.iter().cycle().take(tasks) {
                set.spawn(echo_all(lane.clone(), bytes, share));
            }
            let mut times = Vec::with_capacity(calls);
            while let Some(done) = set.join_next().await {
                times.extend(done.expect("no task panics")?);
            }
            Ok::<_, tonic::Status>(times)
        })?;
        Ok(Laps::new(began.elapsed(), times))
    }

    fn pace(&self) -> Pace {
        Pace::Slow
    }
}

impl Counter for Tonic {
    fn stream(&mut self, items: usize) -> Outcome<()> {
        let mut lane = self.lanes[0].clone();
        let seen = self.runtime.block_on(async {
            lane.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static("/bench.Echo/Count");
            let request = Request::new(Number { value: items as u64 });
            let codec = ProstCodec::<Number, Number>::default();
            let mut stream = lane.server_streaming(request, path, codec).await?.into_inner();
            let mut seen = 0;
            while stream.message().await?.is_some() {
                seen += 1;
            }
            Ok::<usize, tonic::Status>(seen)
        })?;
        if seen == items { Ok(()) } else { Err(format!("{seen} items instead of {items}").into()) }
    }
}

async fn echo_all(mut lane: Grpc<Channel>, bytes: usize, calls: usize) -> Result<Vec<f64>, tonic::Status> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let request = Request::new(Data { value: vec![0x5a; bytes] });
        let began = Instant::now();
        lane.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/bench.Echo/Echo");
        let answer = lane.unary(request, path, ProstCodec::<Data, Data>::default()).await?;
        times.push(began.elapsed().as_secs_f64());
        if answer.get_ref().value.len() != bytes {
            return Err(tonic::Status::internal("the echo is not as long as what was sent"));
        }
    }
    Ok(times)
}
