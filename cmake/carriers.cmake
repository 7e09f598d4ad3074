# What carries frames besides sockets and shared memory, each where its library is there; without it everything else is
# built, and asking for the transport says what is missing.
#
#   ZeroMQ (Debian: libzmq3-dev) is linked: zmq.c, else without_zmq.c.
#   MPI (libopenmpi-dev, libmpich-dev): mpi_shim.c is built once for each that is found, and loaded at run time
#   (src/transport/mpi_table.h says why). GW_MPI_SHIMS lists the targets.
list(FILTER GW_SOURCES EXCLUDE REGEX "/src/transport/mpi_shim.c$")

set(GW_PRIVATE_LIBRARIES "-lcrypto -lpthread -lm") # of libgradwire.a, for pkg-config
find_path(GW_ZMQ_INCLUDE zmq.h)
find_library(GW_ZMQ_LIBRARY zmq)
mark_as_advanced(GW_ZMQ_INCLUDE GW_ZMQ_LIBRARY)
if(GW_ZMQ_INCLUDE AND GW_ZMQ_LIBRARY)
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/transport/without_zmq.c$")
  string(APPEND GW_PRIVATE_LIBRARIES " -lzmq")
else()
  list(FILTER GW_SOURCES EXCLUDE REGEX "/src/transport/zmq(_keys|_send|_receive)?.c$")
  set(GW_ZMQ_LIBRARY "")
  message(STATUS "ZeroMQ is missing (Debian: libzmq3-dev): transport=zmq will say so")
endif()

set(GW_MPI_SHIMS "")
foreach(mpi openmpi mpich)
  find_program(GW_MPICC_${mpi} mpicc.${mpi})
  mark_as_advanced(GW_MPICC_${mpi})
  if(NOT GW_MPICC_${mpi})
    message(STATUS "no mpicc.${mpi}: transport=mpi under it will say so")
    continue()
  endif()
  if(mpi STREQUAL "openmpi")
    set(compile_question --showme:compile)
    set(link_question --showme:link)
  else()
    set(compile_question -compile_info)
    set(link_question -link_info)
  endif()
  execute_process(COMMAND ${GW_MPICC_${mpi}} ${compile_question} OUTPUT_VARIABLE compile_words
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${GW_MPICC_${mpi}} ${link_question} OUTPUT_VARIABLE link_words OUTPUT_STRIP_TRAILING_WHITESPACE)
  # Of the wrapper's words only where headers and libraries are: its optimisation flags are its own affair.
  separate_arguments(includes UNIX_COMMAND "${compile_words}")
  list(FILTER includes INCLUDE REGEX "^-I")
  list(TRANSFORM includes REPLACE "^-I" "")
  separate_arguments(libraries UNIX_COMMAND "${link_words}")
  list(FILTER libraries INCLUDE REGEX "^-[Ll]")
  add_library(gradwire_mpi_${mpi} MODULE src/transport/mpi_shim.c)
  set_target_properties(gradwire_mpi_${mpi} PROPERTIES PREFIX "" OUTPUT_NAME libgradwire-mpi-${mpi})
  target_include_directories(gradwire_mpi_${mpi} PRIVATE include src)
  target_include_directories(gradwire_mpi_${mpi} SYSTEM PRIVATE ${includes})
  target_link_libraries(gradwire_mpi_${mpi} PRIVATE ${libraries})
  list(APPEND GW_MPI_SHIMS gradwire_mpi_${mpi})
endforeach()
