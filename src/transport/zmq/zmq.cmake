gw_transport_needs(zmq libzmq3-dev zmq.h zmq)
