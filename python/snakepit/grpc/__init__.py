"""A worker that is a gRPC server."""
