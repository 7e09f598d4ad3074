# A small all-reduce takes 0.4 us, a message through shared memory 0.8 us; a tenth of that was calls between files. With
# gcc, the files on their path are optimised together at link time in the program and the shared library; the tests link
# plain object files.
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT GW_SANITIZE)
  set(GW_SMALL_CALL_SOURCES
    base/clock base/dtype base/reduce
    engine/blocking_fast_path engine/early_grants engine/engine engine/executor engine/flight_recorder
    engine/flow_control engine/operation engine/signature engine/wait_diagnosis
    plan/pairwise plan/plan plan/topology
    runtime/call runtime/collectives runtime/host_memory runtime/progress runtime/request
    shm/peer_map shm/registered_memory shm/shm_coll shm/shm_coll_all_arrived shm/shm_coll_direct shm/shm_coll_inline
    shm/shm_coll_parts shm/shm_coll_registered shm/shm_coll_slots
    transport/shm/shm_receive transport/shm/shm_send transport/shm/shm_transport)
  list(TRANSFORM GW_SMALL_CALL_SOURCES REPLACE "(.+)" "src/\\1.c")
  foreach(source ${GW_SMALL_CALL_SOURCES})
    if(NOT EXISTS ${CMAKE_SOURCE_DIR}/${source})
      message(FATAL_ERROR "cmake/small_calls.cmake: there is no ${source}")
    endif()
  endforeach()
  set_source_files_properties(${GW_SMALL_CALL_SOURCES} PROPERTIES COMPILE_OPTIONS "-flto;-ffat-lto-objects")
  target_link_options(gradwire PRIVATE -flto=auto)
  target_link_options(gradwire_shared PRIVATE -flto=auto)
  # A user of the static library may have another compiler, which cannot read LTO sections.
  add_custom_command(TARGET gradwire_static POST_BUILD VERBATIM
    COMMAND ${CMAKE_OBJCOPY} --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* $<TARGET_FILE:gradwire_static>)
  add_link_options(-fno-lto)
endif()
