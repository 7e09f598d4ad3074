gw_transport_needs(rdma libfabric-dev rdma/fi_endpoint.h) # rdma_library.c loads libfabric
