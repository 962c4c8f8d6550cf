"""The xDS protocol over `grpc.aio`: wire, SotW and delta machines, streams, limits."""
