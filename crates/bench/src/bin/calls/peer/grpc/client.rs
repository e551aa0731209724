//! A tonic client for the Python servers. Its two messages have one field each, so they need no protobuf compiler.

use std::time::Instant;

use prost::Message;
use snakepit_bench::BenchResult;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{GrpcServers, NumberStream};
use crate::turns::{CallPace, CallTimes, EchoCaller};

#[derive(Clone, PartialEq, Message)]
struct EchoPayload {
    #[prost(bytes = "vec", tag = "1")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct StreamNumber {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// A channel to each server.
pub(super) struct TonicClient {
    runtime: Runtime,
    lanes: Vec<Grpc<Channel>>,
    _servers: GrpcServers,
}

impl TonicClient {
    pub(super) fn connect(servers: GrpcServers) -> BenchResult<Self> {
        // On one thread, tonic is faster here than on two, because the servers need the other core.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let lanes = servers
            .ports
            .iter()
            .map(|port| {
                let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
                let channel = runtime.block_on(endpoint.connect())?;
                Ok(Grpc::new(channel).max_decoding_message_size(1 << 24))
            })
            .collect::<BenchResult<Vec<_>>>()?;
        Ok(Self { runtime, lanes, _servers: servers })
    }
}

impl EchoCaller for TonicClient {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let began = Instant::now();
        let times = self.runtime.block_on(echo_all(self.lanes[0].clone(), bytes, calls))?;
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
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
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn pace(&self) -> CallPace {
        CallPace::Slow
    }
}

impl NumberStream for TonicClient {
    fn stream(&mut self, items: usize) -> BenchResult<()> {
        let mut lane = self.lanes[0].clone();
        let seen = self.runtime.block_on(async {
            lane.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static("/bench.Echo/Count");
            let request = Request::new(StreamNumber { value: items as u64 });
            let codec = ProstCodec::<StreamNumber, StreamNumber>::default();
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
        let request = Request::new(EchoPayload { value: vec![0x5a; bytes] });
        let began = Instant::now();
        lane.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/bench.Echo/Echo");
        let answer = lane.unary(request, path, ProstCodec::<EchoPayload, EchoPayload>::default()).await?;
        times.push(began.elapsed().as_secs_f64());
        if answer.get_ref().value.len() != bytes {
            return Err(tonic::Status::internal("the echo is not as long as what was sent"));
        }
    }
    Ok(times)
}
