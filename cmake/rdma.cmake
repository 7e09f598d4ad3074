# transport=rdma, where libfabric is there: Debian's libfabric-dev. Without it everything else is built, and asking for
# it says what is missing. -DGW_RDMA=OFF leaves it out.
#
# Sets GW_RDMA_LIBRARY to the library, or to nothing, and keeps of GW_SOURCES what can be built.
option(GW_RDMA "build transport=rdma where libfabric is found" ON)
find_path(GW_FABRIC_INCLUDE rdma/fi_endpoint.h)
find_library(GW_FABRIC_LIBRARY fabric)
mark_as_advanced(GW_FABRIC_INCLUDE GW_FABRIC_LIBRARY)

file(GLOB GW_RDMA_SOURCES CONFIGURE_DEPENDS src/transport/rdma*.c)
set(GW_RDMA_ALWAYS ${CMAKE_SOURCE_DIR}/src/transport/rdma_absent.c ${CMAKE_SOURCE_DIR}/src/transport/rdma_wire.c)
if(GW_RDMA AND GW_FABRIC_INCLUDE AND GW_FABRIC_LIBRARY)
  set(GW_RDMA_LIBRARY ${GW_FABRIC_LIBRARY})
  include_directories(SYSTEM ${GW_FABRIC_INCLUDE})
  list(REMOVE_ITEM GW_SOURCES ${CMAKE_SOURCE_DIR}/src/transport/rdma_absent.c)
else()
  set(GW_RDMA_LIBRARY "")
  list(REMOVE_ITEM GW_RDMA_SOURCES ${GW_RDMA_ALWAYS})
  list(REMOVE_ITEM GW_SOURCES ${GW_RDMA_SOURCES})
  message(STATUS "libfabric is missing (Debian: libfabric-dev): transport=rdma will say so")
endif()
