//! The peers: what people use today for the same purpose.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod mosec;
pub(crate) mod pools;
