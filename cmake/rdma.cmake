# transport=rdma, where libfabric's headers are there: Debian's libfabric-dev. Without them everything else is built, and
# asking for it says what is missing. -DGW_RDMA=OFF leaves it out. The library itself is loaded when it is asked for.
#
# Keeps of GW_SOURCES what can be built.
option(GW_RDMA "build transport=rdma where libfabric's headers are found" ON)
find_path(GW_FABRIC_INCLUDE rdma/fi_endpoint.h)
mark_as_advanced(GW_FABRIC_INCLUDE)

if(GW_RDMA AND GW_FABRIC_INCLUDE)
  include_directories(SYSTEM ${GW_FABRIC_INCLUDE})
  add_compile_definitions(GW_WITH_RDMA) # for tests that look inside
  list(REMOVE_ITEM GW_SOURCES ${CMAKE_SOURCE_DIR}/src/transport/rdma_absent.c)
else()
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/transport/rdma(_fabric|_library|_locks|_memory|_peer|_receive|_send|_stamp)?\\.c$")
  message(STATUS "libfabric is missing (Debian: libfabric-dev): transport=rdma will say so")
endif()
